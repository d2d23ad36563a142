package oapapi_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/server/internal/oapapi"
)

// waiter is what became of one receive.
type waiter struct {
	got  []driver.Delivery
	err  error
	took time.Duration
}

// receiveTogether begins receives of one connection that ask for the same, the
// n-th of which waits for n seconds, and returns when all have ended. act is called
// when all of them wait.
func receiveTogether(t *testing.T, q driver.Queue, n int, act func(cancels []context.CancelFunc)) []waiter {
	t.Helper()
	waiters := make([]waiter, n)
	cancels := make([]context.CancelFunc, n)
	var all sync.WaitGroup
	began := time.Now()
	for i := range waiters {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		cancels[i] = cancel
		all.Go(func() {
			w := &waiters[i]
			w.got, w.err = q.Receive(ctx, driver.ReceiveRequest{
				Max: 1, Visibility: time.Hour, Wait: time.Duration(i+1) * time.Second,
			})
			w.took = time.Since(began)
		})
		synctest.Wait() // they wait in this order
	}
	act(cancels)
	all.Wait()
	return waiters
}

// inOneConnection runs a test with a queue that is reached over one connection.
func inOneConnection(t *testing.T, test func(t *testing.T, d *daemon, q driver.Queue)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, membox.New(nil), oapapi.Options{})
		r := newRemote(t, d, d.client())
		q, err := r.OpenQueue(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		test(t, d, q)
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestReceivesThatWaitTogetherGetAMessageEach(t *testing.T) {
	inOneConnection(t, func(t *testing.T, _ *daemon, q driver.Queue) {
		bodies := []string{"a", "b", "c"}
		waiters := receiveTogether(t, q, 5, func([]context.CancelFunc) {
			var messages []driver.Outgoing
			for _, body := range bodies {
				messages = append(messages, driver.Outgoing{Body: []byte(body)})
			}
			if _, err := q.Send(t.Context(), messages); err != nil {
				t.Error(err)
			}
		})
		for i, w := range waiters {
			switch {
			case w.err != nil:
				t.Errorf("receive %d: %v", i, w.err)
			case i < len(bodies) && (len(w.got) != 1 || string(w.got[0].Body) != bodies[i] || w.took != 0):
				t.Errorf("receive %d: %d messages after %v, want %q at once", i, len(w.got), w.took, bodies[i])
			case i >= len(bodies) && (len(w.got) != 0 || w.took != time.Duration(i+1)*time.Second):
				t.Errorf("receive %d: %d messages after %v, want none after its wait", i, len(w.got), w.took)
			}
		}
	})
}

func TestAReceiveThatIsCancelledLeavesThoseItWaitedWith(t *testing.T) {
	inOneConnection(t, func(t *testing.T, _ *daemon, q driver.Queue) {
		waiters := receiveTogether(t, q, 3, func(cancels []context.CancelFunc) {
			cancels[0]()
			synctest.Wait()
			if _, err := q.Send(t.Context(), []driver.Outgoing{{Body: []byte("a")}}); err != nil {
				t.Error(err)
			}
		})
		if !errors.Is(waiters[0].err, context.Canceled) || waiters[0].took != 0 {
			t.Errorf("the one that was cancelled: %v after %v", waiters[0].err, waiters[0].took)
		}
		if len(waiters[1].got) != 1 || waiters[1].took != 0 {
			t.Errorf("the next one: %d messages after %v, %v", len(waiters[1].got), waiters[1].took, waiters[1].err)
		}
		if len(waiters[2].got) != 0 || waiters[2].err != nil || waiters[2].took != 3*time.Second {
			t.Errorf("the last one: %d messages after %v, %v", len(waiters[2].got), waiters[2].took, waiters[2].err)
		}
		if stats, err := q.Stats(t.Context()); err != nil || stats != (driver.Stats{InFlight: 1}) {
			t.Errorf("left %+v, %v", stats, err)
		}
	})
}

func TestReceivesThatAreAllCancelledHoldNoMessage(t *testing.T) {
	inOneConnection(t, func(t *testing.T, _ *daemon, q driver.Queue) {
		waiters := receiveTogether(t, q, 3, func(cancels []context.CancelFunc) {
			for _, cancel := range cancels {
				cancel()
			}
		})
		if slices.ContainsFunc(waiters, func(w waiter) bool { return !errors.Is(w.err, context.Canceled) }) {
			t.Errorf("got %+v", waiters)
		}
		if _, err := q.Send(t.Context(), []driver.Outgoing{{Body: []byte("a")}}); err != nil {
			t.Fatal(err)
		}
		got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 10, Visibility: time.Hour})
		if err != nil || len(got) != 1 || got[0].Deliveries != 1 {
			t.Errorf("got %d messages, %v", len(got), err)
		}
	})
}
