package registry_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/registry"
)

func TestRES2PanickingFallbackBlocksNoCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counted := newCounting(t)
		opening := make(chan struct{})
		counted.before = func(string) error {
			if counted.opens.Load() == 1 {
				<-opening
				panic("no driver")
			}
			return nil
		}
		queues := registry.New(&registry.Options{Fallback: counted})
		defer queues.Close()
		var panicked any
		var all sync.WaitGroup
		all.Go(func() {
			defer func() { panicked = recover() }()
			_, _ = queues.Resolve(t.Context(), "orders")
		})
		synctest.Wait()
		var err error
		all.Go(func() { _, err = queues.Resolve(t.Context(), "orders") }) // waits for the first
		synctest.Wait()
		close(opening)
		all.Wait()
		wantEqual[any](t, "what the opener saw", panicked, "no driver")
		wantError(t, err, nil)
		sendTo(t, mustResolve(t, queues, "orders"), "1")
	})
}

func TestRES2SlowFallbackIsCalledOnceForAllCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var opens atomic.Int32
		fallback := openerFunc(func(ctx context.Context, _ string) (driver.Queue, error) {
			opens.Add(1)
			dialing, cancel := context.WithTimeout(ctx, 5*time.Second) // a limit of its own
			defer cancel()
			<-dialing.Done()
			return nil, fmt.Errorf("dial: %w", dialing.Err())
		})
		queues := registry.New(&registry.Options{Fallback: fallback})
		defer queues.Close()
		began := time.Now()
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				_, err := queues.Resolve(t.Context(), "orders")
				wantError(t, err, context.DeadlineExceeded)
			})
		}
		all.Wait()
		wantEqual(t, "attempts", opens.Load(), 1)
		wantEqual(t, "time until everybody knows", time.Since(began), 5*time.Second)
	})
}

func TestRES4HealthCheckEvictsHangingQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counted := newCounting(t)
		hanging := openerFunc(func(ctx context.Context, name string) (driver.Queue, error) {
			queue, err := counted.OpenQueue(ctx, name)
			return &hangingQueue{Queue: queue, hangs: name != "healthy"}, err
		})
		queues := registry.New(&registry.Options{Fallback: hanging})
		defer queues.Close()
		for _, name := range []string{"hung-1", "healthy", "hung-2"} {
			mustResolve(t, queues, name)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		wantError(t, queues.Check(ctx), context.DeadlineExceeded)
		wantError(t, ctx.Err(), nil)
		wantEqual(t, "queues that are kept", queues.Stats().Cached, 1)
		if _, err := mustResolve(t, queues, "healthy").Stats(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// hangingQueue does not answer a health check before its time is over.
type hangingQueue struct {
	driver.Queue
	hangs bool
}

func (q *hangingQueue) Stats(ctx context.Context) (driver.Stats, error) {
	if q.hangs {
		<-ctx.Done()
		return driver.Stats{}, ctx.Err()
	}
	return q.Queue.Stats(ctx)
}
