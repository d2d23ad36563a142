// Package replyslot presents reply slots as queues, so that workers need not distinguish
// them from mailboxes.
package replyslot

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// Attributes of replies that are sent to a mailbox. They mark a message
// that is not an answer, so that it cannot be taken for one.
const (
	// AttributeError is the text of a failure, and AttributeKind its
	// kind. The body is empty.
	AttributeError = "mailbox.reply.error"
	AttributeKind  = "mailbox.reply.kind"
	// AttributeIndex numbers the replies of a stream from 0 on.
	AttributeIndex = "mailbox.reply.index"
	// AttributeEnd marks the end of a stream. The body is empty.
	AttributeEnd = "mailbox.reply.end"
)

// A Queue is the reply slot with an id in a store, as a queue that takes one message.
type Queue struct {
	driver.Unsupported
	Store driver.ReplyStore
	ID    string
}

var _ driver.Queue = (*Queue)(nil)

// traits allow one body without a delay.
var traits = driver.Traits{
	Ordering: driver.OrderingFIFO, Durability: driver.DurabilityNone,
	MaxBodyBytes: driver.DefaultMaxBodyBytes, MaxAttributes: driver.MaxAttributes, MaxAttributeBytes: driver.MaxAttributeBytes, MaxBatch: 1,
}

// Traits returns what a slot can take.
func (q *Queue) Traits() driver.Traits { return traits }

// Send resolves the slot.
func (q *Queue) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	return q.SendEach(msgs, func(msg *driver.Outgoing) error { return q.Resolve(ctx, msg) })
}

// SendEach sends a batch message by message. Only the first that succeeds is stored.
func (q *Queue) SendEach(msgs []driver.Outgoing, send func(*driver.Outgoing) error) ([]driver.Sent, error) {
	sent, errs := make([]driver.Sent, len(msgs)), make([]error, len(msgs))
	for i := range msgs {
		if errs[i] = send(&msgs[i]); errs[i] == nil {
			sent[i].ID = q.ID
		}
	}
	return sent, driver.NewBatchError(errs)
}

// Resolve writes a message to the slot. Codes: those of the store; ErrReplyExpired if the
// client does not wait any more; ErrUnsupported for a field that a slot cannot store.
func (q *Queue) Resolve(ctx context.Context, msg *driver.Outgoing) error {
	return q.resolve(msg, func(answer driver.Answer) error { return q.Store.Resolve(ctx, q.ID, answer) })
}

// ResolveWithAck is Resolve before an ack of the request, which was received from this queue, with
// the context that it returns. If stored is not nil, the caller must call it after the ack; see
// driver.LinkedReplyStore.
func (q *Queue) ResolveWithAck(ctx context.Context, requests driver.Queue, msg *driver.Outgoing) (ack context.Context, stored func() error, err error) {
	linked, ok := q.Store.(driver.LinkedReplyStore)
	if !ok || !linked.LinkedTo(requests) {
		return ctx, nil, q.Resolve(ctx, msg)
	}
	var finish func() error
	err = q.resolve(msg, func(answer driver.Answer) (err error) {
		ack, finish, err = linked.ResolveWithAck(ctx, q.ID, answer)
		return err
	})
	if err != nil {
		return ctx, nil, err
	}
	return ack, func() error { return q.written(finish()) }, nil
}

// IsOver reports whether err, of writing to a slot, means that the slot accepts no answer any more. Its
// request is acked then.
func IsOver(err error) bool {
	for _, code := range [...]driver.Code{driver.ErrReplyAlreadySent, driver.ErrReplyCancelled, driver.ErrReplyExpired, driver.ErrNotFound} {
		if errors.Is(err, code) {
			return true
		}
	}
	return false
}

// resolve writes a message with write.
func (q *Queue) resolve(msg *driver.Outgoing, write func(driver.Answer) error) error {
	if err := msg.Check(&traits); err != nil {
		return err
	}
	answer, err := q.answer(msg)
	if err != nil {
		return err
	}
	return q.written(write(answer))
}

// written returns the error of a reply for that of a write to the slot.
func (q *Queue) written(err error) error {
	if errors.Is(err, driver.ErrNotFound) {
		// It was answered and read, or it has expired and was swept. Either way the
		// client does not wait any more.
		return &driver.Error{Code: driver.ErrReplyExpired, Op: "reply", Queue: driver.SlotAddress(q.ID), Err: err}
	}
	return err
}

// answer returns the message as a slot stores it. It refuses fields that a slot cannot
// store.
func (q *Queue) answer(msg *driver.Outgoing) (driver.Answer, error) {
	field := ""
	switch {
	case msg.ReplyTo != "":
		field = "ReplyTo"
	case msg.CorrelationID != "":
		field = "CorrelationID"
	case len(msg.Attributes) > 0:
		field = "Attributes"
	default:
		return driver.Answer{Body: msg.Body}, nil
	}
	text, kind := msg.Attributes[AttributeError], msg.Attributes[AttributeKind]
	failure := map[string]string{AttributeError: text, AttributeKind: kind}
	if field == "Attributes" && maps.Equal(msg.Attributes, failure) {
		return driver.Answer{Failure: text, FailureKind: kind}, nil
	}
	return driver.Answer{}, &driver.Error{
		Code: driver.ErrUnsupported, Op: "reply", Queue: driver.SlotAddress(q.ID),
		Field: field, Detail: "a reply slot keeps one body and nothing else",
	}
}

// Receive is refused: the answer is read through a future.
func (q *Queue) Receive(context.Context, driver.ReceiveRequest) ([]driver.Delivery, error) {
	return nil, q.refuse("receive")
}

// Ack is refused: nothing is delivered from a slot.
func (q *Queue) Ack(context.Context, []driver.Receipt) error { return q.refuse("ack") }

// Nack is refused: nothing is delivered from a slot.
func (q *Queue) Nack(context.Context, []driver.Nack) error { return q.refuse("nack") }

// Extend is refused: nothing is delivered from a slot.
func (q *Queue) Extend(context.Context, []driver.Extension) ([]time.Duration, error) {
	return nil, q.refuse("extend")
}

// Purge is refused: the waiting client deletes the slot.
func (q *Queue) Purge(context.Context) (int, error) { return 0, q.refuse("purge") }

// Stats is refused: a slot has a state, and no messages to count.
func (q *Queue) Stats(context.Context) (driver.Stats, error) {
	return driver.Stats{}, q.refuse("stats")
}

// Close does nothing: the slot does not own the store.
func (q *Queue) Close() error { return nil }

func (q *Queue) refuse(op string) error {
	return &driver.Error{Code: driver.ErrUnsupported, Op: op, Queue: driver.SlotAddress(q.ID), Detail: "a reply slot is only written to"}
}
