package deadletter

import (
	"context"
	"errors"

	"github.com/mailboxmq/mailbox"
)

// defaultMaxDeliveries is how often a message is delivered before it is
// dead-lettered, unless a Policy says otherwise.
const defaultMaxDeliveries = 5

// A Policy decides which failures are final. The zero Policy dead-letters a message
// that has failed five times and leaves it with the backend of its
// mailbox. A Policy is read only and may be shared by loops.
type Policy[T any] struct {
	// Mailbox is where dead letters are sent. Nil means that the backend keeps
	// them, which not every backend supports.
	Mailbox *mailbox.Mailbox[Message[T]]
	// MaxDeliveries is how often a message is delivered at most. 0 means
	// five, a negative number no limit. A loop compares it when a
	// handler has failed and also before a handler starts, so that a message that
	// crashes the process is dead-lettered too. If the queue has a limit of its
	// own, the lower of the two applies.
	MaxDeliveries int
	// Always lists the errors that dead-letter a message at once, and Never those
	// that never do. Never takes precedence over Always.
	Always []Matcher
	Never  []Matcher
	// Decide replaces the fields above, if it is set. It must be safe for
	// concurrent use. To add a condition, call Policy.Default in it. Before a
	// handler starts, a loop calls Decide only for a message that was delivered
	// more than MaxDeliveries times, with worker.ErrDeliveries as the error.
	Decide func(ctx context.Context, message *mailbox.Message[T], err error) bool
	// RequestID and TraceID return Message.RequestID and Message.TraceID. Nil means
	// the body's own RequestID() string method, if it has one, and the trace id of
	// the attribute traceparent, if it is set.
	RequestID func(body T) string
	TraceID   func(attributes map[string]string) string
}

// A Matcher recognises errors. Is and As make the usual ones.
type Matcher func(err error) bool

// Is matches errors for which errors.Is(err, target) is true.
func Is(target error) Matcher {
	return func(err error) bool { return errors.Is(err, target) }
}

// As matches errors that are, or wrap, an E.
func As[E error]() Matcher {
	return func(err error) bool {
		_, ok := errors.AsType[E](err)
		return ok
	}
}

// Final reports whether a message that failed with err must be dead-lettered, and
// for which reason. It blocks only if Decide does.
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

// Default is Final without Decide.
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

// Forgives reports whether err is on the list Never: the message is tried again, and the
// delivery does not count (FLOW-4). If Decide is set, no error is.
func (p *Policy[T]) Forgives(err error) bool { return p.Decide == nil && matches(p.Never, err) }

// Queue returns the dead-letter queue of source according to this policy.
func (p *Policy[T]) Queue(source *mailbox.Mailbox[T]) *Queue[T] {
	queue := NewQueue(source, p.Mailbox)
	queue.requestID, queue.traceID = p.RequestID, p.TraceID
	return queue
}

// Limit returns how often a message is delivered at most, 0 for no limit.
func (p *Policy[T]) Limit() int {
	if p.MaxDeliveries == 0 {
		return defaultMaxDeliveries
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
