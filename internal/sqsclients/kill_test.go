package sqsclients_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/mailboxmq/mailbox/internal/testing/proctest"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

// A ledger is what clients know of messages: what the daemon acknowledged, and when.
type ledger struct {
	mu      sync.Mutex
	sent    map[string]bool      // acknowledged
	tried   map[string]bool      // sent without an answer: may exist or not
	deleted map[string]time.Time // acknowledged
	unsure  map[string]bool      // deleted without an answer
	wrong   []string
}

func newLedger() *ledger {
	return &ledger{sent: make(map[string]bool), tried: make(map[string]bool), deleted: make(map[string]time.Time), unsure: make(map[string]bool)}
}

// received checks messages against the ledger, for a request that was made at a time.
func (l *ledger) received(asked time.Time, messages []types.Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range messages {
		body := *messages[i].Body
		if !l.sent[body] && !l.tried[body] {
			l.wrong = append(l.wrong, body+" was received and never sent")
		}
		if at, ok := l.deleted[body]; ok && at.Before(asked) {
			l.wrong = append(l.wrong, body+" was deleted and came back")
		}
	}
}

// load is clients that send to a queue and delete the messages they receive, until the
// context ends, whether the daemon runs or not. They do not retry.
type load struct {
	*ledger
	client *sqs.Client
	queue  *string
	number atomic.Int64
	wg     sync.WaitGroup
}

const loadWorkers = 4

func (l *load) start(ctx context.Context) {
	for range loadWorkers {
		l.wg.Go(func() { l.produce(ctx) })
		l.wg.Go(func() { l.consume(ctx) })
	}
}

func (l *load) produce(ctx context.Context) {
	for ctx.Err() == nil {
		entries := make([]types.SendMessageBatchRequestEntry, 10)
		l.mu.Lock()
		for i := range entries {
			body := fmt.Sprintf("message %d", l.number.Add(1))
			entries[i] = types.SendMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), MessageBody: &body}
			l.tried[body] = true
		}
		l.mu.Unlock()
		out, err := l.client.SendMessageBatch(ctx, &sqs.SendMessageBatchInput{QueueUrl: l.queue, Entries: entries})
		if err != nil {
			rest(ctx)
			continue
		}
		l.mu.Lock()
		for i := range out.Successful {
			n, _ := strconv.Atoi(*out.Successful[i].Id) // an id of ours
			l.sent[*entries[n].MessageBody] = true
		}
		l.mu.Unlock()
	}
}

// rest pauses while the daemon may be restarting.
func rest(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(20 * time.Millisecond):
	}
}

func (l *load) consume(ctx context.Context) {
	for ctx.Err() == nil {
		if !l.take(ctx, 1) {
			rest(ctx)
		}
	}
}

// take receives and deletes once, and reports whether it got messages.
func (l *load) take(ctx context.Context, wait int32) bool {
	asked := time.Now()
	got, err := l.client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: l.queue, MaxNumberOfMessages: 10, WaitTimeSeconds: wait, VisibilityTimeout: 5})
	if err != nil || len(got.Messages) == 0 {
		return false
	}
	l.received(asked, got.Messages)
	entries := make([]types.DeleteMessageBatchRequestEntry, len(got.Messages))
	l.mu.Lock()
	for i := range got.Messages {
		l.unsure[*got.Messages[i].Body] = true
		entries[i] = types.DeleteMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), ReceiptHandle: got.Messages[i].ReceiptHandle}
	}
	l.mu.Unlock()
	out, err := l.client.DeleteMessageBatch(ctx, &sqs.DeleteMessageBatchInput{QueueUrl: l.queue, Entries: entries})
	if err != nil {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range out.Successful {
		n, _ := strconv.Atoi(*out.Successful[i].Id) // an id of ours
		l.deleted[*got.Messages[n].Body] = time.Now()
	}
	return true
}

// judge fails the test for each message that was lost or came back, once the queue is
// empty. It returns how many the daemon had acknowledged.
func (l *load) judge(t *testing.T) (sent, deleted int) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, wrong := range l.wrong {
		t.Error(wrong)
	}
	for body := range l.sent {
		if !l.unsure[body] { // those were received at least once
			t.Errorf("%s was acknowledged and never received", body)
		}
	}
	return len(l.sent), len(l.deleted)
}

