package deadletter

import (
	"context"
	"errors"

	"github.com/mailboxmq/mailbox"
)

// DefaultMaxDeliveries is how often a message is tried before it is dead, unless
// a Policy says otherwise.
const DefaultMaxDeliveries = 5

// A Policy decides which failures are final. The zero Policy makes a dead letter
// of a message that has failed DefaultMaxDeliveries times, and leaves it with
// the backend of its mailbox. It is read only, and may be shared by loops.
type Policy[T any] struct {
	// Letters is the mailbox that dead letters are sent to. Nil means that the
	// backend keeps them, which not every backend can.
	Letters *mailbox.Mailbox[Letter[T]]
	// MaxDeliveries is how often a message is delivered at most. 0 means
	// DefaultMaxDeliveries; a negative number means that counting alone never
	// kills. A loop compares it when a handler has failed and also before a
	// handler starts, so that a message that kills its process dies too. If the
	// queue has a limit of its own, the lower of the two counts.
	MaxDeliveries int
	// Always lists the errors that make a dead letter at once, and Never those
	// that do not make one however often they occur. Never beats Always.
	Always []Matcher
	Never  []Matcher
	// Decide replaces all of the above if it is set. It must be safe for
	// concurrent use. Policy.Default is what it replaces, for those who only
	// want to add something. Before a handler starts, a loop asks Decide only
	// about a message that was delivered more than MaxDeliveries times, with
	// worker.ErrDeliveries as the error.
	Decide func(ctx context.Context, message *mailbox.Message[T], err error) bool
	// RequestID and TraceID say what Letter.RequestID and Letter.TraceID are.
	// Nil means the body's own RequestID() string method, if it has one, and the
	// trace id of the attribute traceparent, if it is there.
	RequestID func(body T) string
	TraceID   func(attributes map[string]string) string
}

// A Matcher recognises errors. Is and As make the usual ones.
type Matcher func(err error) bool

// Is matches errors that are target, as errors.Is has it.
func Is(target error) Matcher {
	return func(err error) bool { return errors.Is(err, target) }
}

// As matches errors that are, or wrap, an E, as errors.As has it.
func As[E error]() Matcher {
	return func(err error) bool {
		_, ok := errors.AsType[E](err)
		return ok
	}
}

// Final reports whether a message that failed with err is to be dead-lettered,
// and for which reason. It blocks only if Decide does.
func (p *Policy[T]) Final(ctx context.Context, message *mailbox.Message[T], err error) (mailbox.Reason, bool) {
	if p.Decide == nil {
		return p.Default(message, err)
	}
	if !p.Decide(ctx, message, err) {
		return "", false
	}
	if p.exhausted(message) {
		return mailbox.ReasonMaxDeliveries, true
	}
	return mailbox.ReasonFatal, true
}

// Default is Final without regard to Decide.
func (p *Policy[T]) Default(message *mailbox.Message[T], err error) (mailbox.Reason, bool) {
	switch {
	case matches(p.Never, err):
		return "", false
	case matches(p.Always, err):
		return mailbox.ReasonFatal, true
	case p.exhausted(message):
		return mailbox.ReasonMaxDeliveries, true
	}
	return "", false
}

// Box returns where the dead letters of source are, according to this policy.
func (p *Policy[T]) Box(source *mailbox.Mailbox[T]) *Box[T] {
	box := NewBox(source, p.Letters)
	box.requestID, box.traceID = p.RequestID, p.TraceID
	return box
}

// Limit returns how often a message is delivered at most, and 0 if the count
// does not matter.
func (p *Policy[T]) Limit() int {
	if p.MaxDeliveries == 0 {
		return DefaultMaxDeliveries
	}
	return max(0, p.MaxDeliveries)
}

// exhausted reports whether the message has had all its deliveries.
func (p *Policy[T]) exhausted(message *mailbox.Message[T]) bool {
	limit := p.Limit()
	return limit > 0 && message.Deliveries >= limit
}

func matches(matchers []Matcher, err error) bool {
	for _, match := range matchers {
		if match != nil && match(err) {
			return true
		}
	}
	return false
}
