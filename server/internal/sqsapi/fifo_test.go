package sqsapi_test

import (
	"fmt"
	"math/big"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

func TestGroupsAreDeliveredInOrderBatchByBatch(t *testing.T) {
	synctest.Test(t, with(setup{}, func(t *testing.T, c *client) {
		queue := c.createFIFO("orders.fifo")
		for i, m := range []string{"a1", "b1", "a2", "b2", "a3"} {
			c.send(queue, m, group(m[:1], fmt.Sprint(i)))
		}
		first := c.one(queue)
		if *first.Body != "a1" || first.Attributes["MessageGroupId"] != "a" || first.Attributes["MessageDeduplicationId"] != "0" {
			t.Errorf("got %v", first)
		}
		others := c.receive(queue)
		if got := bodies(others); !slices.Equal(got, []string{"b1", "b2"}) {
			t.Errorf("while a is in flight: %v", got)
		}
		if err := c.change(queue, first, 0); err != nil {
			t.Fatal(err)
		}
		again := c.receive(queue)
		if got := bodies(again); !slices.Equal(got, []string{"a1", "a2", "a3"}) {
			t.Errorf("when it is back: %v", got)
		}
		c.delete(queue, again[0])
		time.Sleep(30 * time.Second) // the rest comes back in order
		if got := bodies(c.receive(queue, visible(5))); !slices.Equal(got, []string{"b1", "b2", "a2", "a3"}) {
			t.Errorf("after the timeout: %v", got)
		}
	}))
}

func TestSequenceNumbersGrow(t *testing.T) {
	synctest.Test(t, with(setup{}, func(t *testing.T, c *client) {
		queue := c.createFIFO("orders.fifo")
		last := new(big.Int)
		for i := range 20 {
			out, err := c.SendMessage(t.Context(), &sqs.SendMessageInput{
				QueueUrl: queue, MessageBody: aws.String("x"), MessageGroupId: aws.String("g"), MessageDeduplicationId: aws.String(fmt.Sprint(i)),
			})
			if err != nil {
				t.Fatal(err)
			}
			number, ok := new(big.Int).SetString(*out.SequenceNumber, 10)
			if !ok || number.Cmp(last) <= 0 {
				t.Fatalf("%s after %v", *out.SequenceNumber, last)
			}
			last = number
			if i%3 == 0 {
				time.Sleep(time.Millisecond)
			}
		}
		if got := c.receive(queue)[9].Attributes["SequenceNumber"]; len(got) < 20 {
			t.Errorf("received %q", got)
		}
	}))
}

func TestDedupIDIsRememberedForFiveMinutes(t *testing.T) {
	synctest.Test(t, with(setup{}, func(t *testing.T, c *client) {
		queue := c.createFIFO("orders.fifo")
		id := c.send(queue, "x", group("g", "1"))
		time.Sleep(5*time.Minute - time.Millisecond)
		for _, body := range []string{"x", "another body"} {
			if again := c.send(queue, body, group("g", "1")); again != id {
				t.Errorf("%s: sent as %s, was %s", body, again, id)
			}
		}
		if again := c.send(queue, "x", group("other", "1")); again != id {
			t.Error("the group counts, though the scope is the queue")
		}
		m := c.receive(queue)
		if len(m) != 1 || *m[0].Body != "x" {
			t.Errorf("got %v", bodies(m))
		}
		c.delete(queue, m[0])
		if again := c.send(queue, "x", group("g", "1")); again != id {
			t.Error("a deletion ends the window")
		}
		time.Sleep(time.Millisecond)
		if again := c.send(queue, "x", group("g", "1")); again == id {
			t.Error("the window does not end")
		}
	}))
}

func TestContentBasedDeduplicationUsesBody(t *testing.T) {
	synctest.Test(t, with(setup{}, func(t *testing.T, c *client) {
		queue := c.createFIFO("orders.fifo", "ContentBasedDeduplication", "true")
		first := c.send(queue, "x", group("g", ""))
		if c.send(queue, "x", group("g", "")) != first || c.send(queue, "y", group("g", "")) == first || c.send(queue, "x", group("g", "own")) == first {
			t.Error("the body must be the dedup id if the message has none")
		}
		want := "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881" // SHA-256 of x
		if got := c.one(queue).Attributes["MessageDeduplicationId"]; got != want {
			t.Errorf("got %s", got)
		}
	}))
}

func TestDedupScopeCanBeTheGroup(t *testing.T) {
	synctest.Test(t, with(setup{}, func(t *testing.T, c *client) {
		queue := c.createFIFO("orders.fifo", "DeduplicationScope", "messageGroup", "FifoThroughputLimit", "perMessageGroupId")
		first := c.send(queue, "x", group("a", "1"))
		if c.send(queue, "x", group("b", "1")) == first {
			t.Error("another group is another message")
		}
		if c.send(queue, "y", group("a", "1")) != first {
			t.Error("within the group it is the same")
		}
		if got := c.receive(queue)[0].Attributes["MessageDeduplicationId"]; got != "1" {
			t.Errorf("received as %q", got)
		}
	}))
}

func TestFIFOQueuesCheckTheirParameters(t *testing.T) {
	synctest.Test(t, with(setup{}, func(t *testing.T, c *client) {
		standard, fifo := c.create("orders"), c.createFIFO("orders.fifo")
		send := func(queue *string, change func(*sqs.SendMessageInput)) error {
			input := &sqs.SendMessageInput{QueueUrl: queue, MessageBody: aws.String("x")}
			change(input)
			_, err := c.SendMessage(t.Context(), input)
			return err
		}
		refused(t, "no group", send(fifo, func(in *sqs.SendMessageInput) { in.MessageDeduplicationId = aws.String("1") }), "MissingParameter")
		refused(t, "no dedup id", send(fifo, group("g", "")), "InvalidParameterValue")
		refused(t, "a delay", send(fifo, func(in *sqs.SendMessageInput) {
			group("g", "1")(in)
			in.DelaySeconds = 1
		}), "InvalidParameterValue")
		refused(t, "a dedup id on a standard queue", send(standard, group("g", "1")), "InvalidParameterValue")
		_, err := c.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: standard, ReceiveRequestAttemptId: aws.String("1")})
		refused(t, "an attempt on a standard queue", err, "InvalidParameterValue")
		for what, id := range map[string]string{"too long": strings.Repeat("g", 129), "a blank": "a b", "a letter beyond": "ä"} {
			refused(t, "a group: "+what, send(fifo, group(id, "1")), "InvalidParameterValue")
			refused(t, "a dedup id: "+what, send(fifo, group("g", id)), "InvalidParameterValue")
		}
		long := strings.Repeat("~", 128)
		if err := send(fifo, group(long, long)); err != nil {
			t.Errorf("128 characters: %v", err)
		}
		if err := send(standard, group("fair", "")); err != nil {
			t.Errorf("a group on a standard queue: %v", err)
		}
		if got := c.one(standard).Attributes; got["MessageGroupId"] != "fair" || got["SequenceNumber"] != "" {
			t.Errorf("got %v", got)
		}
	}))
}

