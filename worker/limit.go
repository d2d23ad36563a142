package worker

import (
	"context"
	"fmt"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/deadletter"
)

// ErrDeliveries is the code of the error of a message that is dead-lettered because
// it was delivered more often than the policy allows. Each of those deliveries ended
// without a result: the process crashed, or the lease was lost.
const ErrDeliveries mailbox.Code = "delivered too often"

// overLimit returns the error that dead-letters a message before its handler
// starts, and nil if the handler may start. A handler that crashes its process
// never returns, so its failures are visible only in the delivery count.
func (r *run[T]) overLimit(ctx context.Context, j *job[T]) (err error) {
	policy, message := r.loop.options.DeadLetters, j.message
	if policy == nil {
		return nil
	}
	limit := policy.Limit()
	if limit == 0 || message.Deliveries <= limit || message.Deliveries-putBackAt(message.LastError) <= limit {
		return nil
	}
	detail := fmt.Sprintf("%d times, at most %d are allowed", message.Deliveries, limit)
	if message.LastError != "" {
		detail += "; last error: " + message.LastError
	}
	cause := &mailbox.Error{
		Code: ErrDeliveries, Op: "handle", Queue: r.loop.mailbox.Name(), MessageID: j.id, Detail: detail,
	}
	if policy.Decide != nil {
		defer func() {
			if value := recover(); value != nil {
				err = newPanicError(value)
			}
		}()
		if !policy.Decide(ctx, message, cause) {
			return nil
		}
	}
	return &outcome{kind: outcomeOverLimit, err: cause}
}

// A putBack is the cause of a nack after which the deliveries so far do not count
// for overLimit: the policy allowed more at the limit, or the loop was stopped. A
// message keeps only the text of a nack, and the next delivery may be in another
// process, so the text has the delivery count.
type putBack struct {
	deliveries int
	err        error // may be nil
}

const putBackFormat = "put back after %d deliveries"

// Error returns the count and the cause.
func (p *putBack) Error() string {
	text := fmt.Sprintf(putBackFormat, p.deliveries)
	if p.err != nil {
		text += ": " + p.err.Error()
	}
	return text
}

// Unwrap returns the cause.
func (p *putBack) Unwrap() error { return p.err }

// putBackAt returns the delivery count in the text of a putBack, and 0 for any
// other text.
func putBackAt(lastError string) (deliveries int) {
	if _, err := fmt.Sscanf(lastError, putBackFormat, &deliveries); err != nil {
		return 0
	}
	return deliveries
}

// nackCause returns the cause that a message is nacked with.
func nackCause[T any](policy *deadletter.Policy[T], message *mailbox.Message[T], cause error) error {
	if !atLimit(policy, message) {
		return cause
	}
	return &putBack{message.Deliveries, cause}
}

// atLimit reports whether a message has had as many deliveries as the policy
// allows.
func atLimit[T any](policy *deadletter.Policy[T], message *mailbox.Message[T]) bool {
	if policy == nil {
		return false
	}
	limit := policy.Limit()
	return limit > 0 && message.Deliveries >= limit
}
