package sqsapi_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/membox"
)

// TestPausedQueueIsEmptyToReceivers: SQS has no pauses, so a queue that an operator has paused
// looks empty, and accepts messages and deletes.
func TestPausedQueueIsEmptyToReceivers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := membox.New(nil)
		t.Cleanup(func() { _ = backend.Close() })
		with(setup{opener: backend}, func(t *testing.T, c *client) {
			queue := c.create("orders")
			c.send(queue, "a")
			held := c.one(queue)
			for name, err := range backend.Queues(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				q, err := backend.OpenQueue(t.Context(), name)
				if err != nil {
					t.Fatal(err)
				}
				defer q.Close()
				if err := q.Pause(t.Context()); err != nil {
					t.Fatal(err)
				}
				time.AfterFunc(30*time.Second, func() { _ = q.Resume(t.Context()) })
			}
			c.send(queue, "b")
			c.delete(queue, held)
			began := time.Now()
			if got := c.receive(queue, waiting(10)); len(got) > 0 || time.Since(began) < 10*time.Second {
				t.Errorf("got %v after %v", bodies(got), time.Since(began))
			}
			counts := c.attributes(queue, "ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible")
			if counts["ApproximateNumberOfMessages"] != "1" || counts["ApproximateNumberOfMessagesNotVisible"] != "0" {
				t.Errorf("counts are %v", counts)
			}
			time.Sleep(21 * time.Second)
			if m := c.one(queue); *m.Body != "b" {
				t.Errorf("got %s", *m.Body)
			}
		})(t)
	})
}
