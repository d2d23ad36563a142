package mailbox

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"
	"unicode/utf8"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/replyslot"
)

// A Codec turns bodies into bytes and back. It must be safe for concurrent use. Decode
// must neither keep nor change data, which is shared, and must refuse data that Encode
// would not have written: otherwise the receiver gets a wrong value. A panic of Decode
// counts as a refusal.
type Codec[T any] interface {
	Encode(body T) ([]byte, error)
	Decode(data []byte) (T, error)
	// ContentType names the encoding, such as "application/json". It appears
	// in errors and logs.
	ContentType() string
}

// JSON encodes with encoding/json. It is the default. Encoding refuses strings
// that are not valid UTF-8, which encoding/json would change. Decoding refuses
// anything after the value, and ignores fields that T does not have, so that
// producers can add fields before consumers know them.
func JSON[T any]() Codec[T] { return jsonCodec[T]{} }

type jsonCodec[T any] struct{}

func (jsonCodec[T]) Encode(body T) ([]byte, error) {
	data, err := json.Marshal(body)
	if err == nil && bytes.Contains(data, replaced) {
		err = checkUTF8(reflect.ValueOf(body))
	}
	if err != nil {
		return nil, err
	}
	return data, nil
}

func (jsonCodec[T]) Decode(data []byte) (T, error) {
	var body T
	err := json.Unmarshal(data, &body)
	return body, err
}

func (jsonCodec[T]) ContentType() string { return "application/json" }

// Bytes passes bodies through unchanged. The receiver owns the body that it receives.
func Bytes() Codec[[]byte] { return bytesCodec{} }

type bytesCodec struct{}

func (bytesCodec) Encode(body []byte) ([]byte, error) { return body, nil }

func (bytesCodec) Decode(data []byte) ([]byte, error) { return bytes.Clone(data), nil }

func (bytesCodec) ContentType() string { return "application/octet-stream" }

// String encodes strings as their bytes, which need not be UTF-8.
func String() Codec[string] { return stringCodec{} }

type stringCodec struct{}

func (stringCodec) Encode(body string) ([]byte, error) { return []byte(body), nil }

func (stringCodec) Decode(data []byte) (string, error) { return string(data), nil }

func (stringCodec) ContentType() string { return "text/plain; charset=utf-8" }

// Text encodes with a type's own MarshalText and UnmarshalText; the second
// type parameter is inferred:
//
//	mailbox.Text[netip.Addr]()
func Text[T any, P interface {
	*T
	encoding.TextMarshaler
	encoding.TextUnmarshaler
}]() Codec[T] {

	return CodecFunc("text/plain; charset=utf-8",
		func(body T) ([]byte, error) { return P(&body).MarshalText() },
		func(data []byte) (body T, err error) {
			err = P(&body).UnmarshalText(data)
			return body, err
		})
}

// Binary encodes with a type's own MarshalBinary and UnmarshalBinary; the
// second type parameter is inferred:
//
//	mailbox.Binary[time.Time]()
func Binary[T any, P interface {
	*T
	encoding.BinaryMarshaler
	encoding.BinaryUnmarshaler
}]() Codec[T] {

	return CodecFunc("application/octet-stream",
		func(body T) ([]byte, error) { return P(&body).MarshalBinary() },
		func(data []byte) (body T, err error) {
			err = P(&body).UnmarshalBinary(data)
			return body, err
		})
}

// CodecFunc makes a codec of two functions. A mailbox that only sends needs no decode,
// and one that only receives needs no encode: without decode, Receive returns ErrInvalid,
// and without encode, Send returns ErrEncoding.
//
// A codec for protocol buffers:
//
//	func Proto[M any, P interface{ *M; proto.Message }]() mailbox.Codec[P] {
//		return mailbox.CodecFunc("application/protobuf",
//			func(body P) ([]byte, error) { return proto.Marshal(body) },
//			func(data []byte) (P, error) {
//				body := P(new(M))
//				return body, proto.Unmarshal(data, body)
//			})
//	}
//
//	orders, err := mailbox.Open(ctx, backend, "orders",
//		&mailbox.Options[*pb.Order]{Codec: Proto[pb.Order]()})
func CodecFunc[T any](contentType string, encode func(T) ([]byte, error), decode func([]byte) (T, error)) Codec[T] {
	return funcCodec[T]{contentType, encode, decode}
}

type funcCodec[T any] struct {
	contentType string
	encode      func(T) ([]byte, error)
	decode      func([]byte) (T, error)
}

var (
	errNoEncode = errors.New("this codec has no encode function")
	errNoDecode = errors.New("this codec has no decode function")
)

func (c funcCodec[T]) Encode(body T) ([]byte, error) {
	if c.encode == nil {
		return nil, errNoEncode
	}
	return c.encode(body)
}

