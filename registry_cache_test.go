package mailbox_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/membox"
)

func TestRES2FullCacheClosesLeastRecentlyUsed(t *testing.T) {
	opener := newCounting(t)
	var evicted []string
	registry := mailbox.NewRegistry(&mailbox.RegistryOptions{Fallback: opener, CacheMax: 2, Hooks: mailbox.RegistryHooks{
		Evicted: func(e mailbox.EvictedEvent) { evicted = append(evicted, e.ID, string(e.Reason)) },
	}})
	a := mustResolve(t, registry, "a")
	mustResolve(t, registry, "b")
	sendTo(t, a, "tea") // a is the latest now
	mustResolve(t, registry, "c")
	wantSame(t, "evicted", evicted, []string{"b", "room"})
	wantEqual(t, "open queues", opener.open(), 2)
	wantEqual(t, "stats", registry.Stats(), mailbox.RegistryStats{Cached: 2})

	// A handle outlives the queue behind it.
	mustResolve(t, registry, "d")
	sendTo(t, a, "more tea")
	stats, err := a.Stats(t.Context())
	wantError(t, err, nil)
	wantEqual(t, "messages", stats.Ready, 2)
	wantError(t, registry.Close(), nil)
	wantEqual(t, "open queues after close", opener.open(), 0)
	wantEqual(t, "misuses", opener.wrong.Load(), 0)
}

func TestRES2IdleQueuesAreClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opener := newCounting(t)
		registry := mailbox.NewRegistry(&mailbox.RegistryOptions{Fallback: opener, CacheTTL: time.Minute})
		defer registry.Close()
		idle, busy := mustResolve(t, registry, "idle"), mustResolve(t, registry, "busy")
		waiting := make(chan error)
		long := mustResolve(t, registry, "long")
		go func() {
			_, err := long.Receive(t.Context(), driver.ReceiveRequest{Max: 1, Wait: 10 * time.Minute})
			waiting <- err
		}()
		for range 5 {
			time.Sleep(30 * time.Second)
			sendTo(t, busy, "tea")
		}
		wantEqual(t, "open queues", opener.open(), 2)
		wantEqual(t, "in use", registry.Stats().InUse, 1) // a receive that waits is a use
		sendTo(t, idle, "tea")
		wantEqual(t, "opens", opener.opens.Load(), 4)
		wantError(t, <-waiting, nil)
	})
}

func TestRES2ConcurrentResolvesOpenQueueOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opener := newCounting(t)
		opener.before = func(string) error { time.Sleep(time.Second); return nil }
		registry := mailbox.NewRegistry(&mailbox.RegistryOptions{Fallback: opener})
		defer registry.Close()
		parallel(50, func(int) {
			if _, err := registry.Resolve(t.Context(), "a"); err != nil {
				t.Error(err)
			}
		})
		wantEqual(t, "opens", opener.opens.Load(), 1)

		opener.before = func(string) error { time.Sleep(time.Second); return errUnavailable }
		parallel(50, func(int) {
			_, err := registry.Resolve(t.Context(), "b")
			wantError(t, err, mailbox.ErrUnavailable)
		})
		wantEqual(t, "opens with the failed one", opener.opens.Load(), 2)
	})
}

func TestRES2CancelledOpenDoesNotFailOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := membox.New(nil)
		defer backend.Close()
		slow := openerFunc(func(ctx context.Context, name string) (driver.Queue, error) {
			if err := sleep(ctx, time.Minute); err != nil {
				return nil, err
			}
			return backend.OpenQueue(ctx, name)
		})
		registry := mailbox.NewRegistry(&mailbox.RegistryOptions{Fallback: slow})
		defer registry.Close()
		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var group sync.WaitGroup
		group.Go(func() {
			if _, err := registry.Resolve(impatient, "a"); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the impatient one: error is %v", err)
			}
		})
		synctest.Wait()
		group.Go(func() {
			if _, err := registry.Resolve(impatient, "a"); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("one who waits and is impatient too: error is %v", err)
			}
		})
		group.Go(func() {
			if _, err := registry.Resolve(t.Context(), "a"); err != nil {
				t.Errorf("the patient one: error is %v", err)
			}
		})
		group.Wait()
	})
}

type openerFunc func(ctx context.Context, name string) (driver.Queue, error)

func (f openerFunc) OpenQueue(ctx context.Context, name string) (driver.Queue, error) {
	return f(ctx, name)
}

