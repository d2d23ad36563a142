package mailbox

import (
	"errors"
	"fmt"
	"strings"

	"github.com/mailboxmq/mailbox/driver"
)

// A FailureKind tells failed requests apart, across processes. Declare the
// kinds that a service has as constants, which are errors to return from a
// worker and sentinels to test for in a client:
//
//	const ErrSoldOut mailbox.FailureKind = "sold out"
//
//	return fmt.Errorf("%w: no %s today", ErrSoldOut, item) // the worker
//
//	if errors.Is(err, ErrSoldOut) { … }                    // the client
type FailureKind string

// Error makes a FailureKind an error.
func (k FailureKind) Error() string { return string(k) }

// A Failure is the error of a request that was answered with one. It has the
// kind and the text of the worker's error, and nothing else of it: the codes of
// this package that the worker met are kinds here, so that a worker that found
// some queue full is not mistaken for a queue of the client's being full.
type Failure struct {
	Kind FailureKind
	Text string
}

// Error returns the text of the worker's error.
func (f *Failure) Error() string { return f.Text }

// Is reports whether target is this failure's kind.
func (f *Failure) Is(target error) bool { return target == error(f.Kind) }

// NewFailure returns cause, which must not be nil, as the client will see it.
// Its kind is the FailureKind that cause is or wraps, or that of a *Failure,
// when a worker passes on what another has answered; otherwise the text of its
// code if it has one; and otherwise the name of its type.
func NewFailure(cause error) *Failure {
	failure := &Failure{Kind: kindOf(cause), Text: causeText(cause)}
	failure.Text = strings.ToValidUTF8(failure.Text, "\uFFFD")
	if failure.Text == "" {
		failure.Text = string(failure.Kind)
	}
	return failure
}

func kindOf(cause error) FailureKind {
	if kind, ok := errors.AsType[FailureKind](cause); ok && kind != "" {
		return kind
	}
	if failure, ok := errors.AsType[*Failure](cause); ok && failure.Kind != "" {
		return failure.Kind
	}
	if e, ok := errors.AsType[*Error](cause); ok && e.Code != "" {
		return FailureKind(e.Code)
	}
	if code, ok := errors.AsType[Code](cause); ok && code != "" {
		return FailureKind(code)
	}
	return FailureKind(fmt.Sprintf("%T", significant(cause)))
}

// attributes mark a reply to a mailbox as this failure.
func (f *Failure) attributes() map[string]string {
	return map[string]string{
		driver.AttributeReplyError: f.Text,
		driver.AttributeReplyKind:  string(f.Kind),
	}
}

// FailureOf returns the failure that a message, sent as a reply to a mailbox,
// carries instead of an answer, and nil if it carries none. Readers of reply
// mailboxes need not call it: package reply does.
func FailureOf(attributes map[string]string) *Failure {
	text, failed := attributes[driver.AttributeReplyError]
	if !failed {
		return nil
	}
	return &Failure{Kind: FailureKind(attributes[driver.AttributeReplyKind]), Text: text}
}
