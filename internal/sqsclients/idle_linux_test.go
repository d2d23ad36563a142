package sqsclients_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/mailboxmq/mailbox/internal/testing/proctest"
)

// Twelve consumers that long-poll an empty queue use no processor time.
func TestIdleLongPollsUseNoProcessor(t *testing.T) {
	const polls, watched, most = 12, 5 * time.Second, 50 * time.Millisecond
	d := start(t)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for i := range polls {
		queue := d.create(fmt.Sprintf("idle-%d", i%4), nil)
		wg.Go(func() {
			client := d.client(1)
			for ctx.Err() == nil {
				began := time.Now()
				out, err := client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: queue, WaitTimeSeconds: 20})
				if waited := time.Since(began); ctx.Err() == nil && (err != nil || waited < 19*time.Second) {
					t.Errorf("a poll ended after %v: %v, %v", waited, out, err)
					return
				}
			}
		})
	}
	proctest.Eventually(t, time.Minute, "at rest", func() bool {
		before := d.processor()
		<-time.After(500 * time.Millisecond)
		return d.processor()-before == 0
	})
	before := d.processor()
	<-time.After(watched)
	used := d.processor() - before
	t.Logf("%d polls used %v of the processor in %v", polls, used, watched)
	if used > most {
		t.Errorf("that is more than %v", most)
	}
}