func TestRES2QueueInUseIsNotClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opener := newCounting(t)
		registry := mailbox.NewRegistry(&mailbox.RegistryOptions{Fallback: opener, CacheMax: 1})
		a := mustResolve(t, registry, "a")
		received := make(chan []driver.Delivery)
		go func() {
			got, err := a.Receive(t.Context(), driver.ReceiveRequest{Max: 1, Visibility: time.Minute, Wait: time.Hour})
			wantError(t, err, nil)
			received <- got
		}()
		synctest.Wait()
		mustResolve(t, registry, "b") // a has to leave the cache
		wantError(t, registry.Evict("a"), nil)
		wantEqual(t, "open queues while one is in use", opener.open(), 2)
		sendTo(t, a, "tea")
		wantEqual(t, "received", len(<-received), 1)
		synctest.Wait()
		wantEqual(t, "open queues", opener.open(), 1)
		wantError(t, registry.Close(), nil)
		wantEqual(t, "misuses", opener.wrong.Load(), 0)
	})
}

func TestRES2CloseWakesReceivesAndKeepsRegisteredQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opener := newCounting(t)
		registry := mailbox.NewRegistry(&mailbox.RegistryOptions{Fallback: opener})
		own := newFake()
		wantError(t, registry.Register("mine", own), nil)
		mine := mustResolve(t, registry, "mine")
		a := mustResolve(t, registry, "a")
		waiting := make(chan error)
		for _, queue := range []driver.Queue{mine, a} {
			go func() {
				_, err := queue.Receive(t.Context(), driver.ReceiveRequest{Max: 1, Wait: time.Hour})
				waiting <- err
			}()
		}
		synctest.Wait()
		wantError(t, registry.Close(), nil)
		wantError(t, <-waiting, mailbox.ErrClosed)
		wantError(t, <-waiting, mailbox.ErrClosed)
		synctest.Wait()
		wantEqual(t, "open queues", opener.open(), 0)
		for _, call := range own.calls {
			if call == "close" {
				t.Error("a registered queue was closed")
			}
		}
		wantError(t, registry.Close(), nil)
		_, err := registry.Resolve(t.Context(), "a")
		wantError(t, err, mailbox.ErrClosed)
		_, err = a.Stats(t.Context())
		wantError(t, err, mailbox.ErrClosed)
		wantError(t, registry.Register("more", own), mailbox.ErrClosed)
	})
}

func TestRES2ClosingHandleDoesNotEvict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opener := newCounting(t)
		registry := mailbox.NewRegistry(&mailbox.RegistryOptions{Fallback: opener})
		defer registry.Close()
		a, other := mustResolve(t, registry, "a"), mustResolve(t, registry, "a")
		waiting := make(chan error)
		go func() {
			_, err := a.Receive(t.Context(), driver.ReceiveRequest{Max: 1, Wait: time.Hour})
			waiting <- err
		}()
		synctest.Wait()
		wantError(t, a.Close(), nil)
		wantError(t, <-waiting, mailbox.ErrClosed)
		_, err := a.Stats(t.Context())
		wantError(t, err, mailbox.ErrClosed)
		sendTo(t, other, "tea")
		wantEqual(t, "opens", opener.opens.Load(), 1)
		wantEqual(t, "stats", registry.Stats(), mailbox.RegistryStats{Cached: 1})
	})
}

func TestRES2QueueOpenedDuringCloseIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opener := newCounting(t)
		opener.before = func(string) error { time.Sleep(time.Second); return nil }
		registry := mailbox.NewRegistry(&mailbox.RegistryOptions{Fallback: opener})
		var group sync.WaitGroup
		group.Go(func() {
			_, err := registry.Resolve(t.Context(), "a")
			wantError(t, err, mailbox.ErrClosed)
		})
		synctest.Wait()
		wantError(t, registry.Close(), nil)
		group.Wait()
		wantEqual(t, "open queues", opener.open(), 0)
	})
}

func TestRES2EvictionUnderLoadLosesNoMessage(t *testing.T) {
	opener := newCounting(t)
	registry := mailbox.NewRegistry(&mailbox.RegistryOptions{Fallback: opener, CacheMax: 3})
	const workers, rounds, ids = 8, 300, 10
	parallel(workers, func(w int) {
		for i := range rounds {
			id := fmt.Sprint((w + i) % ids)
			queue, err := registry.Resolve(t.Context(), id)
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := queue.Send(t.Context(), []driver.Outgoing{{}}); err != nil {
				t.Error(err)
			}
			if i%7 == 0 {
				_ = registry.Evict(id)
			}
			if i%50 == 0 {
				_ = registry.Check(t.Context())
			}
		}
	})
	total := 0
	for i := range ids {
		stats, err := mustResolve(t, registry, fmt.Sprint(i)).Stats(t.Context())
		wantError(t, err, nil)
		total += stats.Ready
	}
	wantEqual(t, "messages", total, workers*rounds)
	wantError(t, registry.Close(), nil)
	wantEqual(t, "open queues", opener.open(), 0)
	wantEqual(t, "misuses", opener.wrong.Load(), 0)
}
