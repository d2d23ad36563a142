package mailbox

import (
	"context"
	"iter"

	"github.com/mailboxmq/mailbox/driver"
)

// A State is the state of a message: ready, delayed, in flight or dead.
type State = driver.State

// The states.
const (
	StateReady    = driver.StateReady
	StateDelayed  = driver.StateDelayed
	StateInFlight = driver.StateInFlight
	StateDead     = driver.StateDead
)

// An Edit is a change of one waiting message; exactly one of its fields is set. See Mailbox.Edit.
type Edit = driver.Edit

// A Query selects the messages that Peek yields.
type Query = driver.Query

// Peeked is a message that Peek yields. It was not received.
type Peeked[T any] struct {
	// The record as the backend keeps it. Its own Body, Peeked.Body, is the
	// encoded one, which is shared and must not be changed.
	driver.Peeked
	// Body is the decoded body, and the zero T if DecodeErr is set.
	Body T
	// DecodeErr says why the body cannot be decoded.
	DecodeErr error
}

// Peek yields the messages that match query without receiving or changing them:
// ready ones in the order of delivery, then delayed, in-flight and dead ones. A
// message whose state changes meanwhile may be seen in either state, or not at
// all. An error is yielded last and ends the sequence. Codes: ErrUnsupported if
// the backend does not support peek.
func (m *Mailbox[T]) Peek(ctx context.Context, query Query) iter.Seq2[Peeked[T], error] {
	return func(yield func(Peeked[T], error) bool) {
		if err := m.ready(ctx, opPeek); err != nil {
			yield(Peeked[T]{}, err)
			return
		}
		queue := m.Queue()
		if !queue.Traits().Peek {
			yield(Peeked[T]{}, m.fail(opPeek, ErrUnsupported, "", ""))
			return
		}
		for record, err := range queue.Peek(ctx, query) {
			if err != nil {
				yield(Peeked[T]{}, err)
				return
			}
			record.Attributes = ownAttributes(record.Attributes)
			peeked := Peeked[T]{Peeked: record}
			peeked.Body, peeked.DecodeErr = m.look(opPeek, &record.Message)
			if !yield(peeked, nil) {
				return
			}
		}
	}
}

// look decodes the body of a message that was not received.
func (m *Mailbox[T]) look(op string, message *driver.Message) (body T, err error) {
	body, err = m.decode(message)
	if err != nil {
		var none T
		return none, m.encodingError(op, message.ID, err)
	}
	return body, nil
}
