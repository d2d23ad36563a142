package mailbox_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/driver"
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
		registry := mailbox.NewRegistry(&mailbox.RegistryOptions{Fallback: counted})
		defer registry.Close()
		var panicked any
		var all sync.WaitGroup
		all.Go(func() {
			defer func() { panicked = recover() }()
			_, _ = registry.Resolve(t.Context(), "orders")
		})
		synctest.Wait()
		var err error
		all.Go(func() { _, err = registry.Resolve(t.Context(), "orders") }) // waits for the first
		synctest.Wait()
		close(opening)
		all.Wait()
		wantEqual[any](t, "what the opener saw", panicked, "no driver")
		wantError(t, err, nil)
		sendTo(t, mustResolve(t, registry, "orders"), "1")
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
		registry := mailbox.NewRegistry(&mailbox.RegistryOptions{Fallback: fallback})
		defer registry.Close()
		began := time.Now()
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				_, err := registry.Resolve(t.Context(), "orders")
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
		registry := mailbox.NewRegistry(&mailbox.RegistryOptions{Fallback: hanging})
		defer registry.Close()
		for _, name := range []string{"hung-1", "healthy", "hung-2"} {
			mustResolve(t, registry, name)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		wantError(t, registry.Check(ctx), context.DeadlineExceeded)
		wantError(t, ctx.Err(), nil)
		wantEqual(t, "queues that are kept", registry.Stats().Cached, 1)
		if _, err := mustResolve(t, registry, "healthy").Stats(t.Context()); err != nil {
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

func TestRES1MailboxNameHasNoPassword(t *testing.T) {
	counted := newCounting(t)
	registry := mailbox.NewRegistry(&mailbox.RegistryOptions{Fallback: openerFunc(func(ctx context.Context, _ string) (driver.Queue, error) {
		return counted.OpenQueue(ctx, "replies")
	})})
	defer registry.Close()
	const address = "redis://user:secret@cache:6379/replies"
	var told []string
	hooks := mailbox.Hooks{Sent: func(_ context.Context, e mailbox.SentEvent) { told = append(told, e.Queue) }}
	box, err := mailbox.Open(t.Context(), registry, address, &mailbox.Options[string]{Hooks: hooks})
	wantError(t, err, nil)
	mustSend(t, box, "tea")
	_, err = box.Send(t.Context(), "tea", mailbox.WithDelay(-1))
	wantError(t, err, mailbox.ErrInvalid)
	told = append(told, box.Name(), err.Error())

	requests, _ := onMemory(t, &mailbox.Options[string]{Resolver: registry})
	_, err = requests.Send(t.Context(), "tea?", mailbox.WithReplyTo(address))
	wantError(t, err, nil)
	replies, err := mailbox.ReplyMailbox[string](t.Context(), mustReceive(t, requests, 1)[0], nil)
	wantError(t, err, nil)
	_, err = replies.Send(t.Context(), "tea", mailbox.WithDelay(-1))
	wantError(t, err, mailbox.ErrInvalid)
	told = append(told, replies.Name(), err.Error())
	for _, text := range told {
		if strings.Contains(text, "secret") || !strings.Contains(text, "cache:6379/replies") {
			t.Errorf("told is %q", text)
		}
	}
}
