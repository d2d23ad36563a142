package broker_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/completion"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// ends counts the completions of a receive.
type ends struct {
	times int
	err   error
}

func (e *ends) Received(_ *completion.Round, _ []broker.Delivery, err error) {
	e.times++
	e.err = err
}

// TestReceiveCanBeCancelledAfterQueueWasReplaced deletes the queue of a receive that waits, and
// makes another one of the name before the receive notices.
func TestReceiveCanBeCancelledAfterQueueWasReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := &replaced{Backend: membox.New(nil)}
		b := newBench(t, backend, broker.Limits{})
		c := b.as("")
		b.send(c, "orders", "body")
		var round completion.Round
		c.StartReceive(t.Context(), &round, "orders", driver.ReceiveRequest{Max: 1, Visibility: time.Hour}, new(ends))
		got := new(ends)
		waiting := c.StartReceive(t.Context(), &round, "orders", driver.ReceiveRequest{Max: 1, Visibility: time.Hour, Wait: time.Hour}, got)
		names := backend.names
		if err := backend.DeleteQueue(t.Context(), names[0]); err != nil {
			t.Fatal(err)
		}
		if _, err := backend.OpenQueue(t.Context(), names[0]); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got.times != 0 {
			t.Fatalf("setup: the receive has ended: %v", got.err)
		}
		waiting.Cancel()
		synctest.Wait()
		if got.times != 1 || !errors.Is(got.err, context.Canceled) {
			t.Errorf("completed %d times, error %v; want once, cancelled", got.times, got.err)
		}
		_ = b.Close()
		_ = backend.Close()
	})
}

// replaced notes the names of queues.
type replaced struct {
	*membox.Backend
	names []string
}

func (r *replaced) OpenQueue(ctx context.Context, name string) (driver.Queue, error) {
	r.names = append(r.names, name)
	return r.Backend.OpenQueue(ctx, name)
}
