package sqswire_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox/server/internal/sqsapi/sqswire"
)

func TestQueueNamesAreTheLastPartOfURLs(t *testing.T) {
	for url, want := range map[string][2]string{
		"http://localhost:9324/000000000000/orders":                  {"000000000000", "orders"},
		"https://sqs.eu-north-1.amazonaws.com/123456789012/o.fifo":   {"123456789012", "o.fifo"},
		"http://localhost:4566/queue/us-east-1/000000000000/orders":  {"000000000000", "orders"},
		"http://localhost:9324/000000000000/orders/":                 {"000000000000", "orders"},
		"http://localhost:9324/000000000000/orders?Action=SendThing": {"000000000000", "orders"},
		"/000000000000/orders":                                       {"000000000000", "orders"},
		"orders":                                                     {"", "orders"},
		"http://localhost:9324/orders":                               {"", "orders"},
		"http://localhost:9324/":                                     {"", ""},
		"http://localhost:9324":                                      {"", ""},
		"":                                                           {"", ""},
	} {
		account, name := sqswire.QueueName(url)
		if account != want[0] || name != want[1] {
			t.Errorf("%s is queue %q of %q, want %q of %q", url, name, account, want[1], want[0])
		}
	}
}

// refused reports whether err is InvalidParameterValue, the error of most checks.
func refused(err error) bool { return errors.Is(err, sqswire.InvalidParameterValue) }

func TestQueueNamesAreChecked(t *testing.T) {
	for _, c := range []struct {
		name string
		fifo bool
		good bool
	}{
		{"a", false, true},
		{"A-z_0", false, true},
		{strings.Repeat("a", 80), false, true},
		{"", false, false},
		{strings.Repeat("a", 81), false, false},
		{"a b", false, false},
		{"a.b", false, false},
		{"ä", false, false},
		{"a.fifo", false, false},
		{"a\n", false, false},
		{"a.fifo", true, true},
		{strings.Repeat("a", 75) + ".fifo", true, true},
		{strings.Repeat("a", 76) + ".fifo", true, false},
		{"a", true, false},
		{".fifo", true, false},
		{"a.b.fifo", true, false},
		{"a.FIFO", true, false},
	} {
		if err := sqswire.CheckQueueName(c.name, c.fifo); (err == nil) != c.good || err != nil && !refused(err) {
			t.Errorf("%q, FIFO %t: %v", c.name, c.fifo, err)
		}
	}
}

func TestBatchesAreChecked(t *testing.T) {
	entries := func(ids ...string) (e []sqswire.DeleteMessageBatchRequestEntry) {
		for _, id := range ids {
			e = append(e, sqswire.DeleteMessageBatchRequestEntry{ID: id})
		}
		return e
	}
	many := func(n int) (ids []string) {
		for i := range n {
			ids = append(ids, fmt.Sprint(i))
		}
		return ids
	}
	for _, c := range []struct {
		ids  []string
		want error
	}{
		{nil, sqswire.EmptyBatchRequest},
		{many(10), nil},
		{many(11), sqswire.TooManyEntriesInBatchRequest},
		{[]string{"a", "b", "a"}, sqswire.BatchEntryIDsNotDistinct},
		{[]string{"a", "A"}, nil},
		{[]string{""}, sqswire.InvalidBatchEntryID},
		{[]string{"a:b"}, sqswire.InvalidBatchEntryID},
		{[]string{strings.Repeat("a", 80)}, nil},
		{[]string{strings.Repeat("a", 81)}, sqswire.InvalidBatchEntryID},
	} {
		remove := sqswire.DeleteMessageBatchInput{Entries: entries(c.ids...)}
		var send sqswire.SendMessageBatchInput
		var change sqswire.ChangeMessageVisibilityBatchInput
		for _, id := range c.ids {
			send.Entries = append(send.Entries, sqswire.SendMessageBatchRequestEntry{ID: id})
			change.Entries = append(change.Entries, sqswire.ChangeMessageVisibilityBatchRequestEntry{ID: id})
		}
		for _, err := range []error{remove.CheckEntries(), send.CheckEntries(), change.CheckEntries()} {
			if !errors.Is(err, c.want) {
				t.Errorf("%q: %v, want %v", c.ids, err, c.want)
			}
		}
	}
}

