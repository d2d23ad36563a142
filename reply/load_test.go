package reply_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/diskbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/mailboxtest"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/reply"
)

// TestEveryCallerGetsItsOwnAnswerAnErrorOrItsTimeout lets 1,000 callers ask 8
// workers while everything fails now and then: workers are killed before they
// serve, while they work and between their reply and their ack; every tenth
// write of the reply store fails, before or after it was done.
func TestEveryCallerGetsItsOwnAnswerAnErrorOrItsTimeout(t *testing.T) {
	const callers, workers = 1000, 8
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t)
		for _, op := range []mailboxtest.Op{mailboxtest.OpReplyCreate, mailboxtest.OpReplyResolve, mailboxtest.OpReplyCancel, mailboxtest.OpReplyDelete} {
			o.faults.Add(mailboxtest.Fault{Op: op, Err: mailbox.ErrUnavailable, Every: 10})
		}
		o.faults.Add(mailboxtest.Fault{Op: mailboxtest.OpReplyResolve, Err: mailbox.ErrUnavailable, Every: 37, Late: true})
		o.faults.Add(mailboxtest.Fault{Op: mailboxtest.OpAck, Err: mailbox.ErrUnavailable, Every: 13})
		o.faults.Add(mailboxtest.Fault{Op: mailboxtest.OpSend, Err: mailbox.ErrUnavailable, Every: 41, Late: true})

		ctx, stop := context.WithCancel(t.Context())
		var serving sync.WaitGroup
		var served, killed atomic.Int64
		for range workers {
			serving.Go(func() { runMortalWorker(ctx, o, &served, &killed) })
		}
		client := o.client(&reply.Options[string]{TTL: 10 * time.Minute})
		var calling sync.WaitGroup
		var tally tally
		for i := range callers {
			calling.Go(func() { tally.add(t, i, callOnce(t.Context(), client, i)) })
		}
		calling.Wait()

		// Whatever is left is requests that were answered or given up.
		o.faults.Clear()
		time.Sleep(time.Hour)
		o.wantRequests(t, mailbox.Stats{})
		stop()
		serving.Wait()
		for swept := 1; swept > 0; {
			var err error
			swept, err = o.slots.Sweep(t.Context(), 100)
			wantError(t, err, nil)
		}
		wantEqual(t, "slots that are left", o.slots.Len(), 0)
		t.Logf("%d callers: %v; served %d, workers killed %d", callers, &tally, served.Load(), killed.Load())
		wantEqual(t, "outcomes", tally.sum(), callers)
		if tally.answers < callers/2 || tally.failures == 0 || tally.errors == 0 || killed.Load() == 0 {
			t.Error("this was no test: too few answers, or nothing went wrong")
		}
	})
}

// runMortalWorker serves, and dies every 11th message, in one of three ways.
func runMortalWorker(ctx context.Context, o *office, served, killed *atomic.Int64) {
	serve := func(_ context.Context, message *mailbox.Message[string]) (string, error) {
		served.Add(1)
		<-time.After(time.Second) // of virtual time
		if strings.HasSuffix(message.Body, "7") {
			return "", fmt.Errorf("%w: %s", errSoldOut, message.Body)
		}
		return "answer to " + message.Body, nil
	}
	handle := reply.Handle(serve, nil)
	for n := 1; ; n++ {
		messages, err := o.requests.Receive(ctx, mailbox.WithWait(time.Minute))
		if ctx.Err() != nil {
			return
		}
		if err != nil || len(messages) == 0 {
			continue
		}
		switch message := messages[0]; {
		case n%33 == 0: // dead before it began
			killed.Add(1)
		case n%22 == 0: // dead while it worked
			killed.Add(1)
			life, end := context.WithTimeout(ctx, time.Second/2)
			_ = handle(life, message)
			end()
		case n%11 == 0: // dead between reply and ack
			killed.Add(1)
			answer, err := serve(ctx, message)
			if channel := mailbox.NewReplyChannel[string](message, nil); err == nil {
				_ = channel.Send(ctx, answer)
			} else {
				_ = channel.Fail(ctx, err)
			}
		default:
			_ = handle(ctx, message) // what fails comes back
		}
	}
}

// callOnce is one caller: most are patient, and some give up early.
func callOnce(ctx context.Context, client *reply.Client[string, string], i int) (result callResult) {
	question := fmt.Sprint("question ", i)
	if i%10 == 3 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(i)*100*time.Millisecond)
		defer cancel()
	}
	result.answer, result.err = client.Call(ctx, question)
	return result
}

