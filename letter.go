package mailbox

import (
	"context"
	"iter"

	"github.com/mailboxmq/mailbox/driver"
)

// A Reason says why a message is dead.
type Reason = driver.Reason

// The reasons a message can die of.
const (
	// ReasonMaxDeliveries: the next delivery would have been one too many.
	ReasonMaxDeliveries = driver.ReasonMaxDeliveries
	// ReasonFatal: a consumer said that trying again cannot help.
	ReasonFatal = driver.ReasonFatal
	// ReasonParse: the body could not be decoded.
	ReasonParse = driver.ReasonParse
	// ReasonIntegrity: the stored bytes are not those that were sent.
	ReasonIntegrity = driver.ReasonIntegrity
	// ReasonExpired: it was older than the queue keeps messages.
	ReasonExpired = driver.ReasonExpired
	// ReasonOperator: a person moved it.
	ReasonOperator = driver.ReasonOperator
)

// A State is where in its life a message is.
type State = driver.State

// The states.
const (
	StateReady    = driver.StateReady
	StateDelayed  = driver.StateDelayed
	StateInFlight = driver.StateInFlight
	StateDead     = driver.StateDead
)

// A Query selects messages to look at.
type Query = driver.Query

// A DeadLetter is a message that will not be delivered any more, and why.
type DeadLetter[T any] struct {
	// The record as the backend keeps it. Its own Body, DeadLetter.Body, is
	// the encoded one, which is shared and must not be changed.
	driver.DeadLetter
	// Body is the decoded body, and the zero T if DecodeErr is set.
	Body T
	// DecodeErr says why the body cannot be decoded. It is what the message
	// died of if Reason is ReasonParse.
	DecodeErr error
}

// Peeked is a message that was looked at and not taken.
type Peeked[T any] struct {
	// The record as the backend keeps it. Its own Body, Peeked.Body, is the
	// encoded one, which is shared and must not be changed.
	driver.Peeked
	// Body is the decoded body, and the zero T if DecodeErr is set.
	Body T
	// DecodeErr says why the body cannot be decoded.
	DecodeErr error
}

// Peek yields the messages that match query without taking them or changing
// anything: ready ones in the order they would be delivered, then delayed,
// in-flight and dead ones. What moves while it runs may be seen in its old
// state, its new one, or not at all. An error is yielded last and ends the
// sequence. Codes: ErrUnsupported where the backend cannot look.
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

// DeadLetters yields the dead letters, oldest death first, without changing
// anything. Letters that die or leave while it runs may or may not be seen. An
// error is yielded last and ends the sequence. Codes: ErrUnsupported where the
// backend keeps no dead queue.
func (m *Mailbox[T]) DeadLetters(ctx context.Context) iter.Seq2[DeadLetter[T], error] {
	return func(yield func(DeadLetter[T], error) bool) {
		queue, err := m.withDeadLetters(ctx, opListDead)
		if err != nil {
			yield(DeadLetter[T]{}, err)
			return
		}
		for record, err := range queue.DeadLetters(ctx) {
			if err != nil {
				yield(DeadLetter[T]{}, err)
				return
			}
			record.Attributes = ownAttributes(record.Attributes)
			letter := DeadLetter[T]{DeadLetter: record}
			letter.Body, letter.DecodeErr = m.look(opListDead, &record.Message)
			if !yield(letter, nil) {
				return
			}
		}
	}
}

// look decodes the body of a message that was listed, not received.
func (m *Mailbox[T]) look(op string, message *driver.Message) (body T, err error) {
	body, err = m.decode(message)
	if err != nil {
		var none T
		return none, m.encodingError(op, message.ID, err)
	}
	return body, nil
}

// Redrive makes the dead letters with these ids ready again, at the tail of
// the queue and with no deliveries on record, and returns how many it moved.
// Ids of no dead letter are passed over, and no ids move nothing. Repeating it
// is safe. Codes: ErrFull when the queue is full, with what was moved before;
// ErrUnsupported.
func (m *Mailbox[T]) Redrive(ctx context.Context, ids []string) (moved int, err error) {
	queue, err := m.withDeadLetters(ctx, opRedrive)
	if err != nil || len(ids) == 0 { // to the backend, no ids would mean all
		return 0, err
	}
	return queue.Redrive(ctx, ids, 0)
}

// RedriveAll is Redrive for the limit dead letters that died first; 0 means
// all. Codes: as Redrive.
func (m *Mailbox[T]) RedriveAll(ctx context.Context, limit int) (moved int, err error) {
	queue, err := m.withDeadLetters(ctx, opRedrive)
	if err != nil {
		return 0, err
	}
	if limit < 0 {
		return 0, m.fail(opRedrive, ErrInvalid, "limit", "is negative; 0 means no limit")
	}
	return queue.Redrive(ctx, nil, limit)
}

// Discard removes the dead letters with these ids for ever and returns how
// many there were. Ids of no dead letter are passed over. Repeating it is safe.
// Codes: ErrUnsupported.
func (m *Mailbox[T]) Discard(ctx context.Context, ids []string) (removed int, err error) {
	queue, err := m.withDeadLetters(ctx, opDiscard)
	if err != nil || len(ids) == 0 {
		return 0, err
	}
	return queue.Discard(ctx, ids)
}

// PurgeDead removes all dead letters for ever and returns how many there were.
// Repeating it is safe. Codes: ErrUnsupported.
func (m *Mailbox[T]) PurgeDead(ctx context.Context) (removed int, err error) {
	queue, err := m.withDeadLetters(ctx, opPurgeDead)
	if err != nil {
		return 0, err
	}
	return queue.PurgeDead(ctx)
}

// withDeadLetters returns the queue, or why op cannot be asked of it.
func (m *Mailbox[T]) withDeadLetters(ctx context.Context, op string) (driver.Queue, error) {
	if err := m.ready(ctx, op); err != nil {
		return nil, err
	}
	queue := m.Queue()
	if err := checkDeadLetters(queue, op); err != nil {
		return nil, m.located(err)
	}
	return queue, nil
}

// checkDeadLetters returns a fresh ErrUnsupported if queue keeps no dead queue.
func checkDeadLetters(queue driver.Queue, op string) error {
	if !queue.Traits().DeadLetters {
		return &Error{Code: ErrUnsupported, Op: op, Detail: "this queue keeps no dead letters"}
	}
	return nil
}
