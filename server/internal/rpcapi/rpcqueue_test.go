package rpcapi_test

import (
	"context"
	"errors"
	"io"
	"iter"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/mailboxmq/mailbox/driver"
	mailboxv1 "github.com/mailboxmq/mailbox/gen/mailbox/v1"
	"github.com/mailboxmq/mailbox/gen/mailbox/v1/mailboxv1connect"
)

// rpcQueue is a handle of a queue; closing it ends its receives.
type rpcQueue struct {
	driver.Unsupported
	opener  *rpcOpener
	rpc     mailboxv1connect.MailboxClient
	name    string
	once    sync.Once
	closing chan struct{}
}

func (q *rpcQueue) check(op string) error {
	select {
	case <-q.closing:
		return &driver.Error{Code: driver.ErrClosed, Op: op, Queue: q.name}
	default:
		return nil
	}
}

// frameRoom is how much of a batch goes into one request.
const frameRoom = 900 << 10

func (q *rpcQueue) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	if err := q.check("send"); err != nil {
		return nil, err
	}
	if slices.ContainsFunc(msgs, func(m driver.Outgoing) bool { return len(m.Seal) > 0 }) {
		return nil, &driver.Error{Code: driver.ErrUnsupported, Op: "send", Field: "Seal"}
	}
	all := make([]driver.Sent, 0, len(msgs))
	errs := make([]error, 0, len(msgs))
	for first := true; first || len(msgs) > 0; first = false {
		r := &mailboxv1.SendRequest{Topic: q.name, Keyless: true}
		if len(msgs) > 0 {
			if field := notText(&msgs[0]); field != "" {
				err := &driver.Error{Code: driver.ErrInvalid, Op: "send", Field: field, Detail: "is not valid UTF-8"}
				all, errs, msgs = append(all, driver.Sent{}), append(errs, err), msgs[1:]
				continue
			}
		}
		for size := 0; len(msgs) > 0; msgs = msgs[1:] {
			m := &msgs[0]
			out := &mailboxv1.Outgoing{
				Payload: m.Body, IdemKey: m.DedupKey, Attrs: m.Attributes, DelayMs: ms(m.Delay), TtlMs: ms(m.TTL), Priority: int32(m.Priority), UniqueKey: m.UniqueKey, Replace: m.Replace, Group: m.Group,
				ReplyTo: m.ReplyTo, CorrelationId: m.CorrelationID,
			}
			if !m.DeliverAt.IsZero() {
				out.DeliverAt = timestamppb.New(m.DeliverAt)
			}
			if size += proto.Size(out); (size > frameRoom || notText(m) != "") && len(r.Messages) > 0 {
				break
			}
			r.Messages = append(r.Messages, out)
		}
		response, err := q.rpc.Send(ctx, r)
		if err != nil {
			if len(all) == 0 {
				return nil, driverError(ctx, err)
			}
			for range r.GetMessages() {
				all, errs = append(all, driver.Sent{}), append(errs, driverError(ctx, err))
			}
			continue
		}
		for _, result := range response.GetResults() {
			all = append(all, driver.Sent{ID: result.GetMsgId(), Duplicate: result.GetDuplicate(), Replaced: result.GetReplaced()})
			errs = append(errs, positionDriverError(result.GetError()))
		}
	}
	return all, driver.NewBatchError(errs)
}

// notText names a field of a message that is not UTF-8: Protobuf carries no such
// texts.
func notText(m *driver.Outgoing) string {
	for field, text := range map[string]string{
		"DedupKey": m.DedupKey, "UniqueKey": m.UniqueKey, "Group": m.Group, "ReplyTo": m.ReplyTo, "CorrelationID": m.CorrelationID,
	} {
		if !utf8.ValidString(text) {
			return field
		}
	}
	for key, value := range m.Attributes {
		if !utf8.ValidString(key) || !utf8.ValidString(value) {
			return "Attributes"
		}
	}
	return ""
}

func (q *rpcQueue) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	if err := q.check("receive"); err != nil {
		return nil, err
	}
	if req.Wait > 0 && req.Max > 0 && ctx.Err() == nil { // a stream without credit would wait for some
		return q.receiveWaiting(ctx, req)
	}
	most := int64(req.MaxBytes)
	if most == 0 {
		most = 1 << 20
	}
	response, err := q.rpc.Recv(ctx, &mailboxv1.RecvRequest{
		Topic: q.name, MaxMessages: proto.Int32(int32(req.Max)), MaxBytes: most,
		VisibilityMs: proto.Float64(ms(req.Visibility)), WaitMs: ms(req.Wait),
	})
	if err != nil {
		return nil, driverError(ctx, err)
	}
	return deliveries(response.GetMessages()), nil
}

