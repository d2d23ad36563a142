package mailbox

import (
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// A Code is the kind of an error and the sentinel to test for with errors.Is.
type Code = driver.Code

// An Error is a Code with the details of what failed; get it with
// errors.AsType[*mailbox.Error].
type Error = driver.Error

// A BatchError has the errors of a batch, by position.
type BatchError = driver.BatchError

// The codes.
const (
	// ErrInvalid: an argument is outside its limits; Error.Field names it.
	ErrInvalid = driver.ErrInvalid
	// ErrTooLarge: a body or batch is over the backend's size limit.
	ErrTooLarge = driver.ErrTooLarge
	// ErrEncoding: a value could not be encoded or decoded.
	ErrEncoding = driver.ErrEncoding
	// ErrFull: a limit was reached; RetryAfter says when to try again.
	ErrFull = driver.ErrFull
	// ErrConflict: a dedup key was used before for another body.
	ErrConflict = driver.ErrConflict
	// ErrReceiptExpired: the delivery was settled, its lease has ended, or the message
	// was delivered again.
	ErrReceiptExpired = driver.ErrReceiptExpired
	// ErrSettled: this Message was settled already.
	ErrSettled = driver.ErrSettled
	// ErrNotFound: no such queue, message or reply slot.
	ErrNotFound = driver.ErrNotFound
	// ErrUnsupported: the backend cannot do this; see its Traits.
	ErrUnsupported = driver.ErrUnsupported
	// ErrUnavailable: the backend did not answer; the outcome is unknown.
	ErrUnavailable = driver.ErrUnavailable
	// ErrIntegrity: stored bytes differ from those that were sent.
	ErrIntegrity = driver.ErrIntegrity
	// ErrUnauthenticated: there was no valid token.
	ErrUnauthenticated = driver.ErrUnauthenticated
	// ErrForbidden: the token does not allow this.
	ErrForbidden = driver.ErrForbidden
	// ErrClosed: the mailbox, or the backend behind it, was closed.
	ErrClosed = driver.ErrClosed

	// ErrUnresolved: an identifier names no mailbox.
	ErrUnresolved = driver.ErrUnresolved
	// ErrNoReplyTo: the message has no reply address, or none that can be found.
	ErrNoReplyTo = driver.ErrNoReplyTo
	// ErrReplyAlreadySent: the reply slot has an answer already.
	ErrReplyAlreadySent = driver.ErrReplyAlreadySent
	// ErrReplyExpected: a request cannot be acked before it is answered.
	ErrReplyExpected = driver.ErrReplyExpected
	// ErrReplyCancelled: the client cancelled the request.
	ErrReplyCancelled = driver.ErrReplyCancelled
	// ErrReplyExpired: the reply slot has expired.
	ErrReplyExpired = driver.ErrReplyExpired
	// ErrTimeout: the wait ended before an answer came.
	ErrTimeout = driver.ErrTimeout
)

// RetryAfter returns the RetryAfter hint of err, or 0 if it has none.
func RetryAfter(err error) time.Duration { return driver.RetryAfter(err) }

// ErrorAt returns the error of element i of a batch, or nil if that element succeeded.
// An error that is not a *BatchError applies to every element.
func ErrorAt(err error, i int) error {
	if err == nil {
		return nil
	}
	return driver.At(err, i)
}

// isBatch reports whether err is a *BatchError.
func isBatch(err error) bool {
	_, ok := errors.AsType[*BatchError](err)
	return ok
}

// fail returns an error of this mailbox, not of the backend.
func (m *Mailbox[T]) fail(op string, code Code, field, detail string) error {
	return &Error{Code: code, Op: op, Queue: m.name, Field: field, Detail: detail}
}

// encodingError wraps the error of a codec.
func (m *Mailbox[T]) encodingError(op, id string, cause error) error {
	return &Error{
		Code: ErrEncoding, Op: op, Queue: m.name, MessageID: id,
		Detail: m.codec.ContentType(), Err: cause,
	}
}

// located adds the name of the queue to an error of a check in package driver. It must
// not be used on errors of a backend, which may be shared.
func (m *Mailbox[T]) located(err error) error {
	if e, ok := errors.AsType[*Error](err); ok {
		e.Queue = m.name
	}
	return err
}

// ErrorType returns the type of an error with the path of its package, such as
// "*encoding/json.SyntaxError", as dead letters store it. Wrappers made by fmt and
// errors are skipped.
func ErrorType(err error) string {
	kind, stars := reflect.TypeOf(significant(err)), ""
	if kind == nil {
		return ""
	}
	for kind.Kind() == reflect.Pointer && kind.Name() == "" {
		kind, stars = kind.Elem(), stars+"*"
	}
	if kind.PkgPath() == "" {
		return stars + kind.String()
	}
	return stars + kind.PkgPath() + "." + kind.Name()
}

// significant returns the first error of a chain that is not a wrapper made by fmt or
// errors.
func significant(err error) error {
	for {
		switch fmt.Sprintf("%T", err) {
		case "*fmt.wrapError", "*fmt.wrapErrors", "*errors.joinError":
		default:
			return err
		}
		inner := unwrapFirst(err)
		if inner == nil {
			return err
		}
		err = inner
	}
}

func unwrapFirst(err error) error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		if inner := joined.Unwrap(); len(inner) > 0 {
			return inner[0]
		}
	}
	return errors.Unwrap(err)
}

// causeText returns the text of a cause as backends store it.
func causeText(cause error) string {
	if cause == nil {
		return ""
	}
	return driver.TrimCause(cause.Error())
}
