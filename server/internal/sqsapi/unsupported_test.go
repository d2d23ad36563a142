package sqsapi_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/membox"
)

// simple is a backend whose queues support only the mandatory operations.
type (
	simple      struct{ *membox.Backend }
	simpleQueue struct{ driver.Queue }
)

func (s simple) OpenQueue(ctx context.Context, name string) (driver.Queue, error) {
	q, err := s.Backend.OpenQueue(ctx, name)
	return simpleQueue{q}, err
}

func (q simpleQueue) Traits() driver.Traits {
	traits := q.Queue.Traits()
	traits.DeadLetters, traits.Peek, traits.Move, traits.LateAck = false, false, false, false
	traits.ForgetDedup, traits.Usage = false, false
	return traits
}

const unsupported = "AWS.SimpleQueueService.UnsupportedOperation"

func TestUnsupportedOperationsAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := membox.New(nil)
		defer backend.Close()
		c := serve(t, setup{opener: simple{backend}}).client("")
		c.create("dead")
		queue := c.create("orders", "RedrivePolicy", redrive("dead", 5))
		_, err := c.start("dead", "", 0)
		refused(t, "a move task", err, unsupported)
		c.send(queue, "x")
		old := c.one(queue, visible(1))
		c.send(queue, "y")
		c.delete(queue, c.one(queue)) // in time
		time.Sleep(time.Second)
		_, err = c.DeleteMessage(t.Context(), &sqs.DeleteMessageInput{QueueUrl: queue, ReceiptHandle: old.ReceiptHandle})
		refused(t, "a late deletion", err, unsupported)
		if err == nil || !strings.Contains(err.Error(), "expired") {
			t.Errorf("it says %v", err)
		}
		c.one(queue) // it still exists
	})
}

func TestSendToFullQueueIsThrottled(t *testing.T) {
	synctest.Test(t, with(setup{}, func(t *testing.T, c *client) {
		queue := c.create("orders")
		native, err := c.d.broker.Daemon("")
		if err != nil {
			t.Fatal(err)
		}
		config, err := native.Config(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		config.MaxMessages = 1
		if err := native.Configure(t.Context(), "orders", config); err != nil {
			t.Fatal(err)
		}
		c.send(queue, "x")
		_, err = c.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: queue, MessageBody: aws.String("y")})
		refused(t, "one more", err, "RequestThrottled")
		c.delete(queue, c.one(queue))
		c.send(queue, "y")
	}))
}

func TestRefusalsHaveTheStatusOfAWS(t *testing.T) {
	synctest.Test(t, with(setup{}, func(t *testing.T, c *client) {
		queue := c.create("orders")
		stranger := c.d.clientWith("test", "test", "")
		_, err := stranger.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: queue, MessageBody: aws.String("y")})
		var answer interface{ HTTPStatusCode() int }
		if !errors.As(err, &answer) || answer.HTTPStatusCode() != 403 {
			t.Errorf("without credentials: %v", err)
		}
		_, err = c.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: aws.String("none"), MessageBody: aws.String("y")})
		if !errors.As(err, &answer) || answer.HTTPStatusCode() != 400 {
			t.Errorf("no such queue: %v", err)
		}
		_, err = c.start("none", "", 0)
		if !errors.As(err, &answer) || answer.HTTPStatusCode() != 404 {
			t.Errorf("no such source: %v", err)
		}
	}))
}
