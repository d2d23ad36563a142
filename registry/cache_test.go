package registry_test

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
	"github.com/mailboxmq/mailbox/internal/backoff"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/registry"
)

func TestRES2FullCacheClosesLeastRecentlyUsed(t *testing.T) {
	opener := newCounting(t)
	var evicted []string
	queues := registry.New(&registry.Options{Fallback: opener, CacheMax: 2, Hooks: registry.Hooks{
		Evicted: func(e registry.EvictedEvent) { evicted = append(evicted, e.ID, e.Reason) },
	}})
	a := mustResolve(t, queues, "a")
	mustResolve(t, queues, "b")
	sendTo(t, a, "tea") // a is the latest now
	mustResolve(t, queues, "c")
	wantSame(t, "evicted", evicted, []string{"b", "room"})
	wantEqual(t, "open queues", opener.open(), 2)
	wantEqual(t, "stats", queues.Stats(), registry.Stats{Cached: 2})

	// A handle outlives the queue behind it.
	mustResolve(t, queues, "d")
	sendTo(t, a, "more tea")
	stats, err := a.Stats(t.Context())
	wantError(t, err, nil)
	wantEqual(t, "messages", stats.Ready, 2)
	wantError(t, queues.Close(), nil)
	wantEqual(t, "open queues after close", opener.open(), 0)
	wantEqual(t, "misuses", opener.wrong.Load(), 0)
}

func TestRES2IdleQueuesAreClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opener := newCounting(t)
		queues := registry.New(&registry.Options{Fallback: opener, CacheTTL: time.Minute})
		defer queues.Close()
		idle, busy := mustResolve(t, queues, "idle"), mustResolve(t, queues, "busy")
		waiting := make(chan error)
		long := mustResolve(t, queues, "long")
		go func() {
			_, err := long.Receive(t.Context(), driver.ReceiveRequest{Max: 1, Wait: 10 * time.Minute})
			waiting <- err
		}()
		for range 5 {
			time.Sleep(30 * time.Second)
			sendTo(t, busy, "tea")
		}
		wantEqual(t, "open queues", opener.open(), 2)
		wantEqual(t, "in use", queues.Stats().InUse, 1) // a receive that waits is a use
		sendTo(t, idle, "tea")
		wantEqual(t, "opens", opener.opens.Load(), 4)
		wantError(t, <-waiting, nil)
	})
}

func TestRES2ConcurrentResolvesOpenQueueOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opener := newCounting(t)
		opener.before = func(string) error { time.Sleep(time.Second); return nil }
		queues := registry.New(&registry.Options{Fallback: opener})
		defer queues.Close()
		parallel(50, func(int) {
			if _, err := queues.Resolve(t.Context(), "a"); err != nil {
				t.Error(err)
			}
		})
		wantEqual(t, "opens", opener.opens.Load(), 1)

		opener.before = func(string) error { time.Sleep(time.Second); return driver.ErrUnavailable }
		parallel(50, func(int) {
			_, err := queues.Resolve(t.Context(), "b")
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
			if err := backoff.Pause(ctx, time.Minute); err != nil {
				return nil, err
			}
			return backend.OpenQueue(ctx, name)
		})
		queues := registry.New(&registry.Options{Fallback: slow})
		defer queues.Close()
		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var group sync.WaitGroup
		group.Go(func() {
			if _, err := queues.Resolve(impatient, "a"); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the impatient one: error is %v", err)
			}
		})
		synctest.Wait()
		group.Go(func() {
			if _, err := queues.Resolve(impatient, "a"); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("one who waits and is impatient too: error is %v", err)
			}
		})
		group.Go(func() {
			if _, err := queues.Resolve(t.Context(), "a"); err != nil {
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
		queues := registry.New(&registry.Options{Fallback: opener, CacheMax: 1})
		a := mustResolve(t, queues, "a")
		received := make(chan []driver.Delivery)
		go func() {
			got, err := a.Receive(t.Context(), driver.ReceiveRequest{Max: 1, Visibility: time.Minute, Wait: time.Hour})
			wantError(t, err, nil)
			received <- got
		}()
		synctest.Wait()
		mustResolve(t, queues, "b") // a has to leave the cache
		wantError(t, queues.Evict("a"), nil)
		wantEqual(t, "open queues while one is in use", opener.open(), 2)
		sendTo(t, a, "tea")
		wantEqual(t, "received", len(<-received), 1)
		synctest.Wait()
		wantEqual(t, "open queues", opener.open(), 1)
		wantError(t, queues.Close(), nil)
		wantEqual(t, "misuses", opener.wrong.Load(), 0)
	})
}

