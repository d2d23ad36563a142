package sqsclients_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// strictLoad is one client for each group of a FIFO queue. Each sends its numbers in
// order, and repeats each number with the same dedup id until there is an answer, as
// SDKs do.
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

// judge drains the queue, and fails the test unless it has each number once and in order,
// including those that were repeated.
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

// receiveAndDelete receives and deletes up to ten messages.
func receiveAndDelete(t testing.TB, c *sqs.Client, queue *string) []types.Message {
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