func TestQueueDelayAppliesToAllMessagesOfFIFOQueue(t *testing.T) {
	synctest.Test(t, with(setup{}, func(t *testing.T, c *client) {
		queue := c.createFIFO("orders.fifo", "DelaySeconds", "3")
		c.send(queue, "x", group("g", "1"))
		time.Sleep(3*time.Second - time.Millisecond)
		if got := c.receive(queue); len(got) != 0 {
			t.Error("too early")
		}
		time.Sleep(time.Millisecond)
		c.one(queue)
	}))
}

func TestFIFOQueuesRefuseOldReceipts(t *testing.T) {
	synctest.Test(t, with(setup{}, func(t *testing.T, c *client) {
		queue := c.createFIFO("orders.fifo")
		c.send(queue, "x", group("g", "1"))
		old := c.one(queue, visible(1))
		time.Sleep(time.Second)
		_, err := c.DeleteMessage(t.Context(), &sqs.DeleteMessageInput{QueueUrl: queue, ReceiptHandle: old.ReceiptHandle})
		refused(t, "delete", err, "InvalidParameterValue")
		if err == nil || !strings.Contains(err.Error(), "The receipt handle has expired") {
			t.Errorf("it says %v", err)
		}
		refused(t, "change", c.change(queue, old, 5), "InvalidParameterValue")
		out, err := c.DeleteMessageBatch(t.Context(), &sqs.DeleteMessageBatchInput{QueueUrl: queue, Entries: []types.DeleteMessageBatchRequestEntry{
			{Id: aws.String("1"), ReceiptHandle: old.ReceiptHandle},
		}})
		if err != nil || len(out.Failed) != 1 {
			t.Errorf("got %v, %v", out, err)
		}
		c.one(queue)
	}))
}

// attempt sets the ReceiveRequestAttemptId.
func attempt(id string) func(*sqs.ReceiveMessageInput) {
	return func(in *sqs.ReceiveMessageInput) { in.ReceiveRequestAttemptId = &id }
}