func TestRES2CloseWakesReceivesAndKeepsRegisteredQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opener := newCounting(t)
		queues := registry.New(&registry.Options{Fallback: opener})
		owner := newCounting(t)
		own, err := owner.OpenQueue(t.Context(), "mine")
		wantError(t, err, nil)
		wantError(t, queues.Register("mine", own), nil)
		mine := mustResolve(t, queues, "mine")
		a := mustResolve(t, queues, "a")
		waiting := make(chan error)
		for _, queue := range []driver.Queue{mine, a} {
			go func() {
				_, err := queue.Receive(t.Context(), driver.ReceiveRequest{Max: 1, Wait: time.Hour})
				waiting <- err
			}()
		}
		synctest.Wait()
		wantError(t, queues.Close(), nil)
		wantError(t, <-waiting, mailbox.ErrClosed)
		wantError(t, <-waiting, mailbox.ErrClosed)
		synctest.Wait()
		wantEqual(t, "open queues", opener.open(), 0)
		wantEqual(t, "open registered queues", owner.open(), 1)
		wantError(t, queues.Close(), nil)
		_, err = queues.Resolve(t.Context(), "a")
		wantError(t, err, mailbox.ErrClosed)
		_, err = a.Stats(t.Context())
		wantError(t, err, mailbox.ErrClosed)
		wantError(t, queues.Register("more", own), mailbox.ErrClosed)
	})
}

func TestRES2ClosingHandleDoesNotEvict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opener := newCounting(t)
		queues := registry.New(&registry.Options{Fallback: opener})
		defer queues.Close()
		a, other := mustResolve(t, queues, "a"), mustResolve(t, queues, "a")
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
		wantEqual(t, "stats", queues.Stats(), registry.Stats{Cached: 1})
	})
}

func TestRES2QueueOpenedDuringCloseIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opener := newCounting(t)
		opener.before = func(string) error { time.Sleep(time.Second); return nil }
		queues := registry.New(&registry.Options{Fallback: opener})
		var group sync.WaitGroup
		group.Go(func() {
			_, err := queues.Resolve(t.Context(), "a")
			wantError(t, err, mailbox.ErrClosed)
		})
		synctest.Wait()
		wantError(t, queues.Close(), nil)
		group.Wait()
		wantEqual(t, "open queues", opener.open(), 0)
	})
}

func TestRES2EvictionUnderLoadLosesNoMessage(t *testing.T) {
	opener := newCounting(t)
	queues := registry.New(&registry.Options{Fallback: opener, CacheMax: 3})
	const workers, rounds, ids = 8, 300, 10
	parallel(workers, func(w int) {
		for i := range rounds {
			id := fmt.Sprint((w + i) % ids)
			queue, err := queues.Resolve(t.Context(), id)
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := queue.Send(t.Context(), []driver.Outgoing{{}}); err != nil {
				t.Error(err)
			}
			if i%7 == 0 {
				_ = queues.Evict(id)
			}
			if i%50 == 0 {
				_ = queues.Check(t.Context())
			}
		}
	})
	total := 0
	for i := range ids {
		stats, err := mustResolve(t, queues, fmt.Sprint(i)).Stats(t.Context())
		wantError(t, err, nil)
		total += stats.Ready
	}
	wantEqual(t, "messages", total, workers*rounds)
	wantError(t, queues.Close(), nil)
	wantEqual(t, "open queues", opener.open(), 0)
	wantEqual(t, "misuses", opener.wrong.Load(), 0)
}
