package sqsclients_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// strictLoad is one client for each group of a FIFO queue. Each sends its numbers in
// order, and each number with the same id until there is an answer, as SDKs do.
type strictLoad struct {
	client *sqs.Client
	queue  *string
	wg     sync.WaitGroup
	sent   [loadWorkers]int
}

func (l *strictLoad) start(ctx context.Context) {
	for group := range loadWorkers {
		l.wg.Go(func() {
			for ctx.Err() == nil {
				_, err := l.client.SendMessage(context.WithoutCancel(ctx), &sqs.SendMessageInput{
					QueueUrl: l.queue, MessageBody: aws.String(strconv.Itoa(l.sent[group])), MessageGroupId: aws.String(strconv.Itoa(group)),
					MessageDeduplicationId: aws.String(fmt.Sprintf("%d-%d", group, l.sent[group])),
				})
				if err == nil {
					l.sent[group]++
				} else {
					rest(ctx)
				}
			}
		})
	}
}

// judge drains the queue, and fails the test unless each number is there once and in
// order: those that were tried again are there once, too.
func (l *strictLoad) judge(t *testing.T, d *daemon) (sent int) {
	t.Helper()
	next := make(map[string]int)
	for d.waiting(l.queue) > 0 {
		for _, m := range receiveAndDelete(t, l.client, l.queue) {
			group := m.Attributes[string(types.MessageSystemAttributeNameMessageGroupId)]
			if want := strconv.Itoa(next[group]); *m.Body != want {
				t.Fatalf("group %s: got %s, want %s", group, *m.Body, want)
			}
			next[group]++
		}
	}
	for group, n := range l.sent {
		// The last may have been sent without an answer.
		if got := next[strconv.Itoa(group)]; got != n && got != n+1 {
			t.Errorf("group %d: %d were acknowledged and %d came", group, n, got)
		}
		sent += n
	}
	return sent
}

// receiveAndDelete takes up to ten messages.
func receiveAndDelete(t *testing.T, c *sqs.Client, queue *string) []types.Message {
	t.Helper()
	got, err := c.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{
		QueueUrl: queue, MaxNumberOfMessages: 10, WaitTimeSeconds: 1, MessageSystemAttributeNames: []types.MessageSystemAttributeName{"All"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Messages) == 0 {
		return nil
	}
	entries := make([]types.DeleteMessageBatchRequestEntry, len(got.Messages))
	for i := range got.Messages {
		entries[i] = types.DeleteMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), ReceiptHandle: got.Messages[i].ReceiptHandle}
	}
	out, err := c.DeleteMessageBatch(t.Context(), &sqs.DeleteMessageBatchInput{QueueUrl: queue, Entries: entries})
	if err != nil || len(out.Failed) > 0 {
		t.Fatalf("%v, %+v", err, out)
	}
	return got.Messages
}

// A move task that was accepted ends, however often the daemon is killed meanwhile, and
// each message is in exactly one of the two queues then.
func TestAMoveTaskGoesOnAfterKills(t *testing.T) {
	t.Parallel()
	d := start(t)
	const messages, rate, kills = 1000, 300, 2
	c := d.client(3)
	source := d.create("dead", nil)
	target := d.create("home", map[string]string{"RedrivePolicy": fmt.Sprintf(`{"deadLetterTargetArn":"%s","maxReceiveCount":9}`, arn("dead"))})
	d.fill(source, messages, 0)
	if _, err := c.StartMessageMoveTask(t.Context(), &sqs.StartMessageMoveTaskInput{
		SourceArn: aws.String(arn("dead")), DestinationArn: aws.String(arn("home")), MaxNumberOfMessagesPerSecond: aws.Int32(rate),
	}); err != nil {
		t.Fatal(err)
	}
	state := func() types.ListMessageMoveTasksResultEntry {
		out, err := c.ListMessageMoveTasks(t.Context(), &sqs.ListMessageMoveTasksInput{SourceArn: aws.String(arn("dead"))})
		if err != nil || len(out.Results) != 1 {
			t.Fatalf("tasks: %+v, %v", out, err)
		}
		return out.Results[0]
	}
	between := 0 // kills in the midst of it
	for range kills {
		at := d.waiting(target)
		eventually(t, time.Minute, "moving", func() bool { return d.waiting(target) >= min(at+200, messages) })
		if *state().Status == "RUNNING" {
			between++
		}
		d.kill()
		d.launch()
		c = d.client(3)
		// The task moves on while we count, source first, so the sum may only be more.
		if a, b := d.waiting(source), d.waiting(target); a+b < messages {
			t.Errorf("%d and %d of %d messages are there", a, b, messages)
		}
	}
	eventually(t, time.Minute, "completed", func() bool { return *state().Status == "COMPLETED" })
	if between == 0 {
		t.Error("the task was over before the daemon was killed, so that proves nothing")
	}
	left, bodies := d.waiting(source), []string(nil)
	for d.waiting(target) > 0 {
		for _, m := range receiveAndDelete(t, c, target) {
			bodies = append(bodies, *m.Body)
		}
	}
	slices.Sort(bodies)
	if whole := len(bodies); left != 0 || len(slices.Compact(bodies)) != messages || whole != messages {
		t.Errorf("%d messages came, and %d are left behind; want %d, each once", whole, left, messages)
	}
	t.Logf("%d messages, %d kills while they moved; the task counts %d", messages, between, state().ApproximateNumberOfMessagesMoved)
}