func TestRepeatedAttemptReturnsSameMessages(t *testing.T) {
	synctest.Test(t, with(setup{}, func(t *testing.T, c *client) {
		queue := c.createFIFO("orders.fifo")
		for i, g := range []string{"a", "a", "b"} {
			c.send(queue, fmt.Sprint(i), group(g, fmt.Sprint(i)))
		}
		two := func(in *sqs.ReceiveMessageInput) { in.MaxNumberOfMessages = 2 }
		first := c.receive(queue, attempt("1"), two, visible(30))
		time.Sleep(20 * time.Second)
		again := c.receive(queue, attempt("1"), two, visible(30))
		if len(first) != 2 || len(again) != 2 || *first[0].ReceiptHandle != *again[0].ReceiptHandle || *first[1].MessageId != *again[1].MessageId {
			t.Fatalf("got %v, then %v", bodies(first), bodies(again))
		}
		if got := bodies(c.receive(queue, attempt("2"))); !slices.Equal(got, []string{"2"}) {
			t.Errorf("another attempt: %v", got)
		}
		time.Sleep(20 * time.Second) // within the lease that the repetition extended
		c.delete(queue, first[0])
		got := c.receive(queue, attempt("1"), two, visible(30))
		if len(got) != 0 {
			t.Errorf("after a deletion it is not a repetition: %v", bodies(got))
		}
		time.Sleep(6 * time.Minute)
		held := c.receive(queue, attempt("1"), visible(3600))
		if len(held) != 2 {
			t.Errorf("after six minutes it is another one: %v", bodies(held))
		}
		time.Sleep(5*time.Minute - time.Millisecond)
		if got := c.receive(queue, attempt("1"), visible(3600)); len(got) != 2 {
			t.Errorf("within five minutes it is the same: %v", bodies(got))
		}
		time.Sleep(time.Millisecond)
		if got := c.receive(queue, attempt("1"), visible(3600)); len(got) != 0 {
			t.Errorf("after five minutes, while they are in flight, there is nothing: %v", bodies(got))
		}
	}))
}

func TestAttemptWaitsForSameAttemptUnderWay(t *testing.T) {
	synctest.Test(t, with(setup{}, func(t *testing.T, c *client) {
		queue := c.createFIFO("orders.fifo")
		results := make(chan []types.Message, 2)
		for range 2 {
			go func() { results <- c.receive(queue, attempt("1"), waiting(20)) }()
		}
		time.Sleep(time.Second)
		c.send(queue, "x", group("g", "1"))
		one, two := <-results, <-results
		if len(one) != 1 || len(two) != 1 || *one[0].ReceiptHandle != *two[0].ReceiptHandle {
			t.Errorf("got %v and %v", bodies(one), bodies(two))
		}
	}))
}

func TestPurgeForgetsDedupIDsOfFIFOQueue(t *testing.T) {
	synctest.Test(t, with(setup{}, func(t *testing.T, c *client) {
		queue := c.createFIFO("orders.fifo")
		c.send(queue, "x", group("g", "once"))
		if _, err := c.PurgeQueue(t.Context(), &sqs.PurgeQueueInput{QueueUrl: queue}); err != nil {
			t.Fatal(err)
		}
		id := c.send(queue, "y", group("g", "once"))
		if m := c.one(queue); *m.MessageId != id || *m.Body != "y" {
			t.Errorf("got %q, want the message that was sent after the purge", *m.Body)
		}
	}))
}

func TestPurgeForgetsDedupIDsOverQueryProtocol(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := serve(t, setup{unsigned: true})
		for _, parameters := range []string{
			"Action=CreateQueue&QueueName=orders.fifo&Attribute.1.Name=FifoQueue&Attribute.1.Value=true",
			"Action=SendMessage&QueueUrl=orders.fifo&MessageBody=x&MessageGroupId=g&MessageDeduplicationId=once",
			"Action=PurgeQueue&QueueUrl=orders.fifo",
			"Action=SendMessage&QueueUrl=orders.fifo&MessageBody=x&MessageGroupId=g&MessageDeduplicationId=once",
		} {
			if status, _, body := d.post(t, "/", parameters, nil); status != http.StatusOK {
				t.Fatalf("%s: %d %s", parameters, status, body)
			}
		}
		if _, _, body := d.post(t, "/", "Action=ReceiveMessage&QueueUrl=orders.fifo", nil); !strings.Contains(body, "<Body>x</Body>") {
			t.Errorf("the message that was sent after the purge is missing: %s", body)
		}
	})
}
