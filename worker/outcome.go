package worker

import (
	"errors"
	"fmt"
	"time"

	"github.com/mailboxmq/mailbox"
)

// Codes of this package, beside those of package mailbox.
const (
	// ErrShutdown: the loop stopped before the handler returned. It is the cause of
	// the handler's cancelled context.
	ErrShutdown mailbox.Code = "worker is shutting down"
	// ErrStuck: a handler made no progress for longer than the watchdog allows, or
	// did not return after its context was cancelled.
	ErrStuck mailbox.Code = "handler is stuck"
)

// Permanent says that a retry cannot help: the message is dead-lettered, whatever
// the policy says about err. Without a policy, the client of a request gets the
// error, and any other message becomes a dead letter of its backend or, if that
// keeps none, is nacked with a delay of 15 minutes. err may be nil.
func Permanent(err error) error { return &outcome{kind: outcomePermanent, err: err} }

// RetryAfter gives the message back to the tail of the queue, with delay, which may be 0. If
// err is nil, that is not a failure: the policy is not consulted, and the delivery does not
// count, as with mailbox.Message.PutBack. Otherwise the message is nacked, unless the policy
// decides that the failure is final.
func RetryAfter(delay time.Duration, err error) error {
	return &outcome{kind: outcomeRetry, delay: max(0, delay), err: err}
}

// Throttle says that the message's group must wait, because what the handler calls is out of
// capacity and has said for how long, as a server does with Retry-After. The queue delivers no
// message of the group for that time, to any worker, and the message goes back to the tail of its group,
// uncounted, as with mailbox.Message.PutBack. Where groups have no limits
// (mailbox.Traits.GroupLimits), or the message has no group, only the message waits. The policy
// is not consulted. err says why; it may be nil.
func Throttle(wait time.Duration, err error) error {
	return &outcome{kind: outcomeThrottle, delay: max(0, wait), err: err}
}

// Discard acks the message although it failed, without a dead letter. The client of
// a request gets err. It is logged and counted. err may be nil.
func Discard(err error) error { return &outcome{kind: outcomeDiscard, err: err} }

// An outcome is an error that says how to settle the message.
type outcome struct {
	kind  outcomeKind
	delay time.Duration // of a retry or a throttle
	err   error         // why; may be nil
}

type outcomeKind string

const (
	outcomeFailed    outcomeKind = "failed"
	outcomePermanent outcomeKind = "permanent failure"
	outcomeRetry     outcomeKind = "retry"
	outcomeThrottle  outcomeKind = "throttle"
	outcomeDiscard   outcomeKind = "discarded"
	// outcomeUnsent: the handler succeeded and its answer could not be sent.
	outcomeUnsent outcomeKind = "the answer could not be sent"
	// outcomeOverLimit: the message was delivered too often to start its handler
	// again.
	outcomeOverLimit outcomeKind = "over the delivery limit"
	// outcomeUnanswerable: the handler succeeded and this worker can never send its
	// answer.
	outcomeUnanswerable outcomeKind = "the reply address can never be served"
)

// Error returns the kind and the cause.
func (o *outcome) Error() string {
	text := string(o.kind)
	switch o.kind {
	case outcomeRetry:
		text = fmt.Sprintf("retry after %v", o.delay)
	case outcomeThrottle:
		text = fmt.Sprintf("throttle for %v", o.delay)
	}
	if o.err != nil {
		text += ": " + o.err.Error()
	}
	return text
}

// Unwrap returns the cause.
func (o *outcome) Unwrap() error { return o.err }

// cause returns the cause. It is nil only for a retry or a throttle without an error.
func (o *outcome) cause() error {
	if o.err == nil && o.kind != outcomeRetry && o.kind != outcomeThrottle {
		return o
	}
	return o.err
}

// outcomeOf returns the outcome of err, which is not nil. If err wraps an outcome,
// the whole of err is the cause.
func outcomeOf(err error) *outcome {
	found, ok := errors.AsType[*outcome](err)
	switch {
	case !ok:
		return &outcome{kind: outcomeFailed, err: err}
	case error(found) == err: //nolint:errorlint // whether it is wrapped is the question
		return found
	case found.err == nil && (found.kind == outcomeRetry || found.kind == outcomeThrottle):
		return found
	}
	return &outcome{kind: found.kind, delay: found.delay, err: err}
}
