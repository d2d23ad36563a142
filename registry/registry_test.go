package registry_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/driver/drivertest"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
	"github.com/mailboxmq/mailbox/mailboxtest"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/registry"
	"github.com/mailboxmq/mailbox/reply"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var _ mailbox.Resolver = (*registry.Registry)(nil)

// counting is an opener that counts, and whose queues know whether they are
// used while they are closed, or closed while they are used.
type counting struct {
	inner  driver.Opener
	opens  atomic.Int32
	closes atomic.Int32
	wrong  atomic.Int32
	before func(name string) error // called before opening; may be nil
}

func newCounting(t *testing.T) *counting {
	backend := membox.New(nil)
	t.Cleanup(func() { backend.Close() })
	return &counting{inner: backend}
}

func (c *counting) OpenQueue(ctx context.Context, name string) (driver.Queue, error) {
	c.opens.Add(1)
	if c.before != nil {
		if err := c.before(name); err != nil {
			return nil, err
		}
	}
	queue, err := c.inner.OpenQueue(ctx, name)
	if err != nil {
		return nil, err
	}
	return &countedQueue{Queue: queue, counting: c}, nil
}

func (c *counting) open() int { return int(c.opens.Load() - c.closes.Load()) }

type countedQueue struct {
	driver.Queue
	counting *counting
	users    atomic.Int32
	closed   atomic.Bool
	broken   atomic.Bool
}

func (q *countedQueue) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	q.users.Add(1)
	defer q.users.Add(-1)
	if q.closed.Load() {
		q.counting.wrong.Add(1)
	}
	return q.Queue.Send(ctx, msgs)
}

func (q *countedQueue) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	q.users.Add(1)
	defer q.users.Add(-1)
	return q.Queue.Receive(ctx, req)
}

func (q *countedQueue) Stats(ctx context.Context) (driver.Stats, error) {
	if q.broken.Load() {
		return driver.Stats{}, driver.ErrUnavailable
	}
	return q.Queue.Stats(ctx)
}

func (q *countedQueue) Close() error {
	q.counting.closes.Add(1)
	if q.closed.Swap(true) || q.users.Load() > 0 {
		q.counting.wrong.Add(1)
	}
	return q.Queue.Close()
}

func TestRegistryHandlesPassEveryMethodOn(t *testing.T) {
	drivertest.RunWrapper(t, func(behind driver.Opener) driver.Opener {
		return registry.New(&registry.Options{Fallback: behind})
	})
}