type callResult struct {
	answer string
	err    error
}

// A tally counts outcomes.
type tally struct {
	mu                                  sync.Mutex // guards the fields below
	answers, failures, errors, timeouts int
}

func (c *tally) sum() int { return c.answers + c.failures + c.errors + c.timeouts }

func (c *tally) String() string {
	return fmt.Sprintf("%d answers, %d failures of their own, %d errors of a store or mailbox, %d timeouts", c.answers, c.failures, c.errors, c.timeouts)
}

func (c *tally) add(t *testing.T, i int, got callResult) {
	c.mu.Lock()
	defer c.mu.Unlock()
	failure, failed := errors.AsType[*mailbox.Failure](got.err)
	switch {
	case got.err == nil:
		c.answers++
		wantEqual(t, "answer", got.answer, fmt.Sprint("answer to question ", i))
	case failed:
		c.failures++
		wantEqual(t, "failure", failure.Text, fmt.Sprint("sold out: question ", i))
	case errors.Is(got.err, mailbox.ErrUnavailable):
		c.errors++
	case errors.Is(got.err, mailbox.ErrTimeout), errors.Is(got.err, context.DeadlineExceeded):
		c.timeouts++
	default:
		t.Errorf("caller %d: %v", i, got.err)
	}
}

// TestRES2ManyReplyAddressesCostABoundedAmount replies to many addresses
// through one resolver, and prints what that leaves behind.
func TestRES2ManyReplyAddressesCostABoundedAmount(t *testing.T) {
	const cacheMax = 100
	for _, test := range []struct {
		name      string
		addresses int
		open      func(t *testing.T) driver.Opener
		heapLimit uint64 // bytes that may be left behind; 0: messages are kept there, so it is only printed
	}{
		{"null", 10_000, func(*testing.T) driver.Opener { return mailboxtest.Null{} }, 1 << 20},
		{"memory", 10_000, func(t *testing.T) driver.Opener {
			backend := membox.New(nil)
			t.Cleanup(func() { backend.Close() })
			return backend
		}, 0},
		{"disk", 1_000, func(t *testing.T) driver.Opener {
			backend := must(diskbox.Open(t.Context(), t.TempDir(), &diskbox.Options{Sync: diskbox.SyncNone}))(t)
			t.Cleanup(func() { backend.Close() })
			return backend
		}, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			opened, closed := 0, 0
			registry := mailbox.NewRegistry(&mailbox.RegistryOptions{
				Fallback: test.open(t), CacheMax: cacheMax,
				Trace: &mailbox.RegistryTrace{
					Opened:  func(context.Context, mailbox.OpenedEvent) { opened++ },
					Evicted: func(mailbox.EvictedEvent) { closed++ },
				},
			})
			defer registry.Close()
			requests := must(mailbox.Open(t.Context(), membox.New(nil), "requests", &mailbox.Options[int]{Resolver: registry}))(t)
			defer requests.Close()
			handle := reply.Handle(func(_ context.Context, m *mailbox.Message[int]) (int, error) { return m.Body, nil }, nil)
			ask := func(i int) {
				must(requests.Send(t.Context(), i, mailbox.WithReplyTo(fmt.Sprint("client-", i))))(t)
				wantError(t, handle(t.Context(), must(requests.Receive(t.Context()))(t)[0]), nil)
			}
			for i := range cacheMax { // fill the cache before measuring
				ask(-i)
			}
			goroutines, heap := runtime.NumGoroutine(), heapInUse()
			most := goroutines
			for i := range test.addresses {
				ask(i)
				most = max(most, runtime.NumGoroutine())
			}
			grown := int64(heapInUse()) - int64(heap)
			t.Logf("%d reply addresses: goroutines %d before, %d at most, %d after; heap grew by %d KiB; %d queues opened, %d closed, %d open now",
				test.addresses, goroutines, most, runtime.NumGoroutine(), grown>>10, opened, closed, opened-closed)
			if most > goroutines+5 {
				t.Errorf("goroutines grew from %d to %d", goroutines, most)
			}
			wantEqual(t, "queues that are open", opened-closed, cacheMax)
			wantEqual(t, "in use", registry.Stats(), mailbox.RegistryStats{Cached: cacheMax})
			if test.heapLimit > 0 && grown > int64(test.heapLimit) {
				t.Errorf("the heap grew by %d bytes", grown)
			}
		})
	}
}

func heapInUse() uint64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
