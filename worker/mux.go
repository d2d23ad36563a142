package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/replyslot"
)

// ErrUnknownKind is the code of the error of a message whose kind a Mux has no handler
// for.
const ErrUnknownKind mailbox.Code = "unknown message kind"

// Work is the body of a message that a Mux has decoded, for hooks, middleware and
// policies that see messages of every kind. A mailbox of Work only receives: send with
// a mailbox of the type of the kind, and mailbox.WithKind.
type Work struct {
	// Kind is the kind of the message, and Value its body, of the type of the kind.
	Kind  string
	Value any
}

// RequestID returns the result of the RequestID method of the value, if it has one, and
// "" otherwise.
func (w Work) RequestID() string {
	if request, ok := w.Value.(interface{ RequestID() string }); ok {
		return request.RequestID()
	}
	return ""
}

// A Mux hands the messages of one queue to a handler for each kind of message, decoded
// with a codec for each kind. The kind of a message is its attribute
// mailbox.AttributeKind:
//
//	mux, err := worker.NewMux(nil,
//		worker.Kind("email", nil, sendEmail),
//		worker.Kind("thumbnail", mailbox.Bytes(), makeThumbnail))
//	jobs, err := mailbox.Open(ctx, backend, "jobs", mux.Options(nil))
//	loop := worker.New(jobs, mux.Handle, nil)
//
// Its methods may be called from many goroutines at once.
type Mux struct {
	kinds   map[string]KindHandler
	unknown mailbox.Disposition
}

// MuxOptions configure a Mux. The zero value, and nil, are the defaults.
type MuxOptions struct {
	// Unknown says what happens to a message whose kind has no handler. The zero value
	// dead-letters it with reason parse. To leave it to other workers, put it back with
	// a delay: {Action: mailbox.PoisonPutBack, Delay: time.Minute}. That does not count as a
	// delivery of the message, except after driver.MaxReleases times in a row; with
	// mailbox.PoisonNack each time counts.
	Unknown mailbox.Disposition
}

// A KindHandler is the handler of one kind of message. Make one with Kind.
type KindHandler struct {
	kind   string
	wrong  string // why it cannot be used
	decode func(message *driver.Message) (any, error)
	encode func(body any) ([]byte, error)
	handle Handler[Work]
}

// Kind returns the handler of the messages of a kind, whose bodies codec decodes; nil
// means JSON. Messages without a kind have the kind "". The message that handler gets is
// the delivery that the loop has: see mailbox.MessageWithBody.
func Kind[T any](kind string, codec mailbox.Codec[T], handler Handler[T]) KindHandler {
	if codec == nil {
		codec = mailbox.JSON[T]()
	}
	h := KindHandler{kind: kind}
	if c, ok := codec.(interface{ SendOnly() bool }); ok && c.SendOnly() {
		h.wrong = "its codec has no decode function"
	}
	if handler == nil {
		h.wrong = "its handler is nil"
	}
	h.decode = func(message *driver.Message) (any, error) { return codec.Decode(message.Body) }
	if decoder, ok := codec.(mailbox.MessageDecoder[T]); ok {
		h.decode = func(message *driver.Message) (any, error) { return decoder.DecodeMessage(message) }
	}
	h.encode = func(value any) ([]byte, error) {
		body, err := valueOf[T](value)
		if err != nil {
			return nil, err
		}
		return codec.Encode(body)
	}
	h.handle = func(ctx context.Context, message *mailbox.Message[Work]) error {
		body, err := valueOf[T](message.Body.Value)
		if err != nil {
			return Permanent(err)
		}
		return handler(ctx, mailbox.MessageWithBody(message, body))
	}
	return h
}

// valueOf returns value as a T. A nil value is what a codec for an interface type has
// decoded.
func valueOf[T any](value any) (T, error) {
	body, ok := value.(T)
	if !ok && value != nil {
		return body, fmt.Errorf("the body is a %T, want a %T", value, body)
	}
	return body, nil
}