func mustResolve(t *testing.T, resolver mailbox.Resolver, id string) driver.Queue {
	t.Helper()
	queue, err := resolver.Resolve(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return queue
}

func sendTo(t *testing.T, queue driver.Queue, body string) {
	t.Helper()
	if _, err := queue.Send(t.Context(), []driver.Outgoing{{Body: []byte(body)}}); err != nil {
		t.Fatal(err)
	}
}

// TestRES2HandlesAreQueues runs the conformance suite through a registry that
// can keep one queue open at a time, and so closes and opens queues all the
// while.
func TestRES2HandlesAreQueues(t *testing.T) {
	volume.Repeats(t)
	drivertest.Run(t, drivertest.Backend{
		Virtual: true,
		Open: func(t testing.TB) driver.Opener {
			backend := membox.New(nil)
			t.Cleanup(func() { backend.Close() })
			return registry.New(&registry.Options{Fallback: backend, CacheMax: 1})
		},
	})
}

func TestRES1RegisteredBeatsCachedBeatsOpened(t *testing.T) {
	opener := newCounting(t)
	var sources []string
	queues := registry.New(&registry.Options{Fallback: opener, Hooks: registry.Hooks{
		Resolved: func(_ context.Context, e registry.ResolvedEvent) { sources = append(sources, e.Source) },
	}})
	defer queues.Close()
	mustResolve(t, queues, "a")
	mustResolve(t, queues, "a")
	own, err := membox.New(nil).OpenQueue(t.Context(), "mine")
	wantError(t, err, nil)
	wantError(t, queues.Register("a", own), nil)
	sendTo(t, mustResolve(t, queues, "a"), "tea")
	wantSame(t, "sources", sources, []string{"opened", "cached", "registered"})
	wantEqual(t, "opens", opener.opens.Load(), 1)
	stats, err := own.Stats(t.Context())
	wantError(t, err, nil)
	wantEqual(t, "messages in the registered queue", stats.Ready, 1)

	wantError(t, queues.Register("a", own), mailbox.ErrConflict)
	wantError(t, queues.Register("", own), mailbox.ErrInvalid)
	wantError(t, queues.Register("b", nil), mailbox.ErrInvalid)
	wantEqual(t, "unregistered", queues.Unregister("a"), true)
	wantEqual(t, "unregistered again", queues.Unregister("a"), false)
	mustResolve(t, queues, "a")
	wantEqual(t, "source after that", sources[3], "cached")
}

func TestRES1UnknownIdentifierIsInTheError(t *testing.T) {
	missing := newCounting(t)
	missing.before = func(string) error { return &driver.Error{Code: driver.ErrNotFound, Op: "open"} }
	for name, queues := range map[string]*registry.Registry{
		"no fallback":      registry.New(nil),
		"not found":        registry.New(&registry.Options{Fallback: missing}),
		"no such scheme":   registry.New(&registry.Options{Fallback: registry.Schemes{}}),
		"no slots":         registry.New(&registry.Options{Fallback: registry.Schemes{}}),
		"refused by names": registry.New(&registry.Options{Fallback: newCounting(t)}),
	} {
		id := map[string]string{"no slots": "reply:x", "no such scheme": "gopher://x", "refused by names": "a{b}"}[name]
		if id == "" {
			id = "unknown"
		}
		_, err := queues.Resolve(t.Context(), id)
		wantError(t, err, mailbox.ErrUnresolved)
		if e, ok := errors.AsType[*mailbox.Error](err); !ok || e.Queue != id {
			t.Errorf("%s: the error does not name %q: %v", name, id, err)
		}
		_, found, err := mailbox.ResolveOptional(t.Context(), queues, id)
		wantError(t, err, nil)
		wantEqual(t, name+": found", found, false)
	}
}

func TestRES1ResolveOptionalReturnsOtherErrors(t *testing.T) {
	opener := newCounting(t)
	queues := registry.New(&registry.Options{Fallback: opener})
	queue, found, err := mailbox.ResolveOptional(t.Context(), queues, "a")
	wantError(t, err, nil)
	if !found || queue == nil {
		t.Error("what is there was not found")
	}
	opener.before = func(string) error { return driver.ErrUnavailable }
	_, found, err = mailbox.ResolveOptional(t.Context(), queues, "b")
	wantError(t, err, mailbox.ErrUnavailable)
	wantEqual(t, "found", found, false)
	wantEqual(t, "taken for unresolved", errors.Is(err, mailbox.ErrUnresolved), false)
	_, _, err = mailbox.ResolveOptional(t.Context(), nil, "a")
	wantError(t, err, mailbox.ErrInvalid)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err = mailbox.ResolveOptional(ended, queues, "a"); err != context.Canceled { //nolint:errorlint // unwrapped is the promise
		t.Errorf("error is %v", err)
	}
}

func TestRES1BadIdentifiersNeverReachTheFallback(t *testing.T) {
	opener := newCounting(t)
	queues := registry.New(&registry.Options{Fallback: opener})
	for _, id := range []string{"", strings.Repeat("x", driver.MaxReplyToBytes+1), "\xff"} {
		_, err := queues.Resolve(t.Context(), id)
		wantError(t, err, mailbox.ErrUnresolved)
		if len(err.Error()) > 600 {
			t.Errorf("the error repeats all of it: %d bytes", len(err.Error()))
		}
	}
	wantEqual(t, "opens", opener.opens.Load(), 0)
}

func TestRES1ErrorsAndHooksHaveNoPasswords(t *testing.T) {
	schemes := registry.Schemes{}
	queues := registry.New(&registry.Options{Fallback: schemes})
	for _, id := range []string{
		"redis://user:hunter2@cache:6379/replies", "redis://user:hunter2@cache:port/replies",
		"redis://:hunter2/x", "redis://user:hunter2@%zz/",
	} {
		for _, resolve := range []func() error{
			func() error { return errorOf(queues.Resolve(t.Context(), id)) },
			func() error { return errorOf(schemes.OpenQueue(t.Context(), id)) },
		} {
			if err := resolve(); err == nil || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%s: error is %v", id, err)
			}
		}
	}
}

