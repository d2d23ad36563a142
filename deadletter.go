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
	// ReasonMaxDeliveries: the message was delivered as often as the queue allows.
	ReasonMaxDeliveries = driver.ReasonMaxDeliveries
	// ReasonFatal: a consumer reported that a retry cannot help.
	ReasonFatal = driver.ReasonFatal
	// ReasonParse: the body could not be decoded.
	ReasonParse = driver.ReasonParse
	// ReasonIntegrity: the stored bytes differ from those that were sent.
	ReasonIntegrity = driver.ReasonIntegrity
	// ReasonExpired: the message was older than the queue retains messages.
	ReasonExpired = driver.ReasonExpired
	// ReasonOperator: an operator dead-lettered it.
	ReasonOperator = driver.ReasonOperator
)

// A DeadLetter is a message that is not delivered any more, and the reason.
type DeadLetter[T any] struct {
	// The record as the backend keeps it. Its own Body, DeadLetter.Body, is
	// the encoded one, which is shared and must not be changed.
	driver.DeadLetter
	// Body is the decoded body, and the zero T if DecodeErr is set.
	Body T
	// DecodeErr says why the body cannot be decoded. If Reason is ReasonParse,
	// that is why the message was dead-lettered.
	DecodeErr error
}

// DeadLetters yields the dead letters, oldest first, without changing them. Dead
// letters that are added or removed meanwhile may or may not be seen. An error is
// yielded last and ends the sequence. Codes: ErrUnsupported if the backend keeps
// no dead letters.
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

// Redrive makes the dead letters with these ids ready again, at the tail of the
// queue and with a delivery count of 0, and returns how many it moved. It skips ids
// of which there is no dead letter; without ids it moves none. Repeating it is safe.
// Codes: ErrFull when the queue is full, with the number moved until then;
// ErrUnsupported.
func (m *Mailbox[T]) Redrive(ctx context.Context, ids []string) (moved int, err error) {
	queue, err := m.withDeadLetters(ctx, opRedrive)
	if err != nil || len(ids) == 0 { // backends take no ids for all
		return 0, err
	}
	return queue.Redrive(ctx, ids, 0)
}

// RedriveAll redrives the oldest dead letters, at most limit; 0 means all. Codes: as
// Redrive.
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

// Discard removes the dead letters with these ids permanently and returns how many
// there were. It skips ids of which there is no dead letter. Repeating it is safe.
// Codes: ErrUnsupported.
func (m *Mailbox[T]) Discard(ctx context.Context, ids []string) (removed int, err error) {
	queue, err := m.withDeadLetters(ctx, opDiscard)
	if err != nil || len(ids) == 0 {
		return 0, err
	}
	return queue.Discard(ctx, ids)
}

// PurgeDead removes all dead letters permanently and returns how many there were.
// Repeating it is safe. Codes: ErrUnsupported.
func (m *Mailbox[T]) PurgeDead(ctx context.Context) (removed int, err error) {
	queue, err := m.withDeadLetters(ctx, opPurgeDead)
	if err != nil {
		return 0, err
	}
	return queue.PurgeDead(ctx)
}

// withDeadLetters returns the queue, or an error if op is not possible on it.
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
