package worker

import (
	"errors"
	"fmt"
	"time"

	"github.com/mailboxmq/mailbox"
)

// Codes of this package, beside those of package mailbox.
const (
	// ErrShutdown: the loop had to stop before the handler was done. It is the
	// cause with which the handler's context is cancelled then.
	ErrShutdown mailbox.Code = "worker is shutting down"
	// ErrStuck: a handler gave no sign of life for longer than the watchdog
	// allows, or did not return when it was told to.
	ErrStuck mailbox.Code = "handler is stuck"
)

// Permanent says that trying again cannot help: the message is dead-lettered,
// whatever the policy thinks of err. Without a policy, who sent a request is told
// the error, and any other message is set aside with its backend's dead letters
// or, if that keeps none, put off for as long as poison is. A nil err is fine.
func Permanent(err error) error { return &outcome{kind: outcomePermanent, err: err} }

// RetryAfter gives the message back to be delivered again after delay, which may
// be 0. If err is nil, that is no failure, and no policy is asked; otherwise a
// policy may still decide that it was the last time.
func RetryAfter(delay time.Duration, err error) error {
	return &outcome{kind: outcomeRetry, delay: max(0, delay), err: err}
}

// Discard removes the message although it failed, without a dead letter. Who sent
// a request is told err. It is logged and counted. A nil err is fine.
func Discard(err error) error { return &outcome{kind: outcomeDiscard, err: err} }

// outcome is an error that says what is to become of the message.
type outcome struct {
	kind  outcomeKind
	delay time.Duration // of a retry
	err   error         // why; may be nil
}

type outcomeKind string

const (
	outcomeFailed    outcomeKind = "failed"
	outcomePermanent outcomeKind = "permanent failure"
	outcomeRetry     outcomeKind = "retry"
	outcomeDiscard   outcomeKind = "discarded"
	// outcomeUnsent is good work whose answer could not be sent.
	outcomeUnsent outcomeKind = "the answer could not be sent"
	// outcomeOverLimit is a message that was delivered too often to start its
	// handler once more.
	outcomeOverLimit outcomeKind = "over the delivery limit"
	// outcomeUnanswerable is good work whose answer this worker can never send.
	outcomeUnanswerable outcomeKind = "the reply address can never be served"
)

// Error returns what is to become of the message, and why.
func (o *outcome) Error() string {
	text := string(o.kind)
	if o.kind == outcomeRetry {
		text = fmt.Sprintf("retry after %v", o.delay)
	}
	if o.err != nil {
		text += ": " + o.err.Error()
	}
	return text
}

// Unwrap returns why.
func (o *outcome) Unwrap() error { return o.err }

// cause is why, and never nil unless it is a retry for no reason.
func (o *outcome) cause() error {
	if o.err == nil && o.kind != outcomeRetry {
		return o
	}
	return o.err
}

// outcomeOf returns what err, which is not nil, says about the message. Of an
// error that wraps an outcome everything is the cause, what was added on the way
// included.
func outcomeOf(err error) *outcome {
	found, ok := errors.AsType[*outcome](err)
	switch {
	case !ok:
		return &outcome{kind: outcomeFailed, err: err}
	case error(found) == err: //nolint:errorlint // whether it is wrapped is the question
		return found
	case found.err == nil && found.kind == outcomeRetry:
		return found
	}
	return &outcome{kind: found.kind, delay: found.delay, err: err}
}
