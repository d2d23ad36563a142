package mailbox

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// slotQueue presents a reply slot as a queue that takes one message, so that workers
// need not distinguish it from a mailbox.
type slotQueue struct {
	driver.Unsupported
	store driver.ReplyStore
	id    string
}

var _ driver.Queue = (*slotQueue)(nil)

// slotTraits allow one body without a delay.
var slotTraits = driver.Traits{
	Ordering: driver.OrderingFIFO, Durability: driver.DurabilityNone,
	MaxBodyBytes: driver.DefaultMaxBodyBytes, MaxAttributes: driver.MaxAttributes, MaxAttributeBytes: driver.MaxAttributeBytes, MaxBatch: 1,
}

func (q *slotQueue) Traits() driver.Traits { return slotTraits }

// Send resolves the slot.
func (q *slotQueue) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	return q.sendEach(msgs, func(msg *driver.Outgoing) error { return q.resolve(ctx, msg) })
}

// sendEach sends a batch message by message. Only the first that succeeds is stored.
func (q *slotQueue) sendEach(msgs []driver.Outgoing, send func(*driver.Outgoing) error) ([]driver.Sent, error) {
	sent, errs := make([]driver.Sent, len(msgs)), make([]error, len(msgs))
	for i := range msgs {
		if errs[i] = send(&msgs[i]); errs[i] == nil {
			sent[i].ID = q.id
		}
	}
	return sent, driver.NewBatchError(errs)
}

func (q *slotQueue) resolve(ctx context.Context, msg *driver.Outgoing) error {
	if err := msg.Check(&slotTraits); err != nil {
		return err
	}
	answer, err := q.answer(msg)
	if err != nil {
		return err
	}
	err = q.store.Resolve(ctx, q.id, answer)
	if errors.Is(err, ErrNotFound) {
		// It was answered and read, or it has expired and was swept. Either way the
		// client does not wait any more.
		return &Error{Code: ErrReplyExpired, Op: "reply", Queue: driver.SlotAddress(q.id), Err: err}
	}
	return err
}

// answer returns the message as a slot stores it. It refuses fields that a slot cannot
// store.
func (q *slotQueue) answer(msg *driver.Outgoing) (driver.Answer, error) {
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
	if failure := FailureOf(msg.Attributes); failure != nil && field == "Attributes" && maps.Equal(msg.Attributes, failure.attributes()) {
		return driver.Answer{Failure: failure.Text, FailureKind: string(failure.Kind)}, nil
	}
	return driver.Answer{}, &Error{
		Code: ErrUnsupported, Op: "reply", Queue: driver.SlotAddress(q.id),
		Field: field, Detail: "a reply slot keeps one body and nothing else",
	}
}

// Receive is refused: the answer is read through a future.
func (q *slotQueue) Receive(context.Context, driver.ReceiveRequest) ([]driver.Delivery, error) {
	return nil, q.refuse("receive")
}

// Ack is refused: nothing is delivered from a slot.
func (q *slotQueue) Ack(context.Context, []driver.Receipt) error { return q.refuse("ack") }

// Nack is refused: nothing is delivered from a slot.
func (q *slotQueue) Nack(context.Context, []driver.Nack) error { return q.refuse("nack") }

// Extend is refused: nothing is delivered from a slot.
func (q *slotQueue) Extend(context.Context, []driver.Extension) ([]time.Duration, error) {
	return nil, q.refuse("extend")
}

// Purge is refused: the waiting client deletes the slot.
func (q *slotQueue) Purge(context.Context) (int, error) { return 0, q.refuse("purge") }

// Stats is refused: a slot has a state, and no messages to count.
func (q *slotQueue) Stats(context.Context) (driver.Stats, error) {
	return driver.Stats{}, q.refuse("stats")
}

// Close does nothing: the slot does not own the store.
func (q *slotQueue) Close() error { return nil }

func (q *slotQueue) refuse(op string) error {
	return &Error{Code: ErrUnsupported, Op: op, Queue: driver.SlotAddress(q.id), Detail: "a reply slot is only written to"}
}
