package rpcapi

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	"github.com/mailboxmq/mailbox/driver"
	mailboxv1 "github.com/mailboxmq/mailbox/gen/mailbox/v1"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// History returns the last hour of a queue.
func (s *service) History(ctx context.Context, r *mailboxv1.HistoryRequest) (*mailboxv1.HistoryResponse, error) {
	if r.GetLimit() < 0 {
		return nil, schemaError("limit", "is negative; 0 means no limit")
	}
	points, err := callOf(ctx).caller.History(ctx, r.GetTopic())
	if err != nil {
		return nil, err
	}
	if limit := int(r.GetLimit()); limit > 0 {
		points = points[max(0, len(points)-limit):]
	}
	response := &mailboxv1.HistoryResponse{EveryMs: milliseconds(broker.HistoryEvery)}
	for i := range points {
		p := &points[i]
		response.Points = append(response.Points, &mailboxv1.HistoryPoint{
			At: timestamp(p.At), Ready: int64(p.Ready), Delayed: int64(p.Delayed), InFlight: int64(p.InFlight), Dead: int64(p.Dead), OldestReadyMs: milliseconds(p.OldestReady),
			Sent: int64(p.Sent), Delivered: int64(p.Delivered), Acked: int64(p.Acked), Failed: int64(p.Failed),
		})
	}
	return response, nil
}

// Watch tells what queues are like until the client goes away.
func (s *service) Watch(ctx context.Context, r *mailboxv1.WatchRequest, stream *connect.ServerStream[mailboxv1.WatchResponse]) error {
	c := callOf(ctx)
	w, err := c.caller.Watch(ctx, broker.WatchRequest{Queues: r.GetQueues(), Every: duration(r.GetEveryMs())})
	if e, ok := errors.AsType[*driver.Error](err); ok && e.Field == "queue" {
		named := *e
		named.Field = "queues" // its name here
		err = &named
	}
	if err != nil {
		return err
	}
	defer w.Close()
	c.release() // the request was read, and the stream may last for days
	for {
		event, err := w.Next(ctx)
		if err != nil {
			return err
		}
		response := &mailboxv1.WatchResponse{At: timestamp(event.At), LeftOut: int64(event.LeftOut)}
		for i := range event.Queues {
			response.Queues = append(response.Queues, watched(&event.Queues[i]))
		}
		if err := stream.Send(response); err != nil {
			return err
		}
	}
}

func watched(q *broker.WatchedQueue) *mailboxv1.WatchedQueue {
	if q.Err != nil {
		return &mailboxv1.WatchedQueue{Topic: q.Name, Error: positionError(q.Err)}
	}
	return &mailboxv1.WatchedQueue{
		Topic: q.Name, Ready: int64(q.Ready), Delayed: int64(q.Delayed), InFlight: int64(q.InFlight), Dead: int64(q.Dead), Paused: q.Paused, Throttled: int64(q.Throttled),
		OldestReadyMs: milliseconds(q.OldestReady),
		PerSecond:     &mailboxv1.Rates{Sent: q.PerSecond.Sent, Delivered: q.PerSecond.Delivered, Acked: q.PerSecond.Acked, Failed: q.PerSecond.Failed},
	}
}
