package sqsclients_test

import (
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

// drain is many consumers that empty a queue, and their measurements.
type drain struct {
	d      *daemon
	queue  *string
	next   []atomic.Int64 // next message of each group; nil for a standard queue
	taken  atomic.Int64
	rate   float64       // messages received and deleted per second, in the fastest run
	server time.Duration // processor time
}

// run receives messages until this many have been received in all.
func (r *drain) run(consumers, until int) error {
	began, before, server := time.Now(), r.taken.Load(), r.d.processor()
	errs := make([]error, consumers)
	var wg sync.WaitGroup
	for i := range consumers {
		wg.Go(func() {
			c := r.d.client(3)
			for int(r.taken.Load()) < until && errs[i] == nil {
				errs[i] = r.take(c)
			}
		})
	}
	wg.Wait()
	r.rate = max(r.rate, float64(r.taken.Load()-before)/time.Since(began).Seconds())
	r.server += r.d.processor() - server
	return errors.Join(errs...)
}

func (r *drain) take(c *sqs.Client) error {
	ctx := r.d.t.Context()
	got, err := c.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: r.queue, MaxNumberOfMessages: 10, VisibilityTimeout: 600})
	if err != nil || len(got.Messages) == 0 {
		return err
	}
	entries := make([]types.DeleteMessageBatchRequestEntry, len(got.Messages))
	for i := range got.Messages {
		if err := r.inOrder(*got.Messages[i].Body); err != nil {
			return err
		}
		entries[i] = types.DeleteMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), ReceiptHandle: got.Messages[i].ReceiptHandle}
	}
	out, err := c.DeleteMessageBatch(ctx, &sqs.DeleteMessageBatchInput{QueueUrl: r.queue, Entries: entries})
	if err == nil && len(out.Failed) > 0 {
		err = errors.New("a deletion failed: " + aws.ToString(out.Failed[0].Message))
	}
	r.taken.Add(int64(len(entries)))
	return err
}

// inOrder checks that a message is the next of its group. While it is in flight no other
// message of the group may be, so no other consumer reads that group now.
func (r *drain) inOrder(body string) error {
	if r.next == nil {
		return nil
	}
	n, err := strconv.Atoi(body)
	if err != nil {
		return err
	}
	groups := len(r.next)
	if want := r.next[n%groups].Swap(int64(n + groups)); int64(n) != want {
		return errors.New("out of order: got " + body + ", want " + strconv.FormatInt(want, 10))
	}
	return nil
}

// cost returns the processor time of the daemon per message.
func (r *drain) cost() time.Duration { return r.server / time.Duration(max(r.taken.Load(), 1)) }

// A FIFO queue with a large backlog in many groups delivers each group in order to many
// consumers, at least half as fast as a standard queue. The queues take turns, so that
// other load on the machine slows both down, and the fastest turn of each counts.
func TestLargeFIFOQueueKeepsOrderAndPace(t *testing.T) {
	volume.InFull(t)
	const consumers, perGroup, turns, slower = 32, 20, 5, 2
	messages := volume.Count(t, 10_000, 200_000)
	messages -= messages % (perGroup * loadWorkers)
	groups := messages / perGroup
	d := start(t)
	standard := &drain{d: d, queue: d.create("standard", nil)}
	fifo := &drain{d: d, queue: d.create("strict.fifo", map[string]string{"FifoQueue": "true"}), next: make([]atomic.Int64, groups)}
	for group := range groups {
		fifo.next[group].Store(int64(group))
	}
	began := time.Now()
	d.fill(standard.queue, 0, messages, 0)
	half := time.Since(began)
	d.fill(fifo.queue, 0, messages, groups)
	t.Logf("%d messages sent in batches to a standard queue in %v, and in %d groups to a FIFO queue in %v",
		messages, half.Round(time.Millisecond), groups, (time.Since(began) - half).Round(time.Millisecond))
	for turn := 1; turn <= turns; turn++ {
		for _, r := range []*drain{standard, fifo} {
			if err := r.run(consumers, messages*turn/turns); err != nil {
				t.Fatal(err)
			}
		}
	}
	for group := range groups {
		if n := fifo.next[group].Load(); n != int64(messages+group) {
			t.Errorf("group %d ended before message %d", group, n)
		}
	}
	ratio := standard.rate / fifo.rate
	t.Logf("%d consumers: %.0f messages/s from the standard queue (%v of the daemon's processor time each), %.0f from the FIFO queue (%v): %.2f times slower",
		consumers, standard.rate, standard.cost(), fifo.rate, fifo.cost(), ratio)
	if ratio > slower {
		t.Errorf("the FIFO queue is %.2f times slower, want %d at most", ratio, slower)
	}
}
