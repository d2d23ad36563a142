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

// An Error is a Code with everything known about what failed; get it with
// errors.AsType[*mailbox.Error].
type Error = driver.Error

// A BatchError reports a batch of which some elements failed, by position.
type BatchError = driver.BatchError

// The codes. Those about replies and identifiers are used by the packages
// that deal in them.
const (
	// ErrInvalid: an argument is outside its limits, which the Error names.
	ErrInvalid = driver.ErrInvalid
	// ErrTooLarge: a body or batch is over the backend's size limit.
	ErrTooLarge = driver.ErrTooLarge
	// ErrEncoding: a value could not be encoded or decoded.
	ErrEncoding = driver.ErrEncoding
	// ErrFull: a bound was reached; RetryAfter hints when to try again.
	ErrFull = driver.ErrFull
	// ErrConflict: a dedup key was used before for another body.
	ErrConflict = driver.ErrConflict
	// ErrReceiptExpired: the delivery is settled, past its visibility, or
	// superseded by a later one.
	ErrReceiptExpired = driver.ErrReceiptExpired
	// ErrSettled: this Message was settled before.
	ErrSettled = driver.ErrSettled
	// ErrNotFound: no such queue, message or reply slot.
	ErrNotFound = driver.ErrNotFound
	// ErrUnsupported: the backend cannot do this, and says so in its Traits.
	ErrUnsupported = driver.ErrUnsupported
	// ErrUnavailable: the backend did not answer; the outcome is unknown.
	ErrUnavailable = driver.ErrUnavailable
	// ErrIntegrity: stored bytes are not those that were sent.
	ErrIntegrity = driver.ErrIntegrity
	// ErrUnauthenticated: no valid capability was shown.
	ErrUnauthenticated = driver.ErrUnauthenticated
	// ErrForbidden: the capability shown does not cover this.
	ErrForbidden = driver.ErrForbidden
	// ErrClosed: the mailbox, or the backend behind it, was closed.
	ErrClosed = driver.ErrClosed

	// ErrUnresolved: an identifier names no mailbox.
	ErrUnresolved = driver.ErrUnresolved
	// ErrNoReplyTo: the message does not say where to answer.
	ErrNoReplyTo = driver.ErrNoReplyTo
	// ErrReplyAlreadySent: the reply slot holds an answer already.
	ErrReplyAlreadySent = driver.ErrReplyAlreadySent
	// ErrReplyExpected: a request cannot be acked before it is answered.
	ErrReplyExpected = driver.ErrReplyExpected
	// ErrReplyCancelled: the client cancelled the request.
	ErrReplyCancelled = driver.ErrReplyCancelled
	// ErrReplyExpired: the reply slot's time is over.
	ErrReplyExpired = driver.ErrReplyExpired
	// ErrTimeout: the wait ended before an answer came.
	ErrTimeout = driver.ErrTimeout
)

// RetryAfter returns the hint carried by err, or 0 if there is none.
func RetryAfter(err error) time.Duration { return driver.RetryAfter(err) }

// ErrorAt returns what the error of a batch says about element i: nil if that
// one succeeded. An error that is no *BatchError concerns every element.
func ErrorAt(err error, i int) error {
	if err == nil {
		return nil
	}
	return driver.At(err, i)
}

// isBatch reports whether err has positions.
func isBatch(err error) bool {
	_, ok := errors.AsType[*BatchError](err)
	return ok
}

// fail returns an error about this mailbox that no backend was asked for.
func (m *Mailbox[T]) fail(op string, code Code, field, detail string) error {
	return &Error{Code: code, Op: op, Queue: m.name, Field: field, Detail: detail}
}

// encodingError wraps what a codec said.
func (m *Mailbox[T]) encodingError(op, id string, cause error) error {
	return &Error{
		Code: ErrEncoding, Op: op, Queue: m.name, MessageID: id,
		Detail: m.codec.ContentType(), Err: cause,
	}
}

// located adds the queue's name to an error that driver's checks just made,
// which do not know it. It must not be used on errors of a backend, which may
// be shared.
func (m *Mailbox[T]) located(err error) error {
	if e, ok := errors.AsType[*Error](err); ok {
		e.Queue = m.name
	}
	return err
}

// ErrorType names the type of an error as dead letters do: with the path of its
// package, such as "*encoding/json.SyntaxError". It is the type of the error that
// matters in a chain; see significant.
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

// significant returns the error that matters in a chain. Wrappers made by fmt and
// errors are passed over: every error that was annotated on its way has those.
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

// causeText is the text of a cause as backends keep it.
func causeText(cause error) string {
	if cause == nil {
		return ""
	}
	return driver.TrimCause(cause.Error())
}
