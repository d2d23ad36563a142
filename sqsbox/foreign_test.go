package sqsbox_test

import (
	"maps"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/sqstest"
)

// openBeside opens a queue, and returns another client and the URL to use it with.
func openBeside(t *testing.T, name string) (queue driver.Queue, client *sqs.Client, url *string) {
	t.Helper()
	prefix := sqstest.Prefix()
	queue, err := openSite(t, prefix).OpenQueue(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	client = sqstest.Shared(t).Client()
	found, err := client.GetQueueUrl(t.Context(), &sqs.GetQueueUrlInput{QueueName: aws.String(prefix + name)})
	if err != nil {
		t.Fatal(err)
	}
	return queue, client, found.QueueUrl
}

func TestOtherClientsReadWhatWeSend(t *testing.T) {
	t.Parallel()
	queue, client, url := openBeside(t, "orders")
	if _, err := queue.Send(t.Context(), []driver.Outgoing{{
		Body: []byte(`{"order":1}`), Attributes: map[string]string{"kind": "order", "größe": "L"}, ReplyTo: "answers",
	}}); err != nil {
		t.Fatal(err)
	}
	got, err := client.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: url, MessageAttributeNames: []string{"All"}})
	if err != nil || len(got.Messages) != 1 {
		t.Fatalf("got %v, %v", got, err)
	}
	m := got.Messages[0]
	if *m.Body != `{"order":1}` || *m.MessageAttributes["kind"].StringValue != "order" || len(m.MessageAttributes) != 2 {
		t.Errorf("another client got %q with %v", *m.Body, m.MessageAttributes)
	}
	const metadata = `{"reply_to":"answers","attributes":{"größe":"L"}}`
	if *m.MessageAttributes["mailbox"].StringValue != metadata {
		t.Errorf("got the metadata %s, want %s", *m.MessageAttributes["mailbox"].StringValue, metadata)
	}
}

func TestWeReadWhatOtherClientsSend(t *testing.T) {
	t.Parallel()
	queue, client, url := openBeside(t, "orders.fifo")
	sent, err := client.SendMessage(t.Context(), &sqs.SendMessageInput{
		QueueUrl: url, MessageBody: aws.String("hello"), MessageGroupId: aws.String("g"), MessageDeduplicationId: aws.String("1"),
		MessageAttributes: map[string]types.MessageAttributeValue{
			"price": {DataType: aws.String("Number"), StringValue: aws.String("12.5")},
			"image": {DataType: aws.String("Binary"), BinaryValue: []byte{0xff}},
			"kind":  {DataType: aws.String("String.custom"), StringValue: aws.String("order")},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	got, err := queue.Receive(t.Context(), driver.ReceiveRequest{Max: 10, Visibility: time.Minute, Wait: time.Second})
	if err != nil || len(got) != 1 {
		t.Fatalf("got %v, %v", got, err)
	}
	d := got[0]
	want := map[string]string{"price": "12.5", "image": "/w==", "kind": "order"}
	if string(d.Body) != "hello" || d.Group != "g" || d.Deliveries != 1 || len(d.ID) != 26 || !maps.Equal(d.Attributes, want) {
		t.Errorf("got %+v", d)
	}
	if time.Since(d.EnqueuedAt).Abs() > time.Minute {
		t.Errorf("it was sent at %v", d.EnqueuedAt)
	}
	if err := queue.Ack(t.Context(), []driver.Receipt{d.Receipt}); err != nil {
		t.Errorf("ack of message %s: %v", *sent.MessageId, err)
	}
}

func TestDedupKeyOfAnotherProcessReturnsItsMessage(t *testing.T) {
	t.Parallel()
	prefix := sqstest.Prefix()
	var ids []string
	for range 2 { // each backend has its own local state
		queue, err := openSite(t, prefix).OpenQueue(t.Context(), "orders.fifo")
		if err != nil {
			t.Fatal(err)
		}
		sent, err := queue.Send(t.Context(), []driver.Outgoing{{Body: []byte("body"), DedupKey: "key"}})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, sent[0].ID)
		if sent[0].Duplicate {
			t.Error("a process cannot know that another one sent the first message")
		}
	}
	if ids[0] != ids[1] {
		t.Errorf("two messages, %s and %s", ids[0], ids[1])
	}
}
