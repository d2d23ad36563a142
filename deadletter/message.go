package deadletter

import (
	"errors"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/driver"
)

// A Message is a dead letter: a message that failed for good, and what is known
// about the failure.
type Message[T any] struct {
	// MessageID is the id that the message had.
	MessageID string `json:"message_id"`
	Body      T      `json:"body"`
	// Source is the name of the mailbox that it was dead-lettered from.
	Source string         `json:"source_mailbox"`
	Reason mailbox.Reason `json:"reason"`
	// Deliveries is how often it was delivered.
	Deliveries int `json:"delivery_count"`
	// LastError is the text of the last error, and ErrorType the name of its type
	// with its package path. Stack is the stack of a panic, if there was one.
	LastError string `json:"last_error"`
	ErrorType string `json:"last_error_type"`
	Stack     string `json:"stack,omitempty"`
	// The times are UTC. FirstReceivedAt is the time of the first delivery, zero if
	// there was none.
	EnqueuedAt      time.Time `json:"enqueued_at"`
	FirstReceivedAt time.Time `json:"first_received_at"`
	DeadAt          time.Time `json:"dead_lettered_at"`
	// RequestID is the id of the request in the body, if it has one.
	RequestID     string `json:"request_id,omitempty"`
	ReplyTo       string `json:"reply_to,omitempty"`
	CorrelationID string `json:"correlation_id,omitempty"`
	TraceID       string `json:"trace_id,omitempty"`
	Group         string `json:"group,omitempty"`
	// Attributes are those of the message.
	Attributes map[string]string `json:"attributes,omitempty"`
	// Redrives counts how often it was redriven before.
	Redrives int `json:"redrives,omitempty"`
	// Result is the encoded answer of a handler that succeeded and whose answer
	// could not be sent. A backend that keeps dead letters keeps it as part of the
	// last error, if it fits.
	Result []byte `json:"result,omitempty"`

	// DecodeErr says why the body of a dead letter that a backend keeps cannot be
	// decoded. Body is then the zero T, and Raw the encoded body, which must not
	// be changed.
	DecodeErr error  `json:"-"`
	Raw       []byte `json:"-"`
}

// Attributes of a message that was redriven from a mailbox of dead letters. It has
// a new id.
const (
	// attributeRedrives counts how often it was redriven.
	attributeRedrives = "mailbox.dead.redrives"
	// attributeOriginalID is the id that it was first sent with.
	attributeOriginalID = "mailbox.dead.id"
)

// identity returns the key that two dead letters of the same work share.
func (l *Message[T]) identity() string {
	if l.RequestID != "" {
		return "request/" + l.RequestID
	}
	return "message/" + l.Source + "/" + l.firstID()
}

// firstID returns the id that the message was first sent with.
func (l *Message[T]) firstID() string {
	if original := l.Attributes[attributeOriginalID]; original != "" {
		return original
	}
	return l.MessageID
}

// newLetter returns the dead letter of a message that failed with cause now.
func (q *Queue[T]) newLetter(message *mailbox.Message[T], cause error, reason mailbox.Reason) Message[T] {
	letter := Message[T]{
		MessageID: message.ID, Body: message.Body, Source: q.source.Name(), Reason: reason,
		Deliveries: message.Deliveries, LastError: message.LastError,
		EnqueuedAt: message.EnqueuedAt, FirstReceivedAt: message.FirstReceivedAt, DeadAt: time.Now().UTC(),
		ReplyTo: message.ReplyTo, CorrelationID: message.CorrelationID, Group: message.Group,
		Attributes: maps.Clone(message.Attributes),
	}
	if cause != nil {
		letter.LastError, letter.ErrorType = driver.TrimCause(cause.Error()), mailbox.ErrorType(cause)
		if traced, ok := errors.AsType[interface {
			error
			StackTrace() string
		}](cause); ok {
			letter.Stack = traced.StackTrace()
		}
		letter.Result = resultOf(cause)
	}
	q.complete(&letter)
	return letter
}

// keptLetter returns the dead letter for one that the backend keeps.
func (q *Queue[T]) keptLetter(kept *mailbox.DeadLetter[T]) Message[T] {
	letter := Message[T]{
		MessageID: kept.ID, Body: kept.Body, Source: kept.Source, Reason: kept.Reason,
		Deliveries: kept.Deliveries, LastError: kept.LastError, ErrorType: kept.ErrorType,
		EnqueuedAt: kept.EnqueuedAt, FirstReceivedAt: kept.FirstReceivedAt, DeadAt: kept.DeadAt,
		ReplyTo: kept.ReplyTo, CorrelationID: kept.CorrelationID, Group: kept.Group,
		Attributes: kept.Attributes, DecodeErr: kept.DecodeErr,
	}
	if letter.Source == "" {
		letter.Source = q.source.Name()
	}
	q.complete(&letter)
	letter.Redrives += kept.Redrives
	if _, result, found := strings.Cut(kept.LastError, resultMark); found && len(kept.LastError) < driver.MaxCauseBytes {
		letter.Result = []byte(result)
	}
	if kept.DecodeErr != nil {
		letter.Raw = kept.DeadLetter.Body
	}
	return letter
}

// resultMark separates the error from the result in the last error of a dead
// letter that a backend keeps.
const resultMark = "; result: "

// resultOf returns the answer that an error carries, if any.
func resultOf(cause error) []byte {
	carrier, ok := errors.AsType[interface {
		error
		DeadLetterResult() []byte
	}](cause)
	if !ok {
		return nil
	}
	return carrier.DeadLetterResult()
}

// complete sets the fields that follow from the others.
func (q *Queue[T]) complete(letter *Message[T]) {
	switch {
	case letter.DecodeErr != nil:
	case q.requestID != nil:
		letter.RequestID = q.requestID(letter.Body)
	default:
		letter.RequestID = requestID(&letter.Body)
	}
	if q.traceID != nil {
		letter.TraceID = q.traceID(letter.Attributes)
	} else {
		letter.TraceID = traceID(letter.Attributes)
	}
	letter.Redrives = redrives(letter.Attributes)
}

// requestID returns the id that the body's RequestID method returns, if it has one.
func requestID[T any](body *T) string {
	type identified interface{ RequestID() string }
	if request, ok := any(*body).(identified); ok {
		return request.RequestID()
	}
	if request, ok := any(body).(identified); ok {
		return request.RequestID()
	}
	return ""
}

// traceID returns the trace id of a W3C trace context: version-traceid-parent-flags.
func traceID(attributes map[string]string) string {
	const idLength = 32
	parts := strings.Split(attributes["traceparent"], "-")
	if len(parts) < 4 || len(parts[1]) != idLength {
		return ""
	}
	return parts[1]
}

// redrives returns the count of attributeRedrives.
func redrives(attributes map[string]string) int {
	n, err := strconv.Atoi(attributes[attributeRedrives])
	if err != nil || n < 0 {
		return 0
	}
	return n
}
