package sqsapi

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"maps"
	"math/bits"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/oklog/ulid/v2"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/server/internal/broker"
	"github.com/mailboxmq/mailbox/server/internal/sqsapi/sqswire"
)

const (
	// hiddenAttribute holds what only SQS clients see of a message.
	hiddenAttribute = "mailbox.sqs"
	// reservedPrefix begins attributes of the daemon.
	reservedPrefix = "mailbox."
	// encodingAttribute tells that a body is in base64 because it is not text.
	encodingAttribute = "mailbox.encoding"
)

// typed are the attributes of a message with their SQS types.
type typed = map[string]sqswire.MessageAttributeValue

// hidden is the content of the hidden attribute.
type hidden struct {
	// Types are the types of attributes that are not plain strings.
	Types map[string]string `json:"t,omitempty"`
	// Reserved are attributes whose names would clash with those of the daemon,
	// each with type and value.
	Reserved map[string][2]string `json:"r,omitempty"`
	// Trace is the AWSTraceHeader, and Dedup the MessageDeduplicationId if it differs
	// from the dedup key of the message.
	Trace string `json:"x,omitempty"`
	Dedup string `json:"d,omitempty"`
	// Length is that of the body if attributes are appended to it.
	Length *int `json:"n,omitempty"`
}

func (h *hidden) empty() bool {
	return len(h.Types) == 0 && len(h.Reserved) == 0 && h.Trace == "" && h.Dedup == "" && h.Length == nil
}

func (h *hidden) encode() (string, error) {
	if h.empty() {
		return "", nil
	}
	text, err := json.Marshal(h)
	return string(text), err
}

// wrap encodes body and typed attributes into a message of the driver. Strings become
// plain attributes, which consumers of other surfaces see.
func wrap(out *driver.Outgoing, body string, attributes typed, h hidden) error {
	if len(attributes) == 0 && h.empty() {
		out.Body = []byte(body)
		return nil
	}
	small := h // without the additions of the attributes
	plain := make(map[string]string, len(attributes)+1)
	size := 0
	for name, value := range attributes {
		text := attributeText(&value)
		switch {
		case strings.HasPrefix(name, reservedPrefix):
			if h.Reserved == nil {
				h.Reserved = make(map[string][2]string)
			}
			h.Reserved[name] = [2]string{value.DataType, text}
			continue
		case value.DataType != sqswire.TypeString:
			if h.Types == nil {
				h.Types = make(map[string]string)
			}
			h.Types[name] = value.DataType
		}
		plain[name] = text
		size += len(name) + len(text)
	}
	text, err := h.encode()
	if err != nil {
		return err
	}
	if size+len(hiddenAttribute)+len(text) > broker.MaxAttributeBytes {
		length := len(body)
		small.Length = &length
		if text, err = small.encode(); err != nil {
			return err
		}
		out.Body, out.Attributes = pack(body, attributes), map[string]string{hiddenAttribute: text}
		return nil
	}
	if text != "" {
		plain[hiddenAttribute] = text
	}
	out.Body, out.Attributes = []byte(body), plain
	return nil
}

func attributeText(v *sqswire.MessageAttributeValue) string {
	if v.Kind() == sqswire.TypeBinary {
		return base64.StdEncoding.EncodeToString(v.BinaryValue)
	}
	if v.StringValue == nil {
		return ""
	}
	return *v.StringValue
}

// A decodedMessage is a message with the body and attributes for SQS clients.
type decodedMessage struct {
	body   string
	hidden hidden
	plain  map[string]string
	packed typed // used instead of plain if attributes were appended to the body
}

// unwrap reverses wrap. A message of another surface has its attributes as strings; a
// body that SQS does not allow is returned in base64.
func unwrap(m *driver.Message) decodedMessage {
	p := decodedMessage{plain: m.Attributes}
	if text, ok := m.Attributes[hiddenAttribute]; ok && json.Unmarshal([]byte(text), &p.hidden) != nil {
		p.hidden = hidden{} // wrap did not write it
	}
	body := m.Body
	if n := p.hidden.Length; n != nil && *n >= 0 && *n <= len(body) {
		if attributes, ok := unpack(body[*n:]); ok {
			body, p.plain, p.packed = body[:*n], nil, attributes
		}
	}
	p.body = string(body)
	if !utf8.ValidString(p.body) || sqswire.CheckBody(p.body) != nil {
		p.body = base64.StdEncoding.EncodeToString(body)
		reserved := maps.Clone(p.hidden.Reserved)
		if reserved == nil {
			reserved = make(map[string][2]string)
		}
		reserved[encodingAttribute] = [2]string{sqswire.TypeString, "base64"}
		p.hidden.Reserved = reserved
	}
	return p
}

