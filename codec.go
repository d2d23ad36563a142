package mailbox

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"reflect"
)

// A Codec turns bodies into bytes and back. It must be safe for concurrent
// use. Decode must neither keep nor change data, which it shares with others,
// and must refuse what Encode would not have written: a body it accepts by
// mistake reaches the receiver as a wrong value. A Decode that panics has refused.
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

// Bytes passes bodies through as they are. A received body is the receiver's
// own copy.
func Bytes() Codec[[]byte] { return bytesCodec{} }

type bytesCodec struct{}

func (bytesCodec) Encode(body []byte) ([]byte, error) { return body, nil }
func (bytesCodec) Decode(data []byte) ([]byte, error) { return bytes.Clone(data), nil }
func (bytesCodec) ContentType() string                { return "application/octet-stream" }

// String carries strings as their bytes, whatever these are.
func String() Codec[string] { return stringCodec{} }

type stringCodec struct{}

func (stringCodec) Encode(body string) ([]byte, error) { return []byte(body), nil }
func (stringCodec) Decode(data []byte) (string, error) { return string(data), nil }
func (stringCodec) ContentType() string                { return "text/plain; charset=utf-8" }

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

// CodecFunc makes a codec of two functions. A mailbox that only sends needs no
// decode, and one that only receives no encode: with nil there, receiving is
// refused with ErrInvalid and sending with ErrEncoding.
//
// This is all that protocol buffers take:
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

// sendOnly reports whether codec has no way to decode. A mailbox with such a
// codec must not receive at all: it would take every message for poison and
// move the whole queue to the dead letters.
func sendOnly[T any](codec Codec[T]) bool {
	c, ok := codec.(funcCodec[T])
	return ok && c.decode == nil
}
