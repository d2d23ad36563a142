package sqsapi_test

import (
	"bytes"
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

func TestMessageIsSentReceivedAndDeleted(t *testing.T) {
	synctest.Test(t, with(setup{}, func(t *testing.T, c *client) {
		queue := c.create("orders")
		if *queue != "http://sqs.example:4566/000000000000/orders" {
			t.Errorf("URL %s", *queue)
		}
		id := c.send(queue, "hello <&> wörld\t\n")
		sum := md5.Sum([]byte("hello <&> wörld\t\n"))
		m := c.one(queue)
		if *m.Body != "hello <&> wörld\t\n" || *m.MessageId != id || *m.MD5OfBody != hex.EncodeToString(sum[:]) {
			t.Errorf("got %v", m)
		}
		if len(id) != 36 || strings.Count(id, "-") != 4 {
			t.Errorf("the id %s is not a UUID, which Spring requires", id)
		}
		if got := c.receive(queue); len(got) != 0 {
			t.Errorf("it is delivered twice: %v", got)
		}
		c.delete(queue, m)
		time.Sleep(time.Hour)
		if got := c.receive(queue); len(got) != 0 {
			t.Errorf("it came back: %v", got)
		}
	}))
}

func str(value string) types.MessageAttributeValue {
	return types.MessageAttributeValue{DataType: aws.String("String"), StringValue: &value}
}

func TestAttributesKeepTheirTypes(t *testing.T) {
	synctest.Test(t, with(setup{}, func(t *testing.T, c *client) {
		queue := c.create("orders")
		attributes := map[string]types.MessageAttributeValue{
			"text":         str("a text"),
			"labelled":     {DataType: aws.String("String.uuid"), StringValue: aws.String("1")},
			"number":       {DataType: aws.String("Number"), StringValue: aws.String("12.50")},
			"float":        {DataType: aws.String("Number.float"), StringValue: aws.String("1e3")},
			"bytes":        {DataType: aws.String("Binary"), BinaryValue: []byte{0, 255, 1}},
			"png":          {DataType: aws.String("Binary.png"), BinaryValue: []byte("x")},
			"mailbox.sqs":  str("not yours"),
			"mailbox.env":  str("nor this"),
			"mailbox.none": {DataType: aws.String("Binary"), BinaryValue: []byte{7}},
		}
		// The SDK verifies the MD5 of attributes that it sends and receives.
		c.send(queue, "x", func(in *sqs.SendMessageInput) {
			in.MessageAttributes = attributes
			in.MessageSystemAttributes = map[string]types.MessageSystemAttributeValue{
				"AWSTraceHeader": {DataType: aws.String("String"), StringValue: aws.String("Root=1-5759e988-bd862e3fe1be46a994272793")},
			}
		})
		m := c.one(queue)
		if !reflect.DeepEqual(m.MessageAttributes, attributes) {
			t.Errorf("got %v", m.MessageAttributes)
		}
		if m.Attributes["AWSTraceHeader"] != "Root=1-5759e988-bd862e3fe1be46a994272793" {
			t.Errorf("system attributes %v", m.Attributes)
		}
	}))
}

func TestReceivesChooseAttributesByNameAndPrefix(t *testing.T) {
	synctest.Test(t, with(setup{}, func(t *testing.T, c *client) {
		queue := c.create("orders")
		c.send(queue, "x", func(in *sqs.SendMessageInput) {
			in.MessageAttributes = map[string]types.MessageAttributeValue{"a.b": str("1"), "a.c": str("2"), "d": str("3")}
		})
		for _, test := range []struct {
			ask  []string
			want []string
		}{
			{nil, nil},
			{[]string{"d"}, []string{"d"}},
			{[]string{"a.*"}, []string{"a.b", "a.c"}},
			{[]string{".*"}, []string{"a.b", "a.c", "d"}},
			{[]string{"All"}, []string{"a.b", "a.c", "d"}},
			{[]string{"none"}, nil},
		} {
			m := c.one(queue, func(in *sqs.ReceiveMessageInput) { in.MessageAttributeNames = test.ask }, visible(1))
			var got []string
			for name := range m.MessageAttributes {
				got = append(got, name)
			}
			if slices.Sort(got); !slices.Equal(got, test.want) {
				t.Errorf("%v: got %v, want %v", test.ask, got, test.want)
			}
			time.Sleep(time.Second)
		}
	}))
}

func TestSystemAttributesOfReceivedMessage(t *testing.T) {
	synctest.Test(t, with(setup{}, func(t *testing.T, c *client) {
		queue := c.create("orders")
		sent := time.Now().UnixMilli()
		c.send(queue, "x")
		time.Sleep(time.Second)
		first := time.Now().UnixMilli()
		c.one(queue, visible(1))
		time.Sleep(time.Second)
		m := c.one(queue)
		want := map[string]string{
			"SenderId": "000000000000", "SentTimestamp": fmt.Sprint(sent), "ApproximateReceiveCount": "2",
			"ApproximateFirstReceiveTimestamp": fmt.Sprint(first),
		}
		if !reflect.DeepEqual(m.Attributes, want) {
			t.Errorf("got %v, want %v", m.Attributes, want)
		}
		_, err := c.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{
			QueueUrl: queue, MessageSystemAttributeNames: []types.MessageSystemAttributeName{"Nonsense"},
		})
		refused(t, "an attribute that there is not", err, "InvalidAttributeName")
	}))
}

