package deadletter

import (
	"encoding/json"
	"errors"
	"maps"
	"strconv"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/driver"
)

// Codec returns the codec for a mailbox of dead letters whose bodies inner encodes;
// nil means JSON.
//
//	letters, err := mailbox.Open(ctx, backend, "orders-dlq",
//		&mailbox.Options[deadletter.Message[*pb.Order]]{Codec: deadletter.Codec(Proto[pb.Order]())})
//
// Dead letters are JSON. Bodies that inner does not encode as JSON are base64 in
// it. Codec(nil) is compatible with plain JSON, the default of a mailbox.
//
// The codec also reads messages that a backend forwards to another queue
// (driver.Config.DeadLetterTo): their body is unchanged, and what is known about
// the failure is in their attributes.
func Codec[T any](inner mailbox.Codec[T]) mailbox.Codec[Message[T]] {
	if inner == nil {
		inner = mailbox.JSON[T]()
	}
	return letterCodec[T]{inner: inner, isJSON: inner.ContentType() == mailbox.JSON[T]().ContentType()}
}

type letterCodec[T any] struct {
	inner  mailbox.Codec[T]
	isJSON bool
}

var _ mailbox.MessageDecoder[Message[int]] = letterCodec[int]{}

var errNoBody = errors.New("the dead letter has no body")

// envelope is the encoded form of a dead letter, with the body as inner encoded it.
type envelope struct {
	Message[json.RawMessage]
	Encoded []byte `json:"body_base64,omitempty"`
}

func (c letterCodec[T]) ContentType() string { return "application/json" }

func (c letterCodec[T]) Encode(letter Message[T]) ([]byte, error) {
	body, err := c.inner.Encode(letter.Body)
	if err != nil {
		return nil, err
	}
	out := envelope{Message: withBody(letter, json.RawMessage(body))}
	if !c.isJSON {
		out.Message.Body, out.Encoded = nil, body
	}
	return json.Marshal(out)
}

func (c letterCodec[T]) Decode(data []byte) (Message[T], error) {
	var in envelope
	if err := json.Unmarshal(data, &in); err != nil {
		return Message[T]{}, err
	}
	body := in.Encoded
	if c.isJSON {
		body = in.Message.Body
		if len(body) == 0 {
			return Message[T]{}, errNoBody
		}
	}
	decoded, err := c.decodeInner(&driver.Message{
		ID: in.MessageID, Body: body, Attributes: in.Attributes, Group: in.Group,
		ReplyTo: in.ReplyTo, CorrelationID: in.CorrelationID, EnqueuedAt: in.EnqueuedAt,
	})
	if err != nil {
		return Message[T]{}, err
	}
	return withBody(in.Message, decoded), nil
}

// DecodeMessage decodes dead letters, and messages that a backend forwarded.
func (c letterCodec[T]) DecodeMessage(message *driver.Message) (Message[T], error) {
	reason, moved := message.Attributes[driver.AttributeDeadReason]
	if !moved {
		return c.Decode(message.Body)
	}
	body, err := c.decodeInner(message)
	if err != nil {
		return Message[T]{}, err
	}
	// The count is informative: a text that is not a number leaves it at zero.
	deliveries, _ := strconv.Atoi(message.Attributes[driver.AttributeDeadDeliveries])
	letter := Message[T]{
		MessageID: message.ID, Body: body, Source: message.Attributes[driver.AttributeDeadSource],
		Reason: mailbox.Reason(reason), Deliveries: deliveries,
		LastError:  message.Attributes[driver.AttributeDeadError],
		EnqueuedAt: message.EnqueuedAt, FirstReceivedAt: message.FirstReceivedAt,
		RequestID: requestID(&body), ReplyTo: message.ReplyTo, CorrelationID: message.CorrelationID,
		TraceID: traceID(message.Attributes), Group: message.Group,
		Attributes: maps.Clone(message.Attributes), Redrives: redrives(message.Attributes),
	}
	for _, note := range []string{
		driver.AttributeDeadReason, driver.AttributeDeadSource,
		driver.AttributeDeadDeliveries, driver.AttributeDeadError,
	} {
		delete(letter.Attributes, note)
	}
	return letter, nil
}

func (c letterCodec[T]) decodeInner(message *driver.Message) (T, error) {
	if decoder, ok := c.inner.(mailbox.MessageDecoder[T]); ok {
		return decoder.DecodeMessage(message)
	}
	return c.inner.Decode(message.Body)
}

// withBody returns the same dead letter with another body.
func withBody[From, To any](l Message[From], body To) Message[To] {
	return Message[To]{
		MessageID: l.MessageID, Body: body, Source: l.Source, Reason: l.Reason,
		Deliveries: l.Deliveries, LastError: l.LastError, ErrorType: l.ErrorType, Stack: l.Stack,
		EnqueuedAt: l.EnqueuedAt, FirstReceivedAt: l.FirstReceivedAt, DeadAt: l.DeadAt,
		RequestID: l.RequestID, ReplyTo: l.ReplyTo, CorrelationID: l.CorrelationID,
		TraceID: l.TraceID, Group: l.Group, Attributes: l.Attributes, Redrives: l.Redrives, Result: l.Result,
	}
}