// receiveWaiting uses a stream, since that can be stopped without losing what is
// on its way.
func (q *rpcQueue) receiveWaiting(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	stream, err := q.rpc.RecvStream(context.WithoutCancel(ctx))
	if err != nil {
		return nil, driverError(ctx, err)
	}
	defer stream.CloseResponse()
	_ = stream.Send(&mailboxv1.RecvStreamRequest{ // if it fails, so does receiving
		Topic: q.name, VisibilityMs: proto.Float64(ms(req.Visibility)), IdleMs: ms(req.Wait),
		MaxBytes: int64(req.MaxBytes), Once: true, Credit: int32(req.Max),
	})
	var watching sync.WaitGroup
	over := make(chan struct{})
	watching.Go(func() {
		select {
		case <-ctx.Done():
		case <-q.closing:
		case <-over:
			return
		}
		_ = stream.Send(&mailboxv1.RecvStreamRequest{Stop: true})
	})
	defer watching.Wait()
	defer close(over)
	var got []driver.Delivery
	for {
		response, err := stream.Receive()
		switch {
		case err == nil:
			got = append(got, deliveries(response.GetMessages())...)
			continue
		case len(got) > 0:
			return got, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case q.check("receive") != nil:
			return nil, q.check("receive")
		case errors.Is(err, io.EOF):
			return nil, nil
		}
		return nil, driverError(ctx, err)
	}
}

func deliveries(messages []*mailboxv1.Delivery) []driver.Delivery {
	var all []driver.Delivery
	for _, d := range messages {
		all = append(all, driver.Delivery{
			Message: message(d.GetEnvelope(), d.GetPayload(), d.GetHistory()), Receipt: driver.Receipt{Handle: d.GetReceipt()},
		})
	}
	return all
}

func message(e *mailboxv1.Envelope, payload []byte, h *mailboxv1.History) driver.Message {
	return driver.Message{
		ID: e.GetMsgId(), Body: payload, Attributes: e.GetAttrs(), Group: e.GetGroup(), ReplyTo: e.GetReplyTo(),
		CorrelationID: e.GetCorrelationId(), Deliveries: int(e.GetAttempt()), EnqueuedAt: moment(h.GetEnqueuedAt()),
		FirstReceivedAt: moment(h.GetFirstReceivedAt()), LastError: h.GetLastError(), Priority: int(h.GetPriority()),
	}
}

func moment(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}

// ref is the delivery that a receipt is of. Place and nonce are not used here, and
// who sets them has made the receipt up; so has who has none.
func ref(r driver.Receipt) *mailboxv1.DeliveryRef {
	if r.Place != 0 || r.Nonce != 0 || r.Handle == "" {
		return &mailboxv1.DeliveryRef{Receipt: r.String()}
	}
	return &mailboxv1.DeliveryRef{Receipt: r.Handle}
}

// settled returns the results of a batch as the driver does.
func settled[R interface {
	GetResults() []*mailboxv1.SettleResult
}](ctx context.Context, response R, err error) error {
	if err != nil {
		return driverError(ctx, err)
	}
	errs := make([]error, len(response.GetResults()))
	for i, result := range response.GetResults() {
		errs[i] = positionDriverError(result.GetError())
	}
	return driver.NewBatchError(errs)
}

func (q *rpcQueue) Ack(ctx context.Context, receipts []driver.Receipt) error {
	if err := q.check("ack"); err != nil {
		return err
	}
	r := &mailboxv1.AckRequest{Topic: q.name}
	for _, receipt := range receipts {
		r.Deliveries = append(r.Deliveries, ref(receipt))
	}
	response, err := q.rpc.Ack(ctx, r)
	return settled(ctx, response, err)
}

func (q *rpcQueue) Nack(ctx context.Context, nacks []driver.Nack) error {
	if err := q.check("nack"); err != nil {
		return err
	}
	r := &mailboxv1.NackRequest{Topic: q.name}
	for _, n := range nacks {
		r.Entries = append(r.Entries, &mailboxv1.NackEntry{Delivery: ref(n.Receipt), DelayMs: proto.Float64(ms(n.Delay)), Cause: driver.TrimCause(n.Cause), Mode: mailboxv1.NackMode(n.Mode)})
	}
	response, err := q.rpc.Nack(ctx, r)
	return settled(ctx, response, err)
}

