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

// slipName is the attribute that carries what SQS has no place for. Messages that
// need no slip have none, and any message without one is taken as it is.
const slipName = "mailbox"

const stringType = "String"

// How a body that SQS would not take is written.
const (
	bodyBase64 = "base64"
	bodyEmpty  = "empty" // SQS wants at least one character
)

// emptyBody stands for a body without bytes.
const emptyBody = "(empty)"

// A slip is the value of the attribute slipName, as JSON.
type slip struct {
	// Body says how the body is written; empty: as it is.
	Body string `json:"body,omitempty"`
	// ID and the two times are those of a message that was moved here, and keeps
	// them; times are in milliseconds.
	ID            string            `json:"id,omitempty"`
	Enqueued      int64             `json:"enqueued,omitempty"`
	FirstReceived int64             `json:"first_received,omitempty"`
	Group         *string           `json:"group,omitempty"`
	ReplyTo       string            `json:"reply_to,omitempty"`
	CorrelationID string            `json:"correlation_id,omitempty"`
	Attributes    map[string]string `json:"attributes,omitempty"`
}

func (s *slip) isEmpty() bool {
	return s.Body == "" && s.ID == "" && s.Group == nil && s.ReplyTo == "" && s.CorrelationID == "" && len(s.Attributes) == 0
}

// unlucky are the two characters that JSON leaves as they are and SQS refuses.
var unlucky = strings.NewReplacer("\ufffe", `\ufffe`, "\uffff", `\uffff`)

func (s *slip) write() (types.MessageAttributeValue, error) {
	text, err := json.Marshal(s)
	if err != nil {
		return types.MessageAttributeValue{}, err
	}
	return stringValue(unlucky.Replace(string(text))), nil
}

func stringValue(text string) types.MessageAttributeValue {
	return types.MessageAttributeValue{DataType: aws.String(stringType), StringValue: aws.String(text)}
}

// A parcel is a message as SQS takes and gives it.
type parcel struct {
	body       string
	attributes map[string]types.MessageAttributeValue
}

// size is what SQS counts: the body, and of each attribute name, type and value.
func (p *parcel) size() int {
	total := len(p.body)
	for name, value := range p.attributes {
		total += len(name) + len(deref(value.DataType)) + len(deref(value.StringValue)) + len(value.BinaryValue)
	}
	return total
}

// pack writes a message. What SQS can carry goes as it is, so that any client can
// read it; the rest goes on the slip.
func pack(msg *driver.Outgoing, groupOnSlip bool) (parcel, error) {
	s := slip{ReplyTo: msg.ReplyTo, CorrelationID: msg.CorrelationID}
	var p parcel
	p.body, s.Body = writeBody(msg.Body)
	if groupOnSlip {
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

func (s *slip) put(name, value string) {
	if s.Attributes == nil {
		s.Attributes = make(map[string]string)
	}
	s.Attributes[name] = value
}

// attach adds the slip where there is something on it, and puts on it what would be
// one attribute too many.
func (p *parcel) attach(s *slip) error {
	for _, name := range slices.Backward(slices.Sorted(maps.Keys(p.attributes))) {
		room := maxAttributes
		if !s.isEmpty() {
			room--
		}
		if len(p.attributes) <= room {
			break
		}
		value := p.attributes[name]
		if deref(value.DataType) == stringType { // other types are somebody else's, and cannot be told on the slip
			s.put(name, deref(value.StringValue))
			delete(p.attributes, name)
		}
	}
	if s.isEmpty() {
		return nil
	}
	value, err := s.write()
	p.attributes[slipName] = value
	return err
}

// writeBody returns a body as text, and how it is written.
func writeBody(body []byte) (text, how string) {
	switch text := string(body); {
	case text == "":
		return emptyBody, bodyEmpty
	case isText(text):
		return text, ""
	}
	return base64.StdEncoding.EncodeToString(body), bodyBase64
}

// isText reports whether SQS takes a text as it is: UTF-8 without what XML forbids.
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

// carries reports whether an attribute of SQS can have this name and value.
func carries(name, value string) bool {
	if value == "" || !isText(value) || name == slipName || len(name) > 256 {
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

// open takes a message apart. What is no slip of ours, although it is called so, is
// an attribute like any other.
func open(m *types.Message) (body []byte, attributes map[string]string, s slip) {
	text := deref(m.Body)
	body = []byte(text)
	value, hasSlip := m.MessageAttributes[slipName]
	if hasSlip {
		if s, body, hasSlip = readSlip(value, text); !hasSlip {
			body = []byte(text)
		}
	}
	for name, value := range m.MessageAttributes {
		if name == slipName && hasSlip {
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

// readSlip returns the slip and the body it speaks of.
func readSlip(value types.MessageAttributeValue, text string) (s slip, body []byte, ok bool) {
	if deref(value.DataType) != stringType || json.Unmarshal([]byte(deref(value.StringValue)), &s) != nil {
		return slip{}, nil, false
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
	return slip{}, nil, false
}

// valueText is an attribute's value as text: that of a number its digits, that of
// bytes their base64.
func valueText(value types.MessageAttributeValue) string {
	if strings.HasPrefix(deref(value.DataType), "Binary") {
		return base64.StdEncoding.EncodeToString(value.BinaryValue)
	}
	return deref(value.StringValue)
}
