package broker_test

import (
	"context"
	"errors"
	"sync"
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
		backend.replace(t)
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

// replaced notes the name of its first queue.
type replaced struct {
	*membox.Backend
	first string
	mu    sync.Mutex // held while the queue is replaced
}

func (r *replaced) OpenQueue(ctx context.Context, name string) (driver.Queue, error) {
	if r.first == "" {
		r.first = name
	}
	return r.Backend.OpenQueue(ctx, name)
}

// QueueConfig is what the broker asks before it opens a queue.
func (r *replaced) QueueConfig(ctx context.Context, name string) (driver.Config, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.Backend.QueueConfig(ctx, name)
}

// replace deletes the first queue and makes another one of its name.
func (r *replaced) replace(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.DeleteQueue(t.Context(), r.first); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Backend.OpenQueue(t.Context(), r.first); err != nil {
		t.Fatal(err)
	}
}
