package sqsapi_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/server/internal/sqsapi"
)

// mortal creates a queue whose messages can be received once, and its dead-letter
// queue. send sends to the first.
func mortal(c *client, suffix string) (queue, dead *string, send func(body string)) {
	newQueue := c.create
	if suffix != "" {
		newQueue = c.createFIFO
	}
	dead = newQueue("dead" + suffix)
	policy := fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":1}`, c.attributes(dead)["QueueArn"])
	queue = newQueue("work"+suffix, "RedrivePolicy", policy)
	return queue, dead, func(body string) {
		if suffix == "" {
			c.send(queue, body)
		} else {
			c.send(queue, body, group("g", body))
		}
	}
}

func (c *client) deleteQueue(queue *string) {
	c.t.Helper()
	if _, err := c.DeleteQueue(c.t.Context(), &sqs.DeleteQueueInput{QueueUrl: queue}); err != nil {
		c.t.Fatalf("delete queue: %v", err)
	}
}

// kinds are the suffixes of names: of standard and of FIFO queues.
var kinds = []string{"", ".fifo"}

func TestMessageIsStillDeliveredWithoutDeadLetterQueue(t *testing.T) {
	for _, suffix := range kinds {
		synctest.Test(t, with(setup{}, func(t *testing.T, c *client) {
			queue, dead, send := mortal(c, suffix)
			send("a")
			c.deleteQueue(dead)
			time.Sleep(time.Minute)
			for i := range 3 {
				if got := bodies(c.receive(queue, visible(5))); len(got) != 1 {
					t.Fatalf("receive %d brought %q, want the message", i, got)
				}
				time.Sleep(6 * time.Second)
			}
			_, dead, _ = mortal(c, suffix) // the dead-letter queue exists again
			time.Sleep(time.Minute)
			c.receive(queue, visible(5)) // notices that the dead-letter queue exists
			time.Sleep(6 * time.Second)
			c.receive(queue, visible(5))
			time.Sleep(6 * time.Second)
			if got := bodies(c.receive(dead)); len(got) != 1 {
				t.Errorf("the dead-letter queue has %q, want the message", got)
			}
		}))
	}
}

func TestDeadLettersOfDeletedQueueAreRedriven(t *testing.T) {
	for _, suffix := range kinds {
		synctest.Test(t, with(setup{}, func(t *testing.T, c *client) {
			queue, dead, send := mortal(c, suffix)
			send("a")
			send("b")
			if got := c.receive(queue, visible(5)); len(got) != 2 {
				t.Fatalf("got %d messages, want two", len(got))
			}
			c.deleteQueue(dead)
			time.Sleep(2 * time.Minute)
			if got := bodies(c.receive(queue)); len(got) != 2 {
				t.Errorf("the queue has %q, want both messages", got)
			}
		}))
	}
}

func TestDeadLettersThatFoundQueueFullAreRedriven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := membox.New(&membox.Options{MaxBodyBytes: sqsapi.MaxPayloadBytes})
		defer func() { _ = backend.Close() }()
		c := serve(t, setup{opener: backend}).client("")
		queue, dead, send := mortal(c, "")
		config, err := backend.QueueConfig(t.Context(), "dead")
		config.MaxMessages = 1
		if err == nil {
			err = backend.ConfigureQueue(t.Context(), "dead", config)
		}
		if err != nil {
			t.Fatal(err)
		}
		send("a")
		send("b")
		c.receive(queue, visible(5))
		time.Sleep(2 * time.Minute)
		c.delete(dead, c.one(dead))
		if got := bodies(c.receive(queue, visible(5))); len(got) != 1 {
			t.Fatalf("the queue has %q, want the message that the other had no room for", got)
		}
		time.Sleep(6 * time.Second)
		if got := bodies(c.receive(dead)); len(got) != 1 {
			t.Errorf("the dead-letter queue has %q, want the other message", got)
		}
	})
}

func TestDeletedDeadLetterQueueStaysDeleted(t *testing.T) {
	for _, suffix := range kinds {
		synctest.Test(t, with(setup{}, func(t *testing.T, c *client) {
			queue, dead, _ := mortal(c, suffix)
			c.deleteQueue(dead)
			tags := &sqs.TagQueueInput{QueueUrl: queue, Tags: map[string]string{"a": "b"}}
			if _, err := c.TagQueue(t.Context(), tags); err != nil {
				t.Fatal(err)
			}
			_, err := c.GetQueueUrl(t.Context(), &sqs.GetQueueUrlInput{QueueName: aws.String("dead" + suffix)})
			refused(t, "the URL of the deleted queue", err, "AWS.SimpleQueueService.NonExistentQueue")
			_, dead, _ = mortal(c, suffix)
			sources, err := c.ListDeadLetterSourceQueues(t.Context(), &sqs.ListDeadLetterSourceQueuesInput{QueueUrl: dead})
			if err != nil || len(sources.QueueUrls) != 1 {
				t.Errorf("sources %v %v, want the one whose policy names the new queue", sources, err)
			}
		}))
	}
}

func TestNewDeadLetterQueueObeysItsAllowPolicy(t *testing.T) {
	for _, suffix := range kinds {
		synctest.Test(t, with(setup{}, func(t *testing.T, c *client) {
			queue, dead, send := mortal(c, suffix)
			send("a")
			c.deleteQueue(dead)
			time.Sleep(time.Minute)
			c.receive(queue, visible(5)) // notices that the dead-letter queue is gone
			time.Sleep(6 * time.Second)
			attributes := map[string]string{"RedriveAllowPolicy": `{"redrivePermission":"denyAll"}`}
			if suffix != "" {
				attributes["FifoQueue"] = "true"
			}
			if _, err := c.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: aws.String("dead" + suffix), Attributes: attributes}); err != nil {
				t.Fatal(err)
			}
			for i := range 3 {
				if got := bodies(c.receive(queue, visible(5))); len(got) != 1 {
					t.Fatalf("receive %d brought %q, want the message", i, got)
				}
				time.Sleep(6 * time.Second)
			}
		}))
	}
}
