package driver

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// A Code is the kind of an error, and the sentinel to test for:
//
//	if errors.Is(err, driver.ErrFull) { … }
//
// Codes are constants, so that no package can reassign them, and the one key of the
// tables that map errors to wire protocols.
type Code string

// Error makes a Code an error.
func (c Code) Error() string { return string(c) }

// The codes.
const (
	// ErrInvalid: an argument is outside its limits. Sending it again is
	// pointless.
	ErrInvalid Code = "invalid argument"
	// ErrTooLarge: a body or batch is over the backend's size limit.
	ErrTooLarge Code = "too large"
	// ErrEncoding: a value could not be encoded or decoded.
	ErrEncoding Code = "encoding"
	// ErrFull: a bound was reached; try again after Error.RetryAfter.
	ErrFull Code = "full"
	// ErrConflict: a dedup key was used before for another body, or a name is
	// taken.
	ErrConflict Code = "conflict"
	// ErrReceiptExpired: the receipt names a delivery that is settled, past
	// its deadline, or superseded by a later delivery.
	ErrReceiptExpired Code = "receipt expired"
	// ErrSettled: this Message value was settled before.
	ErrSettled Code = "already settled"
	// ErrNotFound: no such queue, message or slot.
	ErrNotFound Code = "not found"
	// ErrUnsupported: the backend cannot do this, and says so in Traits.
	ErrUnsupported Code = "not supported by backend"
	// ErrUnavailable: the backend did not answer, or may not have done what
	// was asked; the outcome is unknown.
	ErrUnavailable Code = "backend unavailable"
	// ErrIntegrity: stored bytes are not those that were sent.
	ErrIntegrity Code = "integrity"
	// ErrUnauthenticated: no valid capability was shown.
	ErrUnauthenticated Code = "unauthenticated"
	// ErrForbidden: the capability shown does not cover this.
	ErrForbidden Code = "forbidden"
	// ErrClosed: the handle, or the backend behind it, was closed.
	ErrClosed Code = "closed"

	// ErrUnresolved: an identifier names no mailbox.
	ErrUnresolved Code = "unresolved identifier"
	// ErrNoReplyTo: the message does not say where to answer.
	ErrNoReplyTo Code = "no reply address"
	// ErrReplyAlreadySent: the reply slot holds an answer already.
	ErrReplyAlreadySent Code = "reply already sent"
	// ErrReplyExpected: a request with a reply slot cannot be acked before it
	// is answered.
	ErrReplyExpected Code = "reply expected"
	// ErrReplyCancelled: the caller does not wait for this reply any more.
	ErrReplyCancelled Code = "reply cancelled"
	// ErrReplyExpired: the reply slot's time is over.
	ErrReplyExpired Code = "reply expired"
	// ErrTimeout: the wait ended before an answer came.
	ErrTimeout Code = "timeout"
)

// An Error is a Code with everything known about what failed.
type Error struct {
	Code Code
	// Op is the operation: "send", "receive", "ack", …
	Op    string
	Queue string
	// MessageID is set where one message failed.
	MessageID string
	// Field and Detail say which argument was wrong, and what its limits are.
	Field  string
	Detail string
	// RetryAfter hints when to try again; set with ErrFull and ErrUnavailable
	// where it is known.
	RetryAfter time.Duration
	// Err is the backend's own error.
	Err error
}

// Error returns "mailbox: op queue/id: code: field: detail: cause", leaving
// out what is not known.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("mailbox: ")
	if e.Op != "" {
		b.WriteString(e.Op)
		if e.Queue != "" {
			b.WriteByte(' ')
		}
	}
	b.WriteString(e.Queue)
	if e.MessageID != "" {
		b.WriteByte('/')
		b.WriteString(e.MessageID)
	}
	if e.Op != "" || e.Queue != "" || e.MessageID != "" {
		b.WriteString(": ")
	}
	b.WriteString(string(e.Code))
	for _, part := range []string{e.Field, e.Detail} {
		if part != "" {
			b.WriteString(": ")
			b.WriteString(part)
		}
	}
	if e.RetryAfter > 0 {
		fmt.Fprintf(&b, " (retry after %v)", e.RetryAfter)
	}
	if e.Err != nil {
		b.WriteString(": ")
		b.WriteString(e.Err.Error())
	}
	return b.String()
}

// Is reports whether target is this error's code.
func (e *Error) Is(target error) bool { return target == error(e.Code) }

// Unwrap returns the backend's own error.
func (e *Error) Unwrap() error { return e.Err }

// Annotate returns a copy of err with a queue and an operation, if err is or wraps an
// *Error, and err itself otherwise.
func Annotate(err error, queue, op string) error {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return err
	}
	annotated := *e
	annotated.Queue, annotated.Op = queue, op
	return &annotated
}

// RetryAfter returns the hint carried by err or by any error it wraps, and 0
// if there is none.
func RetryAfter(err error) time.Duration {
	var e *Error
	if errors.As(err, &e) {
		return e.RetryAfter
	}
	return 0
}

// A BatchError reports a batch of which some elements failed. Errs has the
// length of the batch; Errs[i] is nil where element i succeeded.
type BatchError struct{ Errs []error }

// NewBatchError returns nil if every element of errs is nil, and a
// *BatchError otherwise.
func NewBatchError(errs []error) error {
	for _, err := range errs {
		if err != nil {
			return &BatchError{Errs: errs}
		}
	}
	return nil
}

// FailAt returns errs, the errors of n elements, with err at position i. It allocates errs if
// that is nil, so a batch without a failure costs nothing.
func FailAt(errs []error, n, i int, err error) []error {
	if errs == nil {
		errs = make([]error, n)
	}
	errs[i] = err
	return errs
}

// Error names the number of failures and the first of them.
func (e *BatchError) Error() string {
	failed := 0
	var first error
	for _, err := range e.Errs {
		if err == nil {
			continue
		}
		if first == nil {
			first = err
		}
		failed++
	}
	if len(e.Errs) == 1 && first != nil {
		return first.Error()
	}
	return fmt.Sprintf("mailbox: %d of %d failed, first: %v", failed, len(e.Errs), first)
}

// Unwrap returns the failures, without the nils.
func (e *BatchError) Unwrap() []error {
	var failures []error
	for _, err := range e.Errs {
		if err != nil {
			failures = append(failures, err)
		}
	}
	return failures
}

// At returns what err says about element i of a batch: its own error where err
// is a *BatchError, and err itself, which concerns the whole call, otherwise.
func At(err error, i int) error {
	if err == nil {
		return nil
	}
	if batch, ok := errors.AsType[*BatchError](err); ok {
		if i < len(batch.Errs) {
			return batch.Errs[i]
		}
		return nil
	}
	return err
}
