package driver

import (
	"context"
	"iter"
	"time"
)

// Unsupported refuses every ability of a Queue with ErrUnsupported. A backend
// embeds it in its queues and implements the abilities that it sets in Traits.
type Unsupported struct{}

func unsupported(op string) error { return &Error{Code: ErrUnsupported, Op: op} }

// refused yields nothing but the refusal of op.
func refused[E any](op string) iter.Seq2[E, error] {
	return func(yield func(E, error) bool) {
		var none E
		yield(none, unsupported(op))
	}
}

// DeadLetter returns ErrUnsupported.
func (Unsupported) DeadLetter(context.Context, []DeadLetterRequest) error {
	return unsupported("dead-letter")
}

// DeadLetters yields ErrUnsupported.
func (Unsupported) DeadLetters(context.Context) iter.Seq2[DeadLetter, error] {
	return refused[DeadLetter]("dead-letters")
}

// Redrive returns ErrUnsupported.
func (Unsupported) Redrive(context.Context, []string, int) (int, error) {
	return 0, unsupported("redrive")
}

// Discard returns ErrUnsupported.
func (Unsupported) Discard(context.Context, []string) (int, error) { return 0, unsupported("discard") }

// PurgeDead returns ErrUnsupported.
func (Unsupported) PurgeDead(context.Context) (int, error) {
	return 0, unsupported("purge dead letters")
}

// Peek yields ErrUnsupported.
func (Unsupported) Peek(context.Context, Query) iter.Seq2[Peeked, error] {
	return refused[Peeked]("peek")
}

// Move returns ErrUnsupported.
func (Unsupported) Move(context.Context, string, int) (int, error) { return 0, unsupported("move") }

// AckLate returns ErrUnsupported.
func (Unsupported) AckLate(context.Context, []Receipt) error { return unsupported("ack") }

// ExtendLate returns ErrUnsupported.
func (Unsupported) ExtendLate(context.Context, []Extension) error { return unsupported("extend") }

// ForgetDedup returns ErrUnsupported.
func (Unsupported) ForgetDedup(context.Context) error { return unsupported("forget dedup keys") }

// Usage returns ErrUnsupported.
func (Unsupported) Usage(context.Context) (Usage, error) { return Usage{}, unsupported("usage") }

// Throttle returns ErrUnsupported.
func (Unsupported) Throttle(context.Context, string, time.Duration) error {
	return unsupported("throttle")
}

// Pause returns ErrUnsupported.
func (Unsupported) Pause(context.Context) error { return unsupported("pause") }

// Resume returns ErrUnsupported.
func (Unsupported) Resume(context.Context) error { return unsupported("resume") }

// Edit returns ErrUnsupported.
func (Unsupported) Edit(context.Context, string, Edit) (State, error) { return "", unsupported("edit") }

// Fire returns ErrUnsupported.
func (Unsupported) Fire(context.Context, Firing) (Schedule, bool, error) {
	return Schedule{}, false, unsupported("fire")
}

// Schedules yields ErrUnsupported.
func (Unsupported) Schedules(context.Context, string) iter.Seq2[Schedule, error] {
	return refused[Schedule]("list schedules")
}

// Identity returns the empty text: the queue cannot be told from others of its name.
func (Unsupported) Identity() string { return "" }
