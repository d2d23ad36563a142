package deadletter

import (
	"encoding/json"
	"errors"
	"maps"
	"strconv"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/driver"
)

// Codec returns the codec for a mailbox of letters whose bodies inner encodes;
// nil means JSON.
//
//	letters, err := mailbox.Open(ctx, backend, "orders-dlq",
//		&mailbox.Options[deadletter.Letter[*pb.Order]]{Codec: deadletter.Codec(Proto[pb.Order]())})
//
// Letters are JSON. Bodies that inner does not encode as JSON are in it as
// base64. A mailbox without this codec, whose letters are plain JSON, and one
// with Codec(nil) understand each other.
//
// The codec also reads what a backend sends to another queue by itself
// (driver.Config.DeadLetterTo): there the message is as it was, and what is
// known about its death is in its attributes.
func Codec[T any](inner mailbox.Codec[T]) mailbox.Codec[Letter[T]] {
	if inner == nil {
		inner = mailbox.JSON[T]()
	}
	return letterCodec[T]{inner: inner, isJSON: inner.ContentType() == mailbox.JSON[T]().ContentType()}
}

type letterCodec[T any] struct {
	inner  mailbox.Codec[T]
	isJSON bool
}

var _ mailbox.MessageDecoder[Letter[int]] = letterCodec[int]{}

var errNoBody = errors.New("this letter has no body")

// envelope is a letter on its way: what is known about it, and the body as inner
// has encoded it.
type envelope struct {
	Letter[json.RawMessage]
	Encoded []byte `json:"body_base64,omitempty"`
}

func (c letterCodec[T]) ContentType() string { return "application/json" }

func (c letterCodec[T]) Encode(letter Letter[T]) ([]byte, error) {
	body, err := c.inner.Encode(letter.Body)
	if err != nil {
		return nil, err
	}
	out := envelope{Letter: withBody(letter, json.RawMessage(body))}
	if !c.isJSON {
		out.Letter.Body, out.Encoded = nil, body
	}
	return json.Marshal(out)
}

func (c letterCodec[T]) Decode(data []byte) (Letter[T], error) {
	var in envelope
	if err := json.Unmarshal(data, &in); err != nil {
		return Letter[T]{}, err
	}
	body := in.Encoded
	if c.isJSON {
		body = in.Letter.Body
		if len(body) == 0 {
			return Letter[T]{}, errNoBody
		}
	}
	decoded, err := c.inner.Decode(body)
	if err != nil {
		return Letter[T]{}, err
	}
	return withBody(in.Letter, decoded), nil
}

// DecodeMessage tells letters from messages that a backend has moved.
func (c letterCodec[T]) DecodeMessage(message *driver.Message) (Letter[T], error) {
	reason, moved := message.Attributes[driver.AttributeDeadReason]
	if !moved {
		return c.Decode(message.Body)
	}
	body, err := c.decodeInner(message)
	if err != nil {
		return Letter[T]{}, err
	}
	// It is for people. A text that is no number leaves it at zero.
	deliveries, _ := strconv.Atoi(message.Attributes[driver.AttributeDeadDeliveries])
	letter := Letter[T]{
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

// withBody is the same letter with another body.
func withBody[From, To any](l Letter[From], body To) Letter[To] {
	return Letter[To]{
		MessageID: l.MessageID, Body: body, Source: l.Source, Reason: l.Reason,
		Deliveries: l.Deliveries, LastError: l.LastError, ErrorType: l.ErrorType, Stack: l.Stack,
		EnqueuedAt: l.EnqueuedAt, FirstReceivedAt: l.FirstReceivedAt, DeadAt: l.DeadAt,
		RequestID: l.RequestID, ReplyTo: l.ReplyTo, CorrelationID: l.CorrelationID,
		TraceID: l.TraceID, Group: l.Group, Attributes: l.Attributes, Redrives: l.Redrives, Result: l.Result,
	}
}
