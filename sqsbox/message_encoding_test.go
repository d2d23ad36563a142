package sqsbox

import (
	"bytes"
	"fmt"
	"maps"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"pgregory.net/rapid"

	"github.com/mailboxmq/mailbox/driver"
)

// checkWireMessage fails the test if SQS would refuse the message.
func checkWireMessage(t interface{ Fatalf(string, ...any) }, p wireMessage) {
	if p.body == "" || !isText(p.body) {
		t.Fatalf("SQS would refuse the body %q", p.body)
	}
	if len(p.attributes) > maxAttributes {
		t.Fatalf("%d attributes", len(p.attributes))
	}
	for name, value := range p.attributes {
		if text := deref(value.StringValue); text == "" || !isText(text) || name != metadataName && !carries(name, text) {
			t.Fatalf("SQS would refuse the attribute %q: %q", name, text)
		}
	}
}

func TestDecodeReversesEncode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		msg := driver.Outgoing{
			Body:          rapid.SliceOf(rapid.Byte()).Draw(t, "body"),
			Attributes:    rapid.MapOfN(rapid.StringN(1, 20, 256), rapid.String(), 0, 20).Draw(t, "attributes"),
			ReplyTo:       rapid.String().Draw(t, "reply to"),
			CorrelationID: rapid.String().Draw(t, "correlation id"),
			Group:         rapid.String().Draw(t, "group"),
		}
		if rapid.Bool().Draw(t, "text") {
			msg.Body = []byte(rapid.String().Draw(t, "text body"))
		}
		p, err := encode(&msg, true)
		if err != nil {
			t.Fatal(err)
		}
		checkWireMessage(t, p)
		body, attributes, s := decode(&types.Message{Body: aws.String(p.body), MessageAttributes: p.attributes})
		if !bytes.Equal(body, msg.Body) || !maps.Equal(attributes, msg.Attributes) ||
			s.ReplyTo != msg.ReplyTo || s.CorrelationID != msg.CorrelationID || *s.Group != msg.Group {
			t.Fatalf("packed %+v, opened %q, %q, %+v", msg, body, attributes, s)
		}
	})
}

func TestTextIsReadableByAnyClient(t *testing.T) {
	p, err := encode(&driver.Outgoing{Body: []byte(`{"order":"größe ✓ \U0001F4EC"}`), Attributes: map[string]string{"kind": "order", "a.b-c_d": "1"}}, false)
	if err != nil {
		t.Fatal(err)
	}
	if p.body != `{"order":"größe ✓ \U0001F4EC"}` || len(p.attributes) != 2 || *p.attributes["kind"].StringValue != "order" {
		t.Errorf("a plain message has become %q with %v", p.body, p.attributes)
	}
}

func TestElevenAttributesNeedMetadata(t *testing.T) {
	attributes := make(map[string]string)
	for i := range 10 {
		attributes[fmt.Sprint("name", i)] = "value"
	}
	p, err := encode(&driver.Outgoing{Body: []byte("x"), Attributes: attributes}, false)
	if err != nil || len(p.attributes) != 10 || p.attributes[metadataName].StringValue != nil {
		t.Errorf("ten attributes: got %v, %v; want them as they are", p.attributes, err)
	}
	attributes["name10"] = "value"
	p, err = encode(&driver.Outgoing{Body: []byte("x"), Attributes: attributes}, false)
	if err != nil || len(p.attributes) != 10 || p.attributes[metadataName].StringValue == nil {
		t.Errorf("eleven attributes: got %v, %v; want nine and metadata", p.attributes, err)
	}
}

func TestAttributesOfOtherTypesAreCarried(t *testing.T) {
	body, attributes, _ := decode(&types.Message{Body: aws.String("x"), MessageAttributes: map[string]types.MessageAttributeValue{
		"price":  {DataType: aws.String("Number"), StringValue: aws.String("12.50")},
		"weight": {DataType: aws.String("Number.kg"), StringValue: aws.String("3")},
		"image":  {DataType: aws.String("Binary.png"), BinaryValue: []byte{0xff, 0x00}},
	}})
	want := map[string]string{"price": "12.50", "weight": "3", "image": "/wA="}
	if string(body) != "x" || !maps.Equal(attributes, want) {
		t.Errorf("got %q, %q; want %q", body, attributes, want)
	}
}

// A message of another producer may have an attribute with the name of the metadata.
func TestForeignAttributeNamedLikeMetadataIsKept(t *testing.T) {
	for _, value := range []string{"letters", `{"body":"rot13"}`, `{"body":"base64"}`, "[]"} {
		body, attributes, s := decode(&types.Message{Body: aws.String("not base64!"), MessageAttributes: map[string]types.MessageAttributeValue{
			metadataName: stringValue(value),
		}})
		if string(body) != "not base64!" || attributes[metadataName] != value || !s.isEmpty() {
			t.Errorf("an attribute %q: got body %q, attributes %q, metadata %+v", value, body, attributes, s)
		}
	}
}

func TestSizeIsWhatSQSCounts(t *testing.T) {
	p := wireMessage{body: "größe", attributes: map[string]types.MessageAttributeValue{
		"a": stringValue("bc"), "image": {DataType: aws.String("Binary"), BinaryValue: make([]byte, 10)},
	}}
	if want := 7 + (1 + 6 + 2) + (5 + 6 + 10); p.size() != want {
		t.Errorf("got %d, want %d", p.size(), want)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add("body", `{"body":"base64","attributes":{"a":"b"}}`)
	f.Add("(empty)", `{"body":"empty","group":null}`)
	f.Fuzz(func(t *testing.T, body, value string) {
		m := types.Message{Body: aws.String(body), MessageAttributes: map[string]types.MessageAttributeValue{metadataName: stringValue(value)}}
		got, attributes, _ := decode(&m)
		if _, _, isMetadata := readMetadata(stringValue(value), body); !isMetadata && (string(got) != body || attributes[metadataName] != value) {
			t.Errorf("%q is not metadata, and yet %q became %q with %q", value, body, got, attributes)
		}
	})
}

func TestOnlyTextThatSQSAcceptsIsText(t *testing.T) {
	for text, want := range map[string]bool{
		"plain": true, "\t\n\r": true, "größe \u007f": true, "\ud7ff\ue000\ufffd": true, "\U0001F4EC\U0010FFFF": true,
		"\x00": false, "\x0b": false, "\x1f": false, "\xff": false, "a\xc3": false, "\ufffe": false, "\uffff": false,
	} {
		if isText(text) != want {
			t.Errorf("%q: got %v, want %v", text, !want, want)
		}
	}
	data := metadata{ReplyTo: "\ufffe\uffff\x00"}
	value, err := data.write()
	if err != nil || !isText(*value.StringValue) {
		t.Errorf("SQS would refuse the metadata %q, %v", *value.StringValue, err)
	}
}