func TestLargeAttributesAreAppendedToBody(t *testing.T) {
	synctest.Test(t, with(setup{}, func(t *testing.T, c *client) {
		queue := c.create("orders")
		// With name and type, the message has the maximum size.
		value := bytes.Repeat([]byte{0xff, '<', 0}, 1<<20/3)[:1<<20-len("x")-len("big")-len("Binary")]
		attributes := map[string]types.MessageAttributeValue{"big": {DataType: aws.String("Binary"), BinaryValue: value}}
		c.send(queue, "x", func(in *sqs.SendMessageInput) { in.MessageAttributes = attributes })
		m := c.one(queue)
		if *m.Body != "x" || !reflect.DeepEqual(m.MessageAttributes, attributes) {
			t.Errorf("got a body of %d bytes and %d attributes", len(*m.Body), len(m.MessageAttributes))
		}
		text := strings.Repeat("é\t", 100_000)
		c.send(queue, text, func(in *sqs.SendMessageInput) {
			in.MessageAttributes = map[string]types.MessageAttributeValue{"text": str(text), "mailbox.env": str("mine")}
		})
		m = c.one(queue)
		if *m.Body != text || *m.MessageAttributes["text"].StringValue != text || *m.MessageAttributes["mailbox.env"].StringValue != "mine" {
			t.Errorf("got a body of %d bytes and %d attributes", len(*m.Body), len(m.MessageAttributes))
		}
	}))
}

func TestMessagesOfOtherSurfacesKeepTheirAttributes(t *testing.T) {
	synctest.Test(t, with(setup{}, func(t *testing.T, c *client) {
		queue := c.create("orders")
		native, err := c.d.broker.Daemon("")
		if err != nil {
			t.Fatal(err)
		}
		send := func(body string) {
			t.Helper()
			if _, err := native.Send(t.Context(), "orders", []broker.Outgoing{{Outgoing: driver.Outgoing{
				Body: []byte(body), Attributes: map[string]string{"colour": "red", "no name/of sqs": "x"},
			}}}); err != nil {
				t.Fatal(err)
			}
		}
		send("text")
		m := c.one(queue)
		if want := map[string]types.MessageAttributeValue{"colour": str("red")}; *m.Body != "text" || !reflect.DeepEqual(m.MessageAttributes, want) {
			t.Errorf("got %q %v", *m.Body, m.MessageAttributes)
		}
		send("\xff\x00")
		m = c.one(queue)
		if *m.Body != "/wA=" || *m.MessageAttributes["mailbox.encoding"].StringValue != "base64" {
			t.Errorf("got %q %v", *m.Body, m.MessageAttributes)
		}
		// The other way round, strings are plain attributes.
		c.send(queue, "hello", func(in *sqs.SendMessageInput) {
			in.MessageAttributes = map[string]types.MessageAttributeValue{"colour": str("blue")}
		})
		got, err := native.Receive(t.Context(), "orders", driver.ReceiveRequest{Max: 1, Visibility: time.Minute})
		if err != nil || len(got) != 1 || string(got[0].Body) != "hello" || !reflect.DeepEqual(got[0].Attributes, map[string]string{"colour": "blue"}) {
			t.Errorf("got %+v, %v", got, err)
		}
	}))
}

