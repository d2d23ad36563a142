package mailbox

import (
	"errors"
	"fmt"
	"strings"

	"github.com/mailboxmq/mailbox/internal/replyslot"
)

// A FailureKind is the kind of a failed request, across processes. Declare the kinds of
// a service as constants: workers return them as errors, and clients test for them:
//
//	const ErrSoldOut mailbox.FailureKind = "sold out"
//
//	return fmt.Errorf("%w: no %s today", ErrSoldOut, item) // the worker
//
//	if errors.Is(err, ErrSoldOut) { … }                    // the client
type FailureKind string

// Error makes a FailureKind an error.
func (k FailureKind) Error() string { return string(k) }

// A Failure is the error of a request that was answered with an error. It has only the
// kind and the text of the worker's error. A Code of this package becomes a kind, so that
// a full queue of the worker is not taken for a full queue of the client.
type Failure struct {
	Kind FailureKind
	Text string
}

// Error returns the text of the worker's error.
func (f *Failure) Error() string { return f.Text }

// Is reports whether target is this failure's kind.
func (f *Failure) Is(target error) bool { return target == error(f.Kind) }

// NewFailure returns the Failure that the client gets for cause, which must not be nil.
// Its kind is the first that cause has of: a FailureKind that it is or wraps; the kind of
// a *Failure, which another worker has answered; its Code; the name of its type.
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

// attributes returns the attributes of a reply to a mailbox that is this failure.
func (f *Failure) attributes() map[string]string {
	return map[string]string{
		replyslot.AttributeError: f.Text,
		replyslot.AttributeKind:  string(f.Kind),
	}
}

// FailureOf returns the failure in the attributes of a reply to a mailbox, or nil if the
// reply is an answer. Package reply calls it for its users.
func FailureOf(attributes map[string]string) *Failure {
	text, failed := attributes[replyslot.AttributeError]
	if !failed {
		return nil
	}
	return &Failure{Kind: FailureKind(attributes[replyslot.AttributeKind]), Text: text}
}
