package sqsapi_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/server/internal/sqsapi"
)

// sendBacklog sends n messages of a group, in batches of ten.
func (c *client) sendBacklog(queue *string, group string, n int) {
	c.t.Helper()
	for sent := 0; sent < n; sent += 10 {
		input := &sqs.SendMessageBatchInput{QueueUrl: queue}
		for i := range 10 {
			input.Entries = append(input.Entries, types.SendMessageBatchRequestEntry{
				Id: aws.String(fmt.Sprint(i)), MessageBody: aws.String(fmt.Sprint(group, sent+i+1)), MessageGroupId: &group,
			})
		}
		if out, err := c.SendMessageBatch(c.t.Context(), input); err != nil || len(out.Failed) > 0 {
			c.t.Fatalf("send a batch: %v, %v", err, out)
		}
	}
}

func TestQuietGroupIsNotDelayedByNoisyGroup(t *testing.T) {
	synctest.Test(t, with(setup{}, func(t *testing.T, c *client) {
		queue := c.create("orders")
		c.sendBacklog(queue, "noisy", 1000)
		c.send(queue, "quiet1", group("quiet", ""))
		c.send(queue, "alone")
		if got := bodies(c.receive(queue)); len(got) != 10 || got[0] != "noisy1" || got[1] != "quiet1" || got[2] != "alone" || got[9] != "noisy8" {
			t.Errorf("the first ten are %v", got)
		}
		c.send(queue, "quiet2", group("quiet", ""))
		m := c.one(queue)
		if *m.Body != "quiet2" || m.Attributes["MessageGroupId"] != "quiet" {
			t.Errorf("with eight of the noisy group in flight, %s of %s is next", *m.Body, m.Attributes["MessageGroupId"])
		}
		counts := c.attributes(queue, "ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible")
		if counts["ApproximateNumberOfMessages"] != "992" || counts["ApproximateNumberOfMessagesNotVisible"] != "11" {
			t.Errorf("counts are %v", counts)
		}
	}))
}

func TestEveryMessageOfNoisyGroupIsDelivered(t *testing.T) {
	synctest.Test(t, with(setup{}, func(t *testing.T, c *client) {
		queue := c.create("orders")
		c.sendBacklog(queue, "noisy", 50)
		seen := make(map[string]bool)
		for i := range 10 {
			c.send(queue, fmt.Sprint("quiet", i), group(fmt.Sprint("tenant", i), ""))
		}
		for range 6 {
			for _, m := range c.receive(queue) {
				seen[*m.Body] = true
				c.delete(queue, m)
			}
		}
		if len(seen) != 60 || len(c.receive(queue)) != 0 {
			t.Errorf("%d of 60 messages were received", len(seen))
		}
	}))
}

// plainBox has no fair groups.
type plainBox struct{ *membox.Backend }

func (b plainBox) ConfigureQueue(ctx context.Context, name string, config driver.Config) error {
	if config.FairGroups {
		return &driver.Error{Code: driver.ErrUnsupported, Op: "configure", Queue: name, Field: "FairGroups"}
	}
	return b.Backend.ConfigureQueue(ctx, name, config)
}

// On a backend without fair groups, and in queues from before they existed, groups are
// stored and do not change the order.
func TestQueuesWorkOnBackendWithoutFairGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := membox.New(&membox.Options{MaxBodyBytes: sqsapi.MaxPayloadBytes})
		defer backend.Close()
		old := serve(t, setup{opener: plainBox{backend}})
		queue := old.client("").create("orders")
		old.close()
		c := serve(t, setup{opener: backend}).client("")
		if err := c.set(queue, "VisibilityTimeout", "60"); err != nil {
			t.Fatalf("an old queue cannot be changed: %v", err)
		}
		c.send(queue, "a1", group("a", ""))
		c.send(queue, "a2", group("a", ""))
		c.send(queue, "b1", group("b", ""))
		if got := bodies(c.receive(queue)); len(got) != 3 || got[1] != "a2" {
			t.Errorf("received %v", got)
		}
		config, err := backend.QueueConfig(t.Context(), "orders")
		if err != nil || config.FairGroups {
			t.Errorf("configured %+v, %v", config, err)
		}
	})
}