func TestSizesCountNamesTypesAndValues(t *testing.T) {
	attributes := map[string]sqswire.MessageAttributeValue{
		"name": {DataType: "String", StringValue: new("value")},
		"b":    {DataType: "Binary.x", BinaryValue: []byte{1, 2, 3}},
	}
	const size = len("body") + len("name"+"String"+"value") + len("b"+"Binary.x") + 3
	if got := sqswire.MessageSize("body", attributes); got != size {
		t.Errorf("the size is %d, want %d", got, size)
	}
	if err := sqswire.CheckMessageSize("body", attributes, size); err != nil {
		t.Error(err)
	}
	if err := sqswire.CheckMessageSize("body", attributes, size-1); !refused(err) {
		t.Error(err)
	}
	half := strings.Repeat("x", sqswire.MaxMessageBytes/2)
	batch := sqswire.SendMessageBatchInput{Entries: []sqswire.SendMessageBatchRequestEntry{{MessageBody: half}, {MessageBody: half}}}
	if err := batch.CheckBatchSize(); err != nil {
		t.Error(err)
	}
	batch.Entries[1].MessageBody += "x"
	if err := batch.CheckBatchSize(); !errors.Is(err, sqswire.BatchRequestTooLong) || !strings.Contains(err.Error(), "You have sent 1048577 bytes.") {
		t.Error(err)
	}
}