func (q *rpcQueue) Extend(ctx context.Context, extensions []driver.Extension) ([]time.Duration, error) {
	if err := q.check("extend"); err != nil {
		return nil, err
	}
	r := &mailboxv1.ExtendRequest{Topic: q.name}
	for _, e := range extensions {
		r.Entries = append(r.Entries, &mailboxv1.ExtendEntry{Delivery: ref(e.Receipt), VisibilityMs: ms(e.Visibility)})
	}
	response, err := q.rpc.Extend(ctx, r)
	if err = settled(ctx, response, err); response == nil {
		return nil, err
	}
	granted := make([]time.Duration, len(extensions))
	for i, result := range response.GetResults() {
		granted[i] = span(result.GetVisibilityMs())
	}
	return granted, err
}

func (q *rpcQueue) DeadLetter(ctx context.Context, requests []driver.DeadLetterRequest) error {
	if err := q.check("dead-letter"); err != nil {
		return err
	}
	r := &mailboxv1.BuryRequest{Topic: q.name}
	for _, b := range requests {
		r.Entries = append(r.Entries, &mailboxv1.BuryEntry{
			Delivery: ref(b.Receipt), Reason: string(b.Reason), Error: driver.TrimCause(b.Error), ErrorType: b.ErrorType,
		})
	}
	response, err := q.rpc.Bury(ctx, r)
	return settled(ctx, response, err)
}

func (q *rpcQueue) DeadLetters(ctx context.Context) iter.Seq2[driver.DeadLetter, error] {
	return func(yield func(driver.DeadLetter, error) bool) {
		if err := q.check("list dead letters"); err != nil {
			yield(driver.DeadLetter{}, err)
			return
		}
		stream, err := q.rpc.DeadLetters(ctx, &mailboxv1.DeadLettersRequest{Topic: q.name})
		each(ctx, stream, err, (*mailboxv1.DeadLettersResponse).GetMessages, deadLetter, yield)
	}
}

func deadLetter(p *mailboxv1.Peeked) driver.DeadLetter {
	return driver.DeadLetter{
		Message: message(p.GetEnvelope(), p.GetPayload(), p.GetHistory()), Source: p.GetDeath().GetSource(),
		Reason: driver.Reason(p.GetDeath().GetReason()), ErrorType: p.GetDeath().GetErrorType(),
		DeadAt: moment(p.GetDeath().GetDeadAt()), Redrives: int(p.GetRedrives()),
	}
}

var states = map[driver.State]mailboxv1.MessageState{
	driver.StateReady:    mailboxv1.MessageState_MESSAGE_STATE_READY,
	driver.StateDelayed:  mailboxv1.MessageState_MESSAGE_STATE_DELAYED,
	driver.StateInFlight: mailboxv1.MessageState_MESSAGE_STATE_IN_FLIGHT,
	driver.StateDead:     mailboxv1.MessageState_MESSAGE_STATE_DEAD,
}

func (q *rpcQueue) Peek(ctx context.Context, query driver.Query) iter.Seq2[driver.Peeked, error] {
	if query.Cursor != nil && query.Last == 0 { // a client that stops has no extent
		return driver.Unsupported{}.Peek(ctx, query)
	}
	return func(yield func(driver.Peeked, error) bool) {
		if err := q.check("peek"); err != nil {
			yield(driver.Peeked{}, err)
			return
		}
		r := &mailboxv1.PeekRequest{
			Topic: q.name, MsgId: query.ID, Attrs: query.Attributes, OlderThanMs: ms(query.OlderThan),
			Reason: string(query.Reason), Limit: int32(query.Limit), Last: int32(query.Last), Cursor: query.Cursor,
		}
		for _, state := range query.States {
			r.States = append(r.States, states[state])
		}
		stream, err := q.rpc.Peek(ctx, r)
		each(ctx, stream, err, (*mailboxv1.PeekResponse).GetMessages, func(p *mailboxv1.Peeked) driver.Peeked {
			peeked := driver.Peeked{DeadLetter: deadLetter(p), DueAt: moment(p.GetDueAt())}
			for state, wire := range states {
				if wire == p.GetState() {
					peeked.State = state
				}
			}
			return peeked
		}, yield)
	}
}

func (q *rpcQueue) Redrive(ctx context.Context, ids []string, limit int) (int, error) {
	if err := q.check("redrive"); err != nil {
		return 0, err
	}
	r, err := q.rpc.Redrive(ctx, &mailboxv1.RedriveRequest{Topic: q.name, MsgIds: ids, All: ids == nil, Limit: int32(limit)})
	if err != nil {
		return int(detailOf(err).GetDone()), driverError(ctx, err)
	}
	return int(r.GetMoved()), nil
}

func (q *rpcQueue) Discard(ctx context.Context, ids []string) (int, error) {
	if err := q.check("discard"); err != nil {
		return 0, err
	}
	r, err := q.rpc.Discard(ctx, &mailboxv1.DiscardRequest{Topic: q.name, MsgIds: ids})
	return int(r.GetRemoved()), driverError(ctx, err)
}