// NewMux returns a mux of handlers. The error, ErrInvalid, names the kind that cannot be
// used.
func NewMux(options *MuxOptions, handlers ...KindHandler) (*Mux, error) {
	m := &Mux{kinds: make(map[string]KindHandler, len(handlers))}
	if options != nil {
		m.unknown = options.Unknown
	}
	invalid := func(field, detail string) error {
		return &mailbox.Error{Code: mailbox.ErrInvalid, Op: "mux", Field: field, Detail: detail}
	}
	switch action := m.unknown.Action; action {
	case mailbox.PoisonDeadLetter, mailbox.PoisonNack, mailbox.PoisonPutBack, mailbox.PoisonAck:
	default:
		return nil, invalid("Unknown", fmt.Sprintf("invalid action %q; want %q, %q, %q or %q",
			action, mailbox.PoisonDeadLetter, mailbox.PoisonNack, mailbox.PoisonPutBack, mailbox.PoisonAck))
	}
	if len(handlers) == 0 {
		return nil, invalid("handlers", "is empty")
	}
	for _, h := range handlers {
		if _, twice := m.kinds[h.kind]; twice {
			h.wrong = "has two handlers"
		}
		if h.handle == nil {
			h.wrong = "was not made with worker.Kind"
		}
		if h.wrong != "" {
			return nil, invalid(fmt.Sprintf("kind %q", h.kind), h.wrong)
		}
		m.kinds[h.kind] = h
	}
	return m, nil
}

// Options returns the options of a mailbox for this mux: those of base, which may be
// nil, with the codec of the mux. Messages of unknown kinds are treated as
// MuxOptions.Unknown says, and other undecodable ones as base.Poison does.
func (m *Mux) Options(base *mailbox.Options[Work]) *mailbox.Options[Work] {
	var options mailbox.Options[Work]
	if base != nil {
		options = *base
	}
	poison := options.Poison
	options.Codec = m.Codec()
	options.Poison = func(ctx context.Context, delivery driver.Delivery, err error) mailbox.Disposition {
		switch {
		case errors.Is(err, ErrUnknownKind):
			return m.unknown
		case poison != nil:
			return poison(ctx, delivery, err)
		}
		return mailbox.Disposition{}
	}
	return &options
}

// Codec returns the codec of the mux. Options has it already; a mailbox of dead letters
// takes deadletter.Codec(mux.Codec()).
func (m *Mux) Codec() mailbox.Codec[Work] { return muxCodec{m} }

// Handle calls the handler of the message's kind. It is the handler of a loop on a
// mailbox that was opened with Options.
func (m *Mux) Handle(ctx context.Context, message *mailbox.Message[Work]) error {
	h, ok := m.kinds[message.Body.Kind]
	if !ok {
		return Permanent(m.unknownKind(message.Body.Kind))
	}
	return h.handle(ctx, message)
}

// unknownKind returns the error of a kind without a handler.
func (m *Mux) unknownKind(kind string) error {
	kinds := slices.Sorted(maps.Keys(m.kinds))
	for i := range kinds {
		kinds[i] = fmt.Sprintf("%q", kinds[i])
	}
	return &mailbox.Error{
		Code: ErrUnknownKind, Op: "decode", Field: mailbox.AttributeKind,
		Detail: fmt.Sprintf("%q has no handler here; want %s", kind, strings.Join(kinds, ", ")),
	}
}

// muxCodec decodes by the kind of a message, and encodes by that of the body.
type muxCodec struct{ mux *Mux }

var (
	_ mailbox.MessageDecoder[Work] = muxCodec{}

	errNoKind = errors.New("the kind of a message is in its attributes, and a body alone has none")
	errReply  = errors.New("message is a reply, which only the codec of package reply decodes")
)

func (muxCodec) ContentType() string { return "application/octet-stream" }

func (c muxCodec) Encode(body Work) ([]byte, error) {
	h, ok := c.mux.kinds[body.Kind]
	if !ok {
		return nil, c.mux.unknownKind(body.Kind)
	}
	return h.encode(body.Value)
}

// Decode refuses every body: see DecodeMessage.
func (muxCodec) Decode([]byte) (Work, error) { return Work{}, errNoKind }

// DecodeMessage decodes a message by its kind.
func (c muxCodec) DecodeMessage(message *driver.Message) (Work, error) {
	kind := message.Attributes[mailbox.AttributeKind]
	h, ok := c.mux.kinds[kind]
	if !ok {
		return Work{}, c.mux.unknownKind(kind)
	}
	// A codec that accepts an empty body would return a value for these replies.
	if _, end := message.Attributes[replyslot.AttributeEnd]; end || mailbox.FailureOf(message.Attributes) != nil {
		return Work{}, errReply
	}
	value, err := h.decode(message)
	if err != nil {
		return Work{}, err
	}
	return Work{kind, value}, nil
}