func (c funcCodec[T]) Decode(data []byte) (T, error) {
	if c.decode == nil {
		var none T
		return none, errNoDecode
	}
	return c.decode(data)
}

func (c funcCodec[T]) ContentType() string { return c.contentType }

// SendOnly implements the interface of the function sendOnly.
func (c funcCodec[T]) SendOnly() bool { return c.decode == nil }

// sendOnly reports whether codec has no way to decode. A mailbox with such a
// codec must not receive at all: it would take every message for poison and
// move the whole queue to the dead letters.
func sendOnly[T any](codec Codec[T]) bool {
	c, ok := codec.(interface{ SendOnly() bool })
	return ok && c.SendOnly()
}

// A MessageDecoder is a Codec that decodes by more than the body, for example by an
// attribute with a version. A mailbox whose Codec is a MessageDecoder calls
// DecodeMessage instead of Decode. It must neither keep nor change the message, which is
// shared.
type MessageDecoder[T any] interface {
	DecodeMessage(message *driver.Message) (T, error)
}

// decode returns the body of a message. A panic of the codec becomes an error, so that
// one bad message does not stop every receiver.
func (m *Mailbox[T]) decode(message *driver.Message) (body T, err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &panicError{value: value, stack: debug.Stack()}
		}
	}()
	if m.decoder != nil {
		return m.decoder.DecodeMessage(message)
	}
	if len(message.Attributes) > 0 {
		if err := noAnswer(message.Attributes); err != nil {
			return body, err
		}
	}
	return m.codec.Decode(message.Body)
}

// noAnswer returns an error for replies that are errors or the end of a stream. A codec
// that accepts an empty body would otherwise return a value for them.
func noAnswer(attributes map[string]string) error {
	if failure := FailureOf(attributes); failure != nil {
		return fmt.Errorf("message is an error reply, which only the codec of package reply decodes: %w", failure)
	}
	if _, end := attributes[replyslot.AttributeEnd]; end {
		return errEndOfStream
	}
	return nil
}

var errEndOfStream = errors.New("message is the end of a stream of replies, which only the codec of package reply decodes")

// A panicError is the panic of a codec.
type panicError struct {
	value any
	stack []byte
}

// Error returns the text of the panic.
func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }

// Unwrap returns the value of the panic if it is an error.
func (e *panicError) Unwrap() error {
	err, _ := e.value.(error)
	return err
}

// replaced is what encoding/json writes for a byte that is not UTF-8. It writes a U+FFFD
// of a string as the character itself, so a body without this escape was not changed.
var replaced = []byte(`\ufffd`)

// checkUTF8 returns an error if encoding/json changes a string in v. It is called for
// bodies that contain the escape, which a type with its own encoding, or a string with
// backslashes, may do legitimately.
func checkUTF8(v reflect.Value) error {
	if !v.IsValid() {
		return nil
	}
	if v.CanInterface() {
		encoder := v.Interface()
		if v.CanAddr() { // then encoding/json uses methods of the pointer too
			encoder = v.Addr().Interface()
		}
		switch own := encoder.(type) {
		case json.Marshaler:
			return nil // its output is copied
		case encoding.TextMarshaler:
			if v.Kind() == reflect.Pointer && v.IsNil() {
				return nil
			}
			text, err := own.MarshalText()
			if err != nil {
				return err
			}
			return checkText(string(text))
		}
	}
	switch v.Kind() {
	case reflect.String:
		return checkText(v.String())
	case reflect.Pointer, reflect.Interface:
		return checkUTF8(v.Elem())
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return nil // base64
		}
		for i := range v.Len() {
			if err := checkUTF8(v.Index(i)); err != nil {
				return fmt.Errorf("element %d: %w", i, err)
			}
		}
	case reflect.Map:
		for key, value := range v.Seq2() {
			if err := checkUTF8(key); err != nil {
				return fmt.Errorf("a key: %w", err)
			}
			if err := checkUTF8(value); err != nil {
				return fmt.Errorf("key %v: %w", key, err)
			}
		}
	case reflect.Struct:
		return checkFields(v)
	}
	return nil
}

// checkFields is checkUTF8 for the encoded fields of a struct.
func checkFields(v reflect.Value) error {
	for i := range v.NumField() {
		field := v.Type().Field(i)
		if !field.IsExported() && !field.Anonymous || field.Tag.Get("json") == "-" {
			continue
		}
		if err := checkUTF8(v.Field(i)); err != nil {
			return fmt.Errorf("%s: %w", field.Name, err)
		}
	}
	return nil
}

func checkText(text string) error {
	if !utf8.ValidString(text) {
		return fmt.Errorf("string %q is not valid UTF-8", text)
	}
	return nil
}