func TestRES4HealthCheckEvictsUnavailableQueues(t *testing.T) {
	opener := newCounting(t)
	opened := make(map[string]*countedQueue)
	capture := openerFunc(func(ctx context.Context, name string) (driver.Queue, error) {
		queue, err := opener.OpenQueue(ctx, name)
		if err == nil {
			opened[name] = queue.(*countedQueue)
		}
		return queue, err
	})
	var evicted []registry.EvictedEvent
	queues := registry.New(&registry.Options{Fallback: capture, Hooks: registry.Hooks{
		Evicted: func(e registry.EvictedEvent) { evicted = append(evicted, e) },
	}})
	defer queues.Close()
	good, bad := mustResolve(t, queues, "good"), mustResolve(t, queues, "bad")
	wantError(t, queues.Check(t.Context()), nil)
	opened["bad"].broken.Store(true)
	err := queues.Check(t.Context())
	wantError(t, err, mailbox.ErrUnavailable)
	if !strings.Contains(err.Error(), "bad: ") || strings.Contains(err.Error(), "good") {
		t.Errorf("error is %v", err)
	}
	wantEqual(t, "evicted", len(evicted), 1)
	wantEqual(t, "reason", evicted[0].Reason, "broken")
	sendTo(t, bad, "tea") // opened again
	sendTo(t, good, "tea")
	wantEqual(t, "opens", opener.opens.Load(), 3)
	wantError(t, queues.Check(t.Context()), nil)

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	wantError(t, queues.Check(ended), context.Canceled)
	wantEqual(t, "cached", queues.Stats().Cached, 2)
}

func TestRES4DeletedQueueIsOpenedAgain(t *testing.T) {
	backend := membox.New(nil)
	defer backend.Close()
	queues := registry.New(&registry.Options{Fallback: backend})
	defer queues.Close()
	a := mustResolve(t, queues, "a")
	wantError(t, backend.DeleteQueue(t.Context(), "a"), nil)
	_, err := a.Stats(t.Context())
	wantError(t, err, mailbox.ErrNotFound)
	sendTo(t, a, "tea")
	stats, err := a.Stats(t.Context())
	wantError(t, err, nil)
	wantEqual(t, "messages", stats.Ready, 1)
}

func TestRES4HooksReportLatencyHitsAndOpens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opener := newCounting(t)
		opener.before = func(string) error { time.Sleep(time.Second); return nil }
		var resolved []registry.ResolvedEvent
		var opened []registry.OpenedEvent
		queues := registry.New(&registry.Options{
			Fallback: opener, Replies: reply.NewMemory(nil),
			Hooks: registry.Hooks{
				Resolved: func(_ context.Context, e registry.ResolvedEvent) { resolved = append(resolved, e) },
				Opened:   func(_ context.Context, e registry.OpenedEvent) { opened = append(opened, e) },
			},
		})
		defer queues.Close()
		for _, id := range []string{"a", "a", "a{", "reply:x"} {
			_, _ = queues.Resolve(t.Context(), id)
		}
		wantEqual(t, "latency of an open", resolved[0].Duration, time.Second)
		wantEqual(t, "latency of a hit", resolved[1].Duration, 0)
		wantSame(t, "sources", []string{resolved[0].Source, resolved[1].Source, resolved[3].Source},
			[]string{"opened", "cached", "slot"})
		wantError(t, resolved[2].Err, mailbox.ErrUnresolved)
		wantEqual(t, "factory calls", len(opened), 2)
		wantEqual(t, "duration of a factory call", opened[0].Duration, time.Second)
		wantError(t, opened[1].Err, mailbox.ErrInvalid)
	})
}

func TestRegistryResolvesSlotsToo(t *testing.T) {
	slots := reply.NewMemory(nil)
	wantError(t, slots.Create(t.Context(), "a", time.Hour), nil)
	queues := registry.New(&registry.Options{Replies: slots})
	box, err := mailbox.Open[int](t.Context(), queues, "reply:a", nil)
	wantError(t, err, nil)
	_, err = box.Send(t.Context(), 42)
	wantError(t, err, nil)
	_, err = box.Send(t.Context(), 43)
	wantError(t, err, mailbox.ErrReplyAlreadySent)
}

func TestRegistryWithBrokenFallbackDoesNotPanic(t *testing.T) {
	nothing := openerFunc(func(context.Context, string) (driver.Queue, error) { return nil, nil })
	queues := registry.New(&registry.Options{Fallback: nothing})
	_, err := queues.Resolve(t.Context(), "a")
	wantError(t, err, mailbox.ErrUnavailable)
}

var _ mailbox.Resolver = (*mailboxtest.Resolver)(nil)