// attributes returns the typed attributes that a filter chooses.
func (p *decodedMessage) attributes(filter sqswire.Filter) typed {
	if filter.Empty() || len(p.plain) == 0 && len(p.packed) == 0 && len(p.hidden.Reserved) == 0 {
		return nil
	}
	chosen := make(typed)
	for name, value := range p.packed {
		if filter.Matches(name) && writable(name, &value) {
			chosen[name] = value
		}
	}
	add := func(name, dataType, text string) {
		if !filter.Matches(name) {
			return
		}
		value := sqswire.MessageAttributeValue{DataType: dataType}
		if value.Kind() == sqswire.TypeBinary {
			value.BinaryValue, _ = base64.StdEncoding.DecodeString(text) // fails only if wrap did not write it
		} else {
			value.StringValue = &text
		}
		if writable(name, &value) {
			chosen[name] = value
		}
	}
	for name, text := range p.plain {
		if strings.HasPrefix(name, reservedPrefix) {
			continue
		}
		dataType := p.hidden.Types[name]
		if dataType == "" {
			dataType = sqswire.TypeString
		}
		add(name, dataType, text)
	}
	for name, entry := range p.hidden.Reserved {
		add(name, entry[0], entry[1])
	}
	return chosen
}

// writable reports whether an attribute is valid in SQS. Those of other surfaces may not
// be.
func writable(name string, v *sqswire.MessageAttributeValue) bool {
	if !sqswire.LegalAttributeName(name) || sqswire.CheckBody(v.DataType) != nil {
		return false
	}
	switch v.Kind() {
	case sqswire.TypeBinary:
		return len(v.BinaryValue) > 0
	case sqswire.TypeString, sqswire.TypeNumber:
		return v.StringValue != nil && *v.StringValue != "" && sqswire.CheckBody(*v.StringValue) == nil
	}
	return false
}

// pack appends attributes to a body that are too long for the attributes of the driver:
// name, type and value, each preceded by its length. The overhead is small, so that the
// largest message of SQS fits into MaxPayloadBytes.
func pack(body string, attributes typed) []byte {
	size := len(body)
	for name, value := range attributes {
		size += len(name) + len(value.DataType) + len(value.BinaryValue) + 3*binary.MaxVarintLen32
		if value.StringValue != nil {
			size += len(*value.StringValue)
		}
	}
	b := append(make([]byte, 0, size), body...)
	for name, value := range attributes {
		b = appendField(b, name)
		b = appendField(b, value.DataType)
		if value.Kind() != sqswire.TypeBinary && value.StringValue != nil {
			b = appendField(b, *value.StringValue)
		} else { // a binary value, even if the client sent a string too
			b = binary.AppendUvarint(b, uint64(len(value.BinaryValue)))
			b = append(b, value.BinaryValue...)
		}
	}
	return b
}

func appendField(b []byte, text string) []byte {
	b = binary.AppendUvarint(b, uint64(len(text)))
	return append(b, text...)
}

// unpack reads the attributes that pack appended.
func unpack(b []byte) (typed, bool) {
	attributes := make(typed)
	for len(b) > 0 {
		var fields [3][]byte
		for i := range fields {
			length, n := binary.Uvarint(b)
			if n <= 0 || length > uint64(len(b)-n) {
				return nil, false
			}
			fields[i], b = b[n:n+int(length)], b[n+int(length):]
		}
		value := sqswire.MessageAttributeValue{DataType: string(fields[1])}
		if value.Kind() == sqswire.TypeBinary {
			value.BinaryValue = fields[2]
		} else {
			text := string(fields[2])
			value.StringValue = &text
		}
		attributes[string(fields[0])] = value
	}
	return attributes, true
}

// messageID returns the id of a message in the form of a UUID, which some clients
// require. It has the same 128 bits as the ULID of other surfaces.
func messageID(id string) string {
	parsed, err := ulid.ParseStrict(id)
	if err != nil {
		return id
	}
	return uuid.UUID(parsed).String()
}

// sequenceNumber returns the 128 bits of a message's id as a decimal number. Both grow
// within a queue.
func sequenceNumber(id string) string {
	parsed, err := ulid.ParseStrict(id)
	if err != nil {
		return ""
	}
	high, low := binary.BigEndian.Uint64(parsed[:8]), binary.BigEndian.Uint64(parsed[8:])
	const chunk = 1e19 // the largest power of ten in 64 bits
	top, high := high/chunk, high%chunk
	middle, low := bits.Div64(high, low, chunk)
	var text [40]byte
	b := text[:0]
	if top > 0 {
		b = strconv.AppendUint(b, top, 10)
		b = appendPadded(b, middle)
	} else if middle > 0 {
		b = strconv.AppendUint(b, middle, 10)
	} else {
		return strconv.FormatUint(low, 10)
	}
	return string(appendPadded(b, low))
}

// appendPadded appends a number as nineteen digits, with leading zeros.
func appendPadded(b []byte, n uint64) []byte {
	const digits = 19
	var text [digits]byte
	for i := digits - 1; i >= 0; i-- {
		text[i] = byte('0' + n%10)
		n /= 10
	}
	return append(b, text[:]...)
}