func (q *rpcQueue) PurgeDead(ctx context.Context) (int, error) {
	if err := q.check("purge dead letters"); err != nil {
		return 0, err
	}
	r, err := q.rpc.PurgeDead(ctx, &mailboxv1.PurgeDeadRequest{Topic: q.name})
	return int(r.GetRemoved()), driverError(ctx, err)
}

func (q *rpcQueue) Pause(ctx context.Context) error {
	if err := q.check("pause"); err != nil {
		return err
	}
	_, err := q.rpc.Pause(ctx, &mailboxv1.PauseRequest{Topic: q.name})
	return driverError(ctx, err)
}

func (q *rpcQueue) Resume(ctx context.Context) error {
	if err := q.check("resume"); err != nil {
		return err
	}
	_, err := q.rpc.Resume(ctx, &mailboxv1.ResumeRequest{Topic: q.name})
	return driverError(ctx, err)
}

func (q *rpcQueue) Throttle(ctx context.Context, group string, wait time.Duration) error {
	if err := q.check("throttle"); err != nil {
		return err
	}
	_, err := q.rpc.Throttle(ctx, &mailboxv1.ThrottleRequest{Topic: q.name, Group: group, WaitMs: ms(wait)})
	return driverError(ctx, err)
}

func (q *rpcQueue) Edit(ctx context.Context, id string, edit driver.Edit) (driver.State, error) {
	if err := q.check("edit"); err != nil {
		return "", err
	}
	request := &mailboxv1.EditRequest{Topic: q.name, MsgId: id, Remove: edit.Remove, Ready: edit.Ready}
	if !edit.DeliverAt.IsZero() {
		request.DeliverAt = timestamppb.New(edit.DeliverAt)
	}
	if edit.Prioritize {
		request.Priority = proto.Int32(int32(edit.Priority))
	}
	r, err := q.rpc.Edit(ctx, request)
	for state, wire := range states {
		if err == nil && wire == r.GetState() {
			return state, nil
		}
	}
	return "", driverError(ctx, err)
}

func (q *rpcQueue) Purge(ctx context.Context) (int, error) {
	if err := q.check("purge"); err != nil {
		return 0, err
	}
	r, err := q.rpc.Purge(ctx, &mailboxv1.PurgeRequest{Topic: q.name})
	return int(r.GetRemoved()), driverError(ctx, err)
}

func (q *rpcQueue) Stats(ctx context.Context) (driver.Stats, error) {
	if err := q.check("stats"); err != nil {
		return driver.Stats{}, err
	}
	r, err := q.rpc.Stats(ctx, &mailboxv1.StatsRequest{Topic: q.name})
	return driver.Stats{
		Ready: int(r.GetReady()), Delayed: int(r.GetDelayed()), InFlight: int(r.GetInFlight()), Dead: int(r.GetDead()), Paused: r.GetPaused(), Throttled: int(r.GetThrottled()),
	}, driverError(ctx, err)
}

func (q *rpcQueue) Traits() driver.Traits {
	r, err := q.rpc.Traits(context.Background(), &mailboxv1.TraitsRequest{Topic: q.name})
	if err != nil {
		return driver.Traits{}
	}
	return driver.Traits{
		Ordering: driver.Ordering(r.GetOrdering()), Durability: driver.Durability(r.GetDurability()), ExactStats: r.GetExactStats(),
		Groups: r.GetGroups(), StrictGroups: r.GetStrictGroups(), DeadLetters: r.GetDeadLetters(), Peek: r.GetPeek(), PeekLast: r.GetPeekLast(), Pause: r.GetPause(), Release: r.GetRelease(), DeliverAt: r.GetDeliverAt(), Edit: r.GetEdit(), TTL: r.GetTtl(), Priorities: r.GetPriorities(), UniqueKeys: r.GetUniqueKeys(), GroupLimits: r.GetGroupLimits(), FairGroups: r.GetFairGroups(), DedupWindow: span(r.GetDedupWindowMs()),
		MaxBodyBytes:  int(r.GetMaxPayloadBytes()),
		MaxAttributes: int(r.GetMaxAttributes()), MaxAttributeBytes: int(r.GetMaxAttributeBytes()), MaxBatch: int(r.GetMaxBatch()), MaxDelay: span(r.GetMaxDelayMs()),
		MaxVisibility: span(r.GetMaxVisibilityMs()), MaxWait: span(r.GetMaxWaitMs()), PurgeCooldown: span(r.GetPurgeCooldownMs()),
	}
}

func (q *rpcQueue) Close() error {
	q.once.Do(func() { close(q.closing) })
	return nil
}
