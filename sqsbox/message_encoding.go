package sqsbox

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/mailboxmq/mailbox/driver"
)

// metadataName is the attribute that holds the metadata for which SQS has no field.
// Messages that need no metadata do not have it, and a message without it is received
// unchanged.
const metadataName = "mailbox"

const stringType = "String"

// Encodings of bodies that SQS would refuse.
const (
	bodyBase64 = "base64"
	bodyEmpty  = "empty" // SQS requires at least one character
)

// emptyBody replaces a body without bytes.
const emptyBody = "(empty)"

// metadata is the value of the attribute metadataName, as JSON.
type metadata struct {
	// Body is the encoding of the body; empty means unchanged.
	Body string `json:"body,omitempty"`
	// ID and the two times are those of a message that was moved here, and keeps
	// them; times are in milliseconds since 1970.
	ID            string            `json:"id,omitempty"`
	Enqueued      int64             `json:"enqueued,omitempty"`
	FirstReceived int64             `json:"first_received,omitempty"`
	Group         *string           `json:"group,omitempty"`
	ReplyTo       string            `json:"reply_to,omitempty"`
	CorrelationID string            `json:"correlation_id,omitempty"`
	Attributes    map[string]string `json:"attributes,omitempty"`
}

func (s *metadata) isEmpty() bool {
	return s.Body == "" && s.ID == "" && s.Group == nil && s.ReplyTo == "" && s.CorrelationID == "" && len(s.Attributes) == 0
}

// escapeNoncharacters escapes the two characters that JSON allows and SQS refuses.
var escapeNoncharacters = strings.NewReplacer("\ufffe", `\ufffe`, "\uffff", `\uffff`)

func (s *metadata) write() (types.MessageAttributeValue, error) {
	text, err := json.Marshal(s)
	if err != nil {
		return types.MessageAttributeValue{}, err
	}
	return stringValue(escapeNoncharacters.Replace(string(text))), nil
}

func stringValue(text string) types.MessageAttributeValue {
	return types.MessageAttributeValue{DataType: aws.String(stringType), StringValue: aws.String(text)}
}

// A wireMessage is a message as SQS transports it.
type wireMessage struct {
	body       string
	attributes map[string]types.MessageAttributeValue
}

// size returns the bytes that SQS counts: the body, and the name, type and value of
// each attribute.
func (p *wireMessage) size() int {
	total := len(p.body)
	for name, value := range p.attributes {
		total += len(name) + len(deref(value.DataType)) + len(deref(value.StringValue)) + len(value.BinaryValue)
	}
	return total
}

// encode encodes a message. Everything that SQS can transport is left unchanged, so
// that any client can read it; the rest goes into the metadata.
func encode(msg *driver.Outgoing, groupInMetadata bool) (wireMessage, error) {
	s := metadata{ReplyTo: msg.ReplyTo, CorrelationID: msg.CorrelationID}
	var p wireMessage
	p.body, s.Body = writeBody(msg.Body)
	if groupInMetadata {
		s.Group = aws.String(msg.Group)
	}
	p.attributes = make(map[string]types.MessageAttributeValue)
	for _, name := range slices.Sorted(maps.Keys(msg.Attributes)) {
		if value := msg.Attributes[name]; carries(name, value) {
			p.attributes[name] = stringValue(value)
		} else {
			s.put(name, value)
		}
	}
	return p, p.attach(&s)
}

func (s *metadata) put(name, value string) {
	if s.Attributes == nil {
		s.Attributes = make(map[string]string)
	}
	s.Attributes[name] = value
}

// attach adds the metadata if there is any, and moves attributes into it while there
// are more than SQS allows.
func (p *wireMessage) attach(s *metadata) error {
	for _, name := range slices.Backward(slices.Sorted(maps.Keys(p.attributes))) {
		room := maxAttributes
		if !s.isEmpty() {
			room--
		}
		if len(p.attributes) <= room {
			break
		}
		value := p.attributes[name]
		if deref(value.DataType) == stringType { // other producers' types would be lost in the metadata
			s.put(name, deref(value.StringValue))
			delete(p.attributes, name)
		}
	}
	if s.isEmpty() {
		return nil
	}
	value, err := s.write()
	p.attributes[metadataName] = value
	return err
}

// writeBody returns a body as text, and its encoding.
func writeBody(body []byte) (text, how string) {
	switch text := string(body); {
	case text == "":
		return emptyBody, bodyEmpty
	case isText(text):
		return text, ""
	}
	return base64.StdEncoding.EncodeToString(body), bodyBase64
}

// isText reports whether SQS accepts the text: UTF-8 without characters that XML
// forbids.
func isText(text string) bool {
	for i, c := range text {
		switch {
		case c < ' ' && c != '\t' && c != '\n' && c != '\r', c == 0xFFFE, c == 0xFFFF:
			return false
		case c == utf8.RuneError:
			if _, width := utf8.DecodeRuneInString(text[i:]); width == 1 {
				return false
			}
		}
	}
	return true
}

// carries reports whether SQS allows an attribute with this name and value.
func carries(name, value string) bool {
	if value == "" || !isText(value) || name == metadataName || len(name) > 256 {
		return false
	}
	for i := range len(name) {
		if c := name[i]; !nameByte(c) && c != '.' {
			return false
		}
	}
	lower := strings.ToLower(name)
	return !strings.HasPrefix(lower, "aws.") && !strings.HasPrefix(lower, "amazon.") &&
		!strings.HasPrefix(name, ".") && !strings.HasSuffix(name, ".") && !strings.Contains(name, "..")
}

// decode decodes a message. An attribute called metadataName that does not hold
// metadata is an attribute like any other.
func decode(m *types.Message) (body []byte, attributes map[string]string, s metadata) {
	text := deref(m.Body)
	body = []byte(text)
	value, hasMetadata := m.MessageAttributes[metadataName]
	if hasMetadata {
		if s, body, hasMetadata = readMetadata(value, text); !hasMetadata {
			body = []byte(text)
		}
	}
	for name, value := range m.MessageAttributes {
		if name == metadataName && hasMetadata {
			continue
		}
		if attributes == nil {
			attributes = make(map[string]string, len(m.MessageAttributes)+len(s.Attributes))
		}
		attributes[name] = valueText(value)
	}
	if attributes == nil {
		return body, s.Attributes, s
	}
	maps.Copy(attributes, s.Attributes)
	return body, attributes, s
}

// readMetadata returns the metadata in an attribute, and the body decoded with it.
func readMetadata(value types.MessageAttributeValue, text string) (s metadata, body []byte, ok bool) {
	if deref(value.DataType) != stringType || json.Unmarshal([]byte(deref(value.StringValue)), &s) != nil {
		return metadata{}, nil, false
	}
	switch s.Body {
	case "":
		return s, []byte(text), true
	case bodyEmpty:
		return s, nil, true
	case bodyBase64:
		if body, err := base64.StdEncoding.DecodeString(text); err == nil {
			return s, body, true
		}
	}
	return metadata{}, nil, false
}

// valueText returns the value of an attribute as text: a number as its digits, bytes as
// base64.
func valueText(value types.MessageAttributeValue) string {
	if strings.HasPrefix(deref(value.DataType), "Binary") {
		return base64.StdEncoding.EncodeToString(value.BinaryValue)
	}
	return deref(value.StringValue)
}