func TestBatchesFailEntryByEntry(t *testing.T) {
	synctest.Test(t, with(setup{}, func(t *testing.T, c *client) {
		queue := c.create("orders", "MaximumMessageSize", "1024")
		out, err := c.SendMessageBatch(t.Context(), &sqs.SendMessageBatchInput{QueueUrl: queue, Entries: []types.SendMessageBatchRequestEntry{
			{Id: aws.String("good"), MessageBody: aws.String("a")},
			{Id: aws.String("long"), MessageBody: aws.String(strings.Repeat("x", 1025))},
			{Id: aws.String("bad"), MessageBody: aws.String("b\x00")},
			{Id: aws.String("late"), MessageBody: aws.String("b"), DelaySeconds: 901},
			{Id: aws.String("last"), MessageBody: aws.String("c")},
		}})
		if err != nil {
			t.Fatal(err)
		}
		codes := make(map[string]string)
		for _, f := range out.Failed {
			codes[*f.Id] = *f.Code
			if !f.SenderFault {
				t.Errorf("%s: the sender is to blame", *f.Id)
			}
		}
		want := map[string]string{"long": "InvalidParameterValue", "bad": "InvalidMessageContents", "late": "InvalidParameterValue"}
		if len(out.Successful) != 2 || !reflect.DeepEqual(codes, want) {
			t.Errorf("%d were sent, and failed %v", len(out.Successful), codes)
		}
		messages := c.receive(queue)
		if got := bodies(messages); !slices.Equal(got, []string{"a", "c"}) {
			t.Fatalf("got %v", got)
		}
		changed, err := c.ChangeMessageVisibilityBatch(t.Context(), &sqs.ChangeMessageVisibilityBatchInput{QueueUrl: queue, Entries: []types.ChangeMessageVisibilityBatchRequestEntry{
			{Id: aws.String("1"), ReceiptHandle: messages[0].ReceiptHandle, VisibilityTimeout: 60},
			{Id: aws.String("2"), ReceiptHandle: messages[1].ReceiptHandle, VisibilityTimeout: 43201},
			{Id: aws.String("3"), ReceiptHandle: aws.String("garbage"), VisibilityTimeout: 1},
		}})
		if err != nil || len(changed.Successful) != 1 || len(changed.Failed) != 2 {
			t.Errorf("got %+v, %v", changed, err)
		}
		deleted, err := c.DeleteMessageBatch(t.Context(), &sqs.DeleteMessageBatchInput{QueueUrl: queue, Entries: []types.DeleteMessageBatchRequestEntry{
			{Id: aws.String("1"), ReceiptHandle: messages[0].ReceiptHandle},
			{Id: aws.String("2"), ReceiptHandle: messages[1].ReceiptHandle},
			{Id: aws.String("3"), ReceiptHandle: aws.String("garbage")},
		}})
		if err != nil || len(deleted.Successful) != 2 || len(deleted.Failed) != 1 || *deleted.Failed[0].Code != "ReceiptHandleIsInvalid" {
			t.Errorf("got %+v, %v", deleted, err)
		}
	}))
}

func TestBatchesAreCheckedAsAWhole(t *testing.T) {
	synctest.Test(t, with(setup{}, func(t *testing.T, c *client) {
		queue := c.create("orders")
		batch := func(sizes ...int) error {
			var entries []types.SendMessageBatchRequestEntry
			for i, size := range sizes {
				entries = append(entries, types.SendMessageBatchRequestEntry{Id: aws.String(fmt.Sprint("e", i)), MessageBody: aws.String(strings.Repeat("x", size))})
			}
			_, err := c.SendMessageBatch(t.Context(), &sqs.SendMessageBatchInput{QueueUrl: queue, Entries: entries})
			return err
		}
		if err := batch(1, 1, 1, 1, 1, 1, 1, 1, 1, 1); err != nil {
			t.Errorf("ten: %v", err)
		}
		refused(t, "eleven", batch(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1), "AWS.SimpleQueueService.TooManyEntriesInBatchRequest")
		if err := batch(1<<19, 1<<19); err != nil {
			t.Errorf("1 MiB: %v", err)
		}
		refused(t, "1 MiB and a byte", batch(1<<19, 1<<19+1), "AWS.SimpleQueueService.BatchRequestTooLong")
		_, err := c.SendMessageBatch(t.Context(), &sqs.SendMessageBatchInput{QueueUrl: queue, Entries: []types.SendMessageBatchRequestEntry{}})
		refused(t, "none", err, "AWS.SimpleQueueService.EmptyBatchRequest")
		_, err = c.SendMessageBatch(t.Context(), &sqs.SendMessageBatchInput{QueueUrl: queue, Entries: []types.SendMessageBatchRequestEntry{
			{Id: aws.String("a"), MessageBody: aws.String("1")}, {Id: aws.String("a"), MessageBody: aws.String("2")},
		}})
		refused(t, "the same id twice", err, "AWS.SimpleQueueService.BatchEntryIdsNotDistinct")
		_, err = c.DeleteMessageBatch(t.Context(), &sqs.DeleteMessageBatchInput{QueueUrl: queue, Entries: []types.DeleteMessageBatchRequestEntry{
			{Id: aws.String("a b"), ReceiptHandle: aws.String("1")},
		}})
		refused(t, "a bad id", err, "AWS.SimpleQueueService.InvalidBatchEntryId")
	}))
}
