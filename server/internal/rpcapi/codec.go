package rpcapi

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/spelling"
)

// The names that the library has for codecs.
const (
	codecBinary      = "proto"
	codecJSON        = "json"
	codecJSONCharset = "json; charset=utf-8"
)

// The codecs read strictly. They do not fail for an invalid request, because the
// library would answer with an error without the documented details. They return an
// empty request with a flaw, which the interceptor refuses.

// binaryCodec is binary Protobuf.
type binaryCodec struct{}

func (binaryCodec) Name() string { return codecBinary }

func (binaryCodec) Marshal(message any) ([]byte, error) {
	return proto.Marshal(message.(proto.Message))
}

func (binaryCodec) MarshalAppend(b []byte, message any) ([]byte, error) {
	return proto.MarshalOptions{}.MarshalAppend(b, message.(proto.Message))
}

func (binaryCodec) Unmarshal(data []byte, message any) error {
	m := message.(proto.Message)
	if err := proto.Unmarshal(data, m); err != nil {
		spoil(m, plain(err))
		return nil
	}
	if number, found := unknownField(m.ProtoReflect()); found {
		spoil(m, "there is no field "+number)
	}
	return nil
}

// jsonCodec is Protobuf in JSON, with the field names of the proto files.
type jsonCodec struct{ name string }

func (c jsonCodec) Name() string { return c.name }

func (c jsonCodec) Marshal(message any) ([]byte, error) { return c.MarshalAppend(nil, message) }

func (jsonCodec) MarshalAppend(b []byte, message any) ([]byte, error) {
	options := protojson.MarshalOptions{UseProtoNames: true}
	return options.MarshalAppend(b, message.(proto.Message))
}

func (jsonCodec) Unmarshal(data []byte, message any) error {
	m := message.(proto.Message)
	if len(data) == 0 {
		spoil(m, "is empty: a JSON object is needed, {} at least")
		return nil
	}
	// It refuses unknown and repeated fields, wrong types and trailing data.
	if err := protojson.Unmarshal(data, m); err != nil {
		spoil(m, withSuggestion(plain(err), m.ProtoReflect().Descriptor()))
	}
	return nil
}

var unknownName = regexp.MustCompile(`unknown field "([^"]*)"`)

// withSuggestion adds to an error about an unknown field which field was likely meant.
func withSuggestion(text string, m protoreflect.MessageDescriptor) string {
	found := unknownName.FindStringSubmatch(text)
	if found == nil {
		return text
	}
	names := fieldNames(m)
	for i := range m.Fields().Len() {
		if inside := m.Fields().Get(i).Message(); inside != nil {
			names = append(names, fieldNames(inside)...)
		}
	}
	if near := spelling.Nearest(found[1], names); near != "" {
		return text + fmt.Sprintf("; did you mean %q?", near)
	}
	return text
}

func fieldNames(m protoreflect.MessageDescriptor) []string {
	names := make([]string, m.Fields().Len())
	for i := range names {
		names[i] = string(m.Fields().Get(i).Name())
	}
	return names
}

// plain returns the text of an error of the library without its prefix. The space after
// the colon may be a no-break space.
func plain(err error) string {
	text := strings.ReplaceAll(err.Error(), "\u00a0", " ")
	return strings.TrimPrefix(text, "proto: ")
}

// unknownField returns the number of an unknown field of the message or of a message
// inside it.
func unknownField(m protoreflect.Message) (number string, found bool) {
	if unknown := m.GetUnknown(); len(unknown) > 0 {
		n, _, _ := protowire.ConsumeTag(unknown)
		return fieldNumber(n, m), true
	}
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case field.Message() == nil || field.IsMap(): // all maps hold texts
		case field.IsList():
			list := value.List()
			for i := 0; i < list.Len() && !found; i++ {
				number, found = unknownField(list.Get(i).Message())
			}
		default:
			number, found = unknownField(value.Message())
		}
		return !found
	})
	return number, found
}

func fieldNumber(n protowire.Number, m protoreflect.Message) string {
	return strconv.Itoa(int(n)) + " in " + string(m.Descriptor().Name())
}

// flawField is the unknown field that holds the flaw of an invalid request. No message
// has such a field, and the codecs refuse unknown fields, so a client cannot set it.
const flawField = protowire.MaxValidNumber

// spoil empties a request and stores the flaw in it.
func spoil(m proto.Message, flaw string) {
	proto.Reset(m)
	unknown := protowire.AppendTag(nil, flawField, protowire.BytesType)
	m.ProtoReflect().SetUnknown(protowire.AppendString(unknown, strings.ToValidUTF8(flaw, "?")))
}

// flawOf returns ErrInvalid for a spoiled request, and nil for others.
func flawOf(message any) error {
	m, ok := message.(proto.Message)
	if !ok {
		return nil
	}
	unknown := m.ProtoReflect().GetUnknown()
	if len(unknown) == 0 {
		return nil
	}
	_, _, tag := protowire.ConsumeTag(unknown)
	if tag < 0 {
		return schemaError("body", "cannot be read")
	}
	flaw, _ := protowire.ConsumeString(unknown[tag:])
	return &driver.Error{Code: driver.ErrInvalid, Op: "read", Field: "body", Detail: flaw}
}