func TestBodiesMayHoldWhatXMLCanHold(t *testing.T) {
	for _, good := range []string{"\t\n\r", " ", "\x7F", "\uD7FF", "\uE000", "\uFFFD", "\U00010000", "\U0010FFFF", "aé"} {
		if err := sqswire.CheckBody(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{"\x00", "\x08", "\x0B", "\x0C", "\x0E", "\x1F", "\uFFFE", "\uFFFF", "a\xffb", "\xed\xa0\x80"} {
		if err := sqswire.CheckBody(bad); !errors.Is(err, sqswire.InvalidMessageContents) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestGroupAndDedupIDsMustBePrintable(t *testing.T) {
	for name, check := range map[string]func(string) error{
		"MessageGroupId": sqswire.CheckGroupID, "MessageDeduplicationId": sqswire.CheckDeduplicationID, "ReceiveRequestAttemptId": sqswire.CheckAttemptID,
	} {
		for _, good := range []string{"a", "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", strings.Repeat("a", 128)} {
			if err := check(good); err != nil {
				t.Errorf("%s %q: %v", name, good, err)
			}
		}
		for _, bad := range []string{"", strings.Repeat("a", 129), "a b", "a\tb", "é", "\x7f", "\xff"} {
			if err := check(bad); !refused(err) || !strings.Contains(err.Error(), name+" can only include alphanumeric") {
				t.Errorf("%s %q: %v", name, bad, err)
			}
		}
	}
}

func TestLabelsAreChecked(t *testing.T) {
	for label, good := range map[string]bool{"a-b_9": true, strings.Repeat("a", 80): true, strings.Repeat("a", 81): false, "": false, "a b": false} {
		if err := sqswire.CheckLabel(label); (err == nil) != good {
			t.Errorf("%q: %v", label, err)
		}
	}
}

func TestAttributeNamesAreChecked(t *testing.T) {
	for name, good := range map[string]bool{
		"a": true, "A-z_0.b": true, strings.Repeat("a", 256): true, "awsome": true, "amazonas": true, "x.aws.y": true,
		"": false, strings.Repeat("a", 257): false, "é": true, "attr.1øßä": true, "名前": true, "a b": false, "§": false, "a/b": false, "1️⃣": false,
		"AWS.x": false, "aws.x": false, "Amazon.x": false, "aMaZoN.x": false, ".a": false, "a.": false, "a..b": false,
	} {
		err := sqswire.CheckAttributes(map[string]sqswire.MessageAttributeValue{name: {DataType: "String", StringValue: new("x")}})
		if (err == nil) != good || err != nil && !refused(err) || sqswire.LegalAttributeName(name) != good {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestAttributeTypesAndValuesAreChecked(t *testing.T) {
	text, blob := new("x"), []byte("x")
	for _, c := range []struct {
		value sqswire.MessageAttributeValue
		want  error
	}{
		{sqswire.MessageAttributeValue{DataType: "String", StringValue: text}, nil},
		{sqswire.MessageAttributeValue{DataType: "String.json", StringValue: text}, nil},
		{sqswire.MessageAttributeValue{DataType: "String." + strings.Repeat("a", 249), StringValue: text}, nil},
		{sqswire.MessageAttributeValue{DataType: "Number.int", StringValue: new("1")}, nil},
		{sqswire.MessageAttributeValue{DataType: "Binary", BinaryValue: blob}, nil},
		{sqswire.MessageAttributeValue{DataType: "Binary.gif", BinaryValue: blob}, nil},
		{sqswire.MessageAttributeValue{StringValue: text}, sqswire.InvalidParameterValue},
		{sqswire.MessageAttributeValue{DataType: "string", StringValue: text}, sqswire.InvalidParameterValue},
		{sqswire.MessageAttributeValue{DataType: "Strings", StringValue: text}, sqswire.InvalidParameterValue},
		{sqswire.MessageAttributeValue{DataType: "String.é", StringValue: text}, sqswire.InvalidParameterValue},
		{sqswire.MessageAttributeValue{DataType: "String." + strings.Repeat("a", 250), StringValue: text}, sqswire.InvalidParameterValue},
		{sqswire.MessageAttributeValue{DataType: "String"}, sqswire.InvalidParameterValue},
		{sqswire.MessageAttributeValue{DataType: "String", StringValue: new("")}, sqswire.InvalidParameterValue},
		{sqswire.MessageAttributeValue{DataType: "String", BinaryValue: blob}, sqswire.InvalidParameterValue},
		{sqswire.MessageAttributeValue{DataType: "Binary", StringValue: text}, sqswire.InvalidParameterValue},
		{sqswire.MessageAttributeValue{DataType: "Binary", BinaryValue: []byte{}}, sqswire.InvalidParameterValue},
		{sqswire.MessageAttributeValue{DataType: "Number", StringValue: text}, sqswire.InvalidParameterValue},
		{sqswire.MessageAttributeValue{DataType: "String", StringValue: new("\x00")}, sqswire.InvalidParameterValue},
		{sqswire.MessageAttributeValue{DataType: "String", StringListValues: []string{"x"}}, sqswire.UnsupportedOperation},
		{sqswire.MessageAttributeValue{DataType: "Binary", BinaryListValues: [][]byte{blob}}, sqswire.UnsupportedOperation},
	} {
		if err := sqswire.CheckAttributes(map[string]sqswire.MessageAttributeValue{"a": c.value}); !errors.Is(err, c.want) {
			t.Errorf("%+v: %v, want %v", c.value, err, c.want)
		}
	}
	many := make(map[string]sqswire.MessageAttributeValue)
	for i := range 11 {
		if err := sqswire.CheckAttributes(many); err != nil {
			t.Errorf("%d attributes: %v", len(many), err)
		}
		many[fmt.Sprint("a", i)] = sqswire.MessageAttributeValue{DataType: "String", StringValue: text}
	}
	if err := sqswire.CheckAttributes(many); !refused(err) {
		t.Errorf("%d attributes: %v", len(many), err)
	}
}

func TestNumbersAreChecked(t *testing.T) {
	for number, good := range map[string]bool{
		"0": true, "-0": true, "+1": true, "1.5": true, ".5": true, "5.": true, "-1e-10": true, "1E+5": true, "00012": true,
		strings.Repeat("9", 38): true, strings.Repeat("9", 39): false, "0." + strings.Repeat("9", 38): true, "0." + strings.Repeat("9", 39): false,
		"1e126": true, "1e127": false, "1e-128": true, "1e-129": false, "10e126": false, "0.1e-128": false, "0e9999": true,
		"1" + strings.Repeat("0", 126): true, "1" + strings.Repeat("0", 127): false,
		"": false, "-": false, ".": false, "1,5": false, "0x10": false, "1e": false, "1e+": false, "e5": false, "--1": false, "-+1": false,
		"NaN": false, "Infinity": false, " 1": false, "1 ": false, "1e99999": false, "1.2.3": false, "1e1.5": false, "١": false,
	} {
		err := sqswire.CheckAttributes(map[string]sqswire.MessageAttributeValue{"n": {DataType: "Number", StringValue: new(number)}})
		if (err == nil) != good {
			t.Errorf("%q: %v", number, err)
		}
	}
}

func TestOnlyTheTraceHeaderIsASystemAttribute(t *testing.T) {
	for _, c := range []struct {
		name  string
		value sqswire.MessageSystemAttributeValue
		good  bool
	}{
		{"AWSTraceHeader", sqswire.MessageSystemAttributeValue{DataType: "String", StringValue: new("Root=1")}, true},
		{"AWSTraceHeader", sqswire.MessageSystemAttributeValue{DataType: "String", StringValue: new("")}, false},
		{"AWSTraceHeader", sqswire.MessageSystemAttributeValue{DataType: "Number", StringValue: new("1")}, false},
		{"SenderId", sqswire.MessageSystemAttributeValue{DataType: "String", StringValue: new("x")}, false},
	} {
		err := sqswire.CheckSystemAttributes(map[string]sqswire.MessageSystemAttributeValue{c.name: c.value})
		if (err == nil) != c.good || err != nil && !refused(err) {
			t.Errorf("%s %+v: %v", c.name, c.value, err)
		}
	}
}

// The expected results were observed on AWS.
func TestFiltersChooseAttributes(t *testing.T) {
	all := []string{"General", "Hello", "Help.Me"}
	for _, c := range []struct{ names, want []string }{
		{nil, nil},
		{[]string{"All"}, all},
		{[]string{".*"}, all},
		{[]string{"*"}, all},
		{[]string{"Foo", "Help"}, nil},
		{[]string{"Hello", "General"}, []string{"General", "Hello"}},
		{[]string{"Foo", "Hello"}, []string{"Hello"}},
		{[]string{"Hel.*"}, []string{"Hello", "Help.Me"}},
		{[]string{"Help.*", "General"}, []string{"General", "Help.Me"}},
		{[]string{"AWS."}, nil},
		{[]string{"..foo"}, nil},
		{[]string{"hello"}, nil},
	} {
		filter := sqswire.NewFilter(c.names)
		var got []string
		for _, name := range all {
			if filter.Matches(name) {
				got = append(got, name)
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%q chooses %q, want %q", c.names, got, c.want)
		}
		if filter.Empty() != (len(c.names) == 0) {
			t.Errorf("%q: Empty is %t", c.names, filter.Empty())
		}
	}
}

// The checksums were returned by AWS.
func TestChecksumsAreThoseOfAWS(t *testing.T) {
	for body, want := range map[string]string{
		"msg": "6e2baaf3b97dbeef01c0043275f9a0e7", "a": "0cc175b9c0f1b6a831c399e269772661", "": "d41d8cd98f00b204e9800998ecf8427e",
	} {
		if got := sqswire.MD5OfBody(body); got != want {
			t.Errorf("the checksum of %q is %s, want %s", body, got, want)
		}
	}
	text := func(value string) sqswire.MessageAttributeValue {
		return sqswire.MessageAttributeValue{DataType: "String", StringValue: &value}
	}
	for want, attributes := range map[string]map[string]sqswire.MessageAttributeValue{
		"":                                 nil,
		"ae7155c6026991b6d54b11589678bf9c": {"Foo": text("Bar")},
		"a311262e065454b75da111d535b8dacd": {"Hello": text("There")},
		"fca026605781cb4126a1e9044df24232": {"Hello": text("There"), "General": text("Kenobi")},
		"4c360f3fdafd970e05fae2f149d997f5": {"Help.Me": text("Me"), "Hello": text("There"), "General": text("Kenobi")},
		"8cbe4db156db8a94db8b801b7addb984": {"attr1": {
			DataType: "Binary", BinaryValue: []byte("traceparent\x1e00-774062d6c37081a5a0b9b5b88e30627c-2d2482211f6489da-01"),
		}},
	} {
		if got := sqswire.MD5OfAttributes(attributes); got != want {
			t.Errorf("the checksum of %v is %s, want %s", attributes, got, want)
		}
	}
}
