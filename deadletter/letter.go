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

// A Letter is a message that failed for good, and what is known about it.
type Letter[T any] struct {
	// MessageID is the id that the message had.
	MessageID string `json:"message_id"`
	Body      T      `json:"body"`
	// Source is the name of the mailbox it died in.
	Source string         `json:"source_mailbox"`
	Reason mailbox.Reason `json:"reason"`
	// Deliveries is how often it was tried.
	Deliveries int `json:"delivery_count"`
	// LastError is the text of the error it died of, and ErrorType the name of
	// its type, with the path of its package. Stack is where it panicked, if it did.
	LastError string `json:"last_error"`
	ErrorType string `json:"last_error_type"`
	Stack     string `json:"stack,omitempty"`
	// The times are UTC. FirstReceivedAt is that of the true first delivery, and
	// zero if there was none.
	EnqueuedAt      time.Time `json:"enqueued_at"`
	FirstReceivedAt time.Time `json:"first_received_at"`
	DeadAt          time.Time `json:"dead_lettered_at"`
	// RequestID is the id of the request that the body is, if it is one.
	RequestID     string `json:"request_id,omitempty"`
	ReplyTo       string `json:"reply_to,omitempty"`
	CorrelationID string `json:"correlation_id,omitempty"`
	TraceID       string `json:"trace_id,omitempty"`
	Group         string `json:"group,omitempty"`
	// Attributes are those of the message.
	Attributes map[string]string `json:"attributes,omitempty"`
	// Redrives counts how often it was dead before and sent back.
	Redrives int `json:"redrives,omitempty"`
	// Result is the encoded answer of work that succeeded and whose answer could
	// not be sent. If the backend keeps the letter, Result is there only if it
	// fits into the last error, of which it is a part then.
	Result []byte `json:"result,omitempty"`

	// DecodeErr says why the body of a letter that a backend keeps cannot be
	// decoded. Body is the zero T then, and Raw the encoded body, which must not
	// be changed.
	DecodeErr error  `json:"-"`
	Raw       []byte `json:"-"`
}

// Attributes of a message that was sent back from a mailbox of letters, where it
// gets a new id.
const (
	// AttributeRedrives counts how often it was sent back.
	AttributeRedrives = "mailbox.dead.redrives"
	// AttributeOriginalID is the id that it was first sent with.
	AttributeOriginalID = "mailbox.dead.id"
)

// identity is what two letters of the same work have in common.
func (l *Letter[T]) identity() string {
	if l.RequestID != "" {
		return "request/" + l.RequestID
	}
	return "message/" + l.Source + "/" + l.firstID()
}

// firstID is the id that the message was first sent with.
func (l *Letter[T]) firstID() string {
	if original := l.Attributes[AttributeOriginalID]; original != "" {
		return original
	}
	return l.MessageID
}

// newLetter is the letter of a message that died of cause just now.
func (b *Box[T]) newLetter(message *mailbox.Message[T], cause error, reason mailbox.Reason) Letter[T] {
	letter := Letter[T]{
		MessageID: message.ID, Body: message.Body, Source: b.source.Name(), Reason: reason,
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
	b.complete(&letter)
	return letter
}

// keptLetter is the letter of a message that the backend keeps.
func (b *Box[T]) keptLetter(kept *mailbox.DeadLetter[T]) Letter[T] {
	letter := Letter[T]{
		MessageID: kept.ID, Body: kept.Body, Source: kept.Source, Reason: kept.Reason,
		Deliveries: kept.Deliveries, LastError: kept.LastError, ErrorType: kept.ErrorType,
		EnqueuedAt: kept.EnqueuedAt, FirstReceivedAt: kept.FirstReceivedAt, DeadAt: kept.DeadAt,
		ReplyTo: kept.ReplyTo, CorrelationID: kept.CorrelationID, Group: kept.Group,
		Attributes: kept.Attributes, DecodeErr: kept.DecodeErr,
	}
	if letter.Source == "" {
		letter.Source = b.source.Name()
	}
	b.complete(&letter)
	letter.Redrives += kept.Redrives
	if _, result, found := strings.Cut(kept.LastError, resultMark); found && len(kept.LastError) < driver.MaxCauseBytes {
		letter.Result = []byte(result)
	}
	if kept.DecodeErr != nil {
		letter.Raw = kept.DeadLetter.Body
	}
	return letter
}

// resultMark separates the error from the result in the last error of a letter
// that a backend keeps.
const resultMark = "; result: "

// resultOf returns the answer that goes with the cause of a death, if there is
// one.
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

// complete sets what follows from the rest of the letter.
func (b *Box[T]) complete(letter *Letter[T]) {
	switch {
	case letter.DecodeErr != nil:
	case b.requestID != nil:
		letter.RequestID = b.requestID(letter.Body)
	default:
		letter.RequestID = requestID(&letter.Body)
	}
	if b.traceID != nil {
		letter.TraceID = b.traceID(letter.Attributes)
	} else {
		letter.TraceID = traceID(letter.Attributes)
	}
	letter.Redrives = redrives(letter.Attributes)
}

// requestID asks the body, if it knows.
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

// traceID is the trace id of a W3C trace context: version-traceid-parent-flags.
func traceID(attributes map[string]string) string {
	const idLength = 32
	parts := strings.Split(attributes["traceparent"], "-")
	if len(parts) < 4 || len(parts[1]) != idLength {
		return ""
	}
	return parts[1]
}

// redrives is how often attributes say that a message was sent back.
func redrives(attributes map[string]string) int {
	n, err := strconv.Atoi(attributes[AttributeRedrives])
	if err != nil || n < 0 {
		return 0
	}
	return n
}
