package rpcapi

import (
	"context"
	"iter"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/mailboxmq/mailbox/driver"
	mailboxv1 "github.com/mailboxmq/mailbox/gen/mailbox/v1"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// chunkBytes is the approximate size of a chunk of a list.
const chunkBytes = 64 << 10

// Stats counts the messages of a queue.
func (s *service) Stats(ctx context.Context, r *mailboxv1.StatsRequest) (*mailboxv1.StatsResponse, error) {
	stats, err := callOf(ctx).caller.Stats(ctx, r.GetTopic())
	return &mailboxv1.StatsResponse{
		Ready: int64(stats.Ready), Delayed: int64(stats.Delayed), InFlight: int64(stats.InFlight), Dead: int64(stats.Dead), Paused: stats.Paused, Throttled: int64(stats.Throttled),
	}, err
}

// Peek lists messages.
func (s *service) Peek(ctx context.Context, r *mailboxv1.PeekRequest, stream *connect.ServerStream[mailboxv1.PeekResponse]) error {
	search, err := searchOf(r)
	if err != nil {
		return err
	}
	messages := callOf(ctx).caller.Search(ctx, r.GetTopic(), &search)
	if r.Cursor == nil && !search.Selective() {
		messages = callOf(ctx).caller.Peek(ctx, r.GetTopic(), search.Query)
	}
	err = inChunks(messages, 0, peeked, func(chunk []*mailboxv1.Peeked) error {
		return stream.Send(&mailboxv1.PeekResponse{Messages: chunk})
	})
	if err != nil || r.Cursor == nil {
		return err
	}
	looked := func(state driver.State) int64 { return int64(search.Looked[state]) }
	return stream.Send(&mailboxv1.PeekResponse{Extent: &mailboxv1.PeekExtent{
		Ready: looked(driver.StateReady), Delayed: looked(driver.StateDelayed), InFlight: looked(driver.StateInFlight), Dead: looked(driver.StateDead),
		Cursor: search.Cursor,
	}})
}

// DeadLetters lists the dead letters of a queue.
func (s *service) DeadLetters(ctx context.Context, r *mailboxv1.DeadLettersRequest, stream *connect.ServerStream[mailboxv1.DeadLettersResponse]) error {
	if r.GetLimit() < 0 {
		return schemaError("limit", "is negative; 0 means no bound")
	}
	return inChunks(callOf(ctx).caller.DeadLetters(ctx, r.GetTopic()), int(r.GetLimit()), peeked, func(chunk []*mailboxv1.Peeked) error {
		return stream.Send(&mailboxv1.DeadLettersResponse{Messages: chunk})
	})
}

// Causes groups the dead letters of a queue by cause.
func (s *service) Causes(ctx context.Context, r *mailboxv1.CausesRequest, stream *connect.ServerStream[mailboxv1.CausesResponse]) error {
	survey := broker.Survey{Search: conditions(r, r.Priority), Largest: int(r.GetLimit())}
	if err := survey.Page(r.GetCursor(), duration(r.GetWithinMs())); err != nil {
		return err
	}
	causes, err := callOf(ctx).caller.Causes(ctx, r.GetTopic(), &survey)
	if err != nil {
		return err
	}
	err = inChunks(each(causes), 0, cause, func(chunk []*mailboxv1.Cause) error {
		return stream.Send(&mailboxv1.CausesResponse{Causes: chunk})
	})
	if err != nil {
		return err
	}
	return stream.Send(&mailboxv1.CausesResponse{Extent: &mailboxv1.CausesExtent{
		Looked: int64(survey.Looked[driver.StateDead]), Selected: int64(survey.Selected), Causes: int64(survey.Found), Cursor: survey.Cursor,
	}})
}

func cause(c *broker.Cause) *mailboxv1.Cause {
	text := func(s string) string { return strings.ToValidUTF8(s, "\ufffd") }
	return &mailboxv1.Cause{
		Cause: c.ID, Reason: string(c.Reason), ErrorType: text(c.ErrorType), Words: text(c.Words), Messages: int64(c.Messages),
		FirstDeadAt: timestamp(c.First), LastDeadAt: timestamp(c.Last), MsgId: c.MessageID, LastError: text(c.LastError),
	}
}

// inChunks sends the elements of a sequence in chunks, at most limit of them unless that
// is 0.
func inChunks[E any, M proto.Message](all iter.Seq2[E, error], limit int, convert func(*E) M, send func([]M) error) error {
	var chunk []M
	size, total := 0, 0
	for element, err := range all {
		if err != nil {
			return err
		}
		message := convert(&element)
		chunk = append(chunk, message)
		total++
		if size += proto.Size(message); size >= chunkBytes {
			if err := send(chunk); err != nil {
				return err
			}
			chunk, size = nil, 0
		}
		if total == limit {
			break
		}
	}
	if len(chunk) == 0 {
		return nil
	}
	return send(chunk)
}

// Life returns the trace of a message.
func (s *service) Life(ctx context.Context, r *mailboxv1.LifeRequest) (*mailboxv1.LifeResponse, error) {
	trace, err := callOf(ctx).caller.Trace(ctx, r.GetTopic(), r.GetMsgId())
	if err != nil {
		return nil, err
	}
	response := &mailboxv1.LifeResponse{Report: report(trace.Progress)}
	if trace.Message != nil {
		response.Message = peeked(trace.Message)
	}
	for i := range trace.Events {
		response.Events = append(response.Events, lifeEvent(&trace.Events[i]))
	}
	return response, nil
}

func lifeEvent(e *broker.Event) *mailboxv1.LifeEvent {
	event := &mailboxv1.LifeEvent{At: timestamp(e.At), Kind: e.Kind.String(), Attempt: int32(e.Attempt), Note: e.Note}
	if e.By != [16]byte{} {
		event.By = e.By.String()
	}
	return event
}
