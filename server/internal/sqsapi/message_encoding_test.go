package sqsapi

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/server/internal/broker"
	"github.com/mailboxmq/mailbox/server/internal/sqsapi/sqswire"
)

func TestUnwrapReversesWrap(t *testing.T) {
	text, long := "a text", string(bytes.Repeat([]byte("l"), driver.MaxAttributeBytes))
	all := sqswire.NewFilter([]string{"All"})
	for name, attributes := range map[string]typed{
		"none":     nil,
		"a text":   {"a": {DataType: "String", StringValue: &text}},
		"bytes":    {"a": {DataType: "Binary.x", BinaryValue: []byte{0, 1}}, "mailbox.x": {DataType: "Binary", BinaryValue: []byte{2}}},
		"long":     {"a": {DataType: "String.x", StringValue: &long}, "b": {DataType: "Binary", BinaryValue: []byte(long)}, "mailbox.env": {DataType: "Number", StringValue: &text}},
		"reserved": {"mailbox.sqs": {DataType: "String", StringValue: &text}},
	} {
		var out driver.Outgoing
		if err := wrap(&out, "body", attributes, hidden{Trace: "t", Dedup: "d"}); err != nil {
			t.Fatal(err)
		}
		if err := out.Check(&driver.Traits{
			MaxBodyBytes: MaxPayloadBytes, MaxAttributes: broker.MaxAttributes, MaxAttributeBytes: broker.MaxAttributeBytes,
		}); err != nil {
			t.Errorf("%s: no backend takes it: %v", name, err)
		}
		p := unwrap(&driver.Message{Body: out.Body, Attributes: out.Attributes})
		if got := p.attributes(all); p.body != "body" || p.hidden.Trace != "t" || p.hidden.Dedup != "d" || len(got) != len(attributes) || len(got) > 0 && !reflect.DeepEqual(got, attributes) {
			t.Errorf("%s: got %q, %+v and %d attributes", name, p.body, p.hidden, len(got))
		}
	}
}

// FuzzUnwrap calls unwrap with messages that any producer may have sent.
func FuzzUnwrap(f *testing.F) {
	f.Add([]byte("body"), `{"n":4}`, "a", "b")
	f.Add(append([]byte("body"), 1, 'a', 6, 'S', 't', 'r', 'i', 'n', 'g', 1, 'v'), `{"n":4}`, "a", "b")
	f.Add([]byte("\xff"), `{"t":{"a":"Binary"},"r":{"mailbox.x":["Number","1"]}}`, "a", "?")
	f.Add([]byte{}, `{"n":-1}`, "", "")
	f.Fuzz(func(t *testing.T, body []byte, notes, name, value string) {
		m := &driver.Message{Body: body, Attributes: map[string]string{hiddenAttribute: notes, name: value}}
		p := unwrap(m)
		if sqswire.CheckBody(p.body) != nil {
			t.Errorf("the body %q cannot be written", p.body)
		}
		for name, attribute := range p.attributes(sqswire.NewFilter([]string{"All"})) {
			text := attributeText(&attribute)
			if !sqswire.LegalAttributeName(name) || text == "" || sqswire.CheckBody(name+attribute.DataType+text) != nil {
				t.Errorf("the attribute %q cannot be written: %+v", name, attribute)
			}
		}
		if got, ok := unpack(body); ok {
			again, ok := unpack(pack("", got))
			if !ok || !reflect.DeepEqual(got, again) {
				t.Errorf("unpacked %v, then %v", got, again)
			}
		}
	})
}