// waiting returns how many messages a queue has in all.
func (d *daemon) waiting(queue *string) int {
	d.t.Helper()
	out, err := d.client(3).GetQueueAttributes(d.t.Context(), &sqs.GetQueueAttributesInput{QueueUrl: queue, AttributeNames: []types.QueueAttributeName{"All"}})
	if err != nil {
		d.t.Fatal(err)
	}
	sum := 0
	for _, name := range []string{"ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible", "ApproximateNumberOfMessagesDelayed"} {
		n, err := strconv.Atoi(out.Attributes[name])
		if err != nil {
			d.t.Fatalf("%s is %q", name, out.Attributes[name])
		}
		sum += n
	}
	return sum
}

func TestKillsLoseNoAcknowledgedMessage(t *testing.T) {
	t.Parallel()
	d := start(t)
	kills := volume.Count(t, 4, 50)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	work := &load{ledger: newLedger(), client: d.client(1), queue: d.create("work", nil)}
	work.start(ctx)
	strict := &strictLoad{client: d.client(1), queue: d.create("work.fifo", map[string]string{"FifoQueue": "true"})}
	strict.start(ctx)
	for round := range kills {
		had := work.number.Load()
		proctest.Eventually(t, time.Minute, "under load", func() bool { return work.number.Load() > had+500 })
		want := d.change(round)
		d.Kill()
		d.launch()
		d.check(round, want)
	}
	cancel()
	work.wg.Wait()
	strict.wg.Wait()
	for d.waiting(work.queue) > 0 {
		work.take(t.Context(), 5)
	}
	sent, deleted := work.judge(t)
	t.Logf("%d kills: %d sends and %d deletions were acknowledged, none lost; %d in strict order", kills, sent, deleted, strict.judge(t, d))
}

// change creates, deletes and changes queues, as a client would. It returns the tags of
// the queue of the round.
func (d *daemon) change(round int) map[string]string {
	d.t.Helper()
	c, ctx := d.client(3), d.t.Context()
	tags := map[string]string{"round": strconv.Itoa(round), "team": "shop"}
	queue := d.create(fmt.Sprintf("round-%d", round), map[string]string{"VisibilityTimeout": "17", "DelaySeconds": "3"})
	_, tagged := c.TagQueue(ctx, &sqs.TagQueueInput{QueueUrl: queue, Tags: tags})
	_, set := c.SetQueueAttributes(ctx, &sqs.SetQueueAttributesInput{QueueUrl: queue, Attributes: map[string]string{
		"DelaySeconds": strconv.Itoa(100 + round), "RedrivePolicy": fmt.Sprintf(`{"deadLetterTargetArn":"%s","maxReceiveCount":3}`, arn("work")),
	}})
	if err := errors.Join(tagged, set); err != nil {
		d.t.Fatal(err)
	}
	if round > 0 {
		if _, err := c.DeleteQueue(ctx, &sqs.DeleteQueueInput{QueueUrl: aws.String(fmt.Sprintf("round-%d", round-1))}); err != nil {
			d.t.Fatal(err)
		}
	}
	return tags
}

// check checks that the results of change have survived the kill.
func (d *daemon) check(round int, tags map[string]string) {
	d.t.Helper()
	c, ctx, queue := d.client(3), d.t.Context(), aws.String(fmt.Sprintf("round-%d", round))
	got, err := c.ListQueueTags(ctx, &sqs.ListQueueTagsInput{QueueUrl: queue})
	if err != nil || !maps.Equal(got.Tags, tags) {
		d.t.Fatalf("round %d: tags are %v, %v", round, got, err)
	}
	out, err := c.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{QueueUrl: queue, AttributeNames: []types.QueueAttributeName{"All"}})
	if err != nil {
		d.t.Fatal(err)
	}
	for name, want := range map[string]string{"VisibilityTimeout": "17", "DelaySeconds": strconv.Itoa(100 + round)} {
		if out.Attributes[name] != want {
			d.t.Errorf("round %d: %s is %q, want %q", round, name, out.Attributes[name], want)
		}
	}
	if out.Attributes["RedrivePolicy"] == "" {
		d.t.Errorf("round %d: the policy is gone", round)
	}
	if round > 0 {
		_, err := c.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: aws.String(fmt.Sprintf("round-%d", round-1))})
		if _, gone := errors.AsType[*types.QueueDoesNotExist](err); !gone {
			d.t.Errorf("round %d: the deleted queue answers %v", round, err)
		}
	}
}
