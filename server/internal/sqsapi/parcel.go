package sqsapi

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"strings"
	"unicode/utf8"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/server/internal/broker"
	"github.com/mailboxmq/mailbox/server/internal/sqsapi/sqswire"
)

const (
	// hiddenAttribute carries what SQS knows of a message and others do not.
	hiddenAttribute = "mailbox.sqs"
	// reservedPrefix begins attributes that are no client's.
	reservedPrefix = "mailbox."
	// encodingAttribute says that a body is in base64 because it is no text.
	encodingAttribute = "mailbox.encoding"
)

// typed are the attributes of a message as clients of SQS know them.
type typed = map[string]sqswire.MessageAttributeValue

// hidden is what is stored in the hidden attribute.
type hidden struct {
	// Types are those of the attributes that are not simply texts.
	Types map[string]string `json:"t,omitempty"`
	// Reserved are attributes whose names would clash with those of the daemon:
	// type and value each.
	Reserved map[string][2]string `json:"r,omitempty"`
	// Trace is the AWSTraceHeader, and Dedup the MessageDeduplicationId where the
	// key of the message is another one.
	Trace string `json:"x,omitempty"`
	Dedup string `json:"d,omitempty"`
	// Length is that of the body if attributes are packed behind it.
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

// wrap puts body and typed attributes into a message of the driver. Texts are plain
// attributes, which consumers of other surfaces see.
func wrap(out *driver.Outgoing, body string, attributes typed, h hidden) error {
	if len(attributes) == 0 && h.empty() {
		out.Body = []byte(body)
		return nil
	}
	small := h // without what the attributes add
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

// A parcel is a message as SQS sees it.
type parcel struct {
	body   string
	hidden hidden
	plain  map[string]string
	packed typed // instead of plain, if attributes were packed behind the body
}

// unwrap is the reverse of wrap. A message of another surface has its attributes as
// texts; a body that no client of SQS could be given as it is comes in base64.
func unwrap(m *driver.Message) parcel {
	p := parcel{plain: m.Attributes}
	if text, ok := m.Attributes[hiddenAttribute]; ok && json.Unmarshal([]byte(text), &p.hidden) != nil {
		p.hidden = hidden{} // it was not written here
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
func (p *parcel) attributes(filter sqswire.Filter) typed {
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
			value.BinaryValue, _ = base64.StdEncoding.DecodeString(text) // not ours, if it fails
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

// writable reports whether an attribute is one that SQS has. Those of other surfaces
// may be anything.
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
