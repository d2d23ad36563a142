package reply_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/diskbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/replytest"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
	"github.com/mailboxmq/mailbox/mailboxtest"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/registry"
	"github.com/mailboxmq/mailbox/reply"
)

// TestEveryCallerGetsOwnAnswerErrorOrTimeout lets 1,000 callers ask 8
// workers while everything fails now and then.
func TestEveryCallerGetsOwnAnswerErrorOrTimeout(t *testing.T) {
	volume.Alone(t)
	synctest.Test(t, func(t *testing.T) {
		backend, store := membox.New(nil), reply.NewMemory(nil)
		defer backend.Close()
		load := replytest.Load{
			Requests: backend, Replies: store,
			Slots:   func(context.Context) (int, error) { return reply.Len(store), nil },
			Callers: 1000, Workers: 8,
			Work: time.Second, Visibility: mailbox.DefaultVisibility, Patience: 10 * time.Minute,
		}
		t.Logf("%d callers: %v", load.Callers, load.Run(t))
	})
}

// TestEveryCallerOnDiskGetsOwnAnswerErrorOrTimeout is the same with the reply store on disk.
func TestEveryCallerOnDiskGetsOwnAnswerErrorOrTimeout(t *testing.T) {
	volume.Alone(t)
	synctest.Test(t, func(t *testing.T) {
		backend, err := diskbox.Open(t.Context(), t.TempDir(), &diskbox.Options{Sync: diskbox.SyncNone})
		if err != nil {
			t.Fatal(err)
		}
		defer backend.Close()
		load := replytest.Load{
			Requests: backend, Replies: backend.Replies(),
			Slots:   func(context.Context) (int, error) { return reply.Len(backend.Replies()), nil },
			Callers: 500, Workers: 8,
			Work: time.Second, Visibility: mailbox.DefaultVisibility, Patience: 10 * time.Minute,
		}
		t.Logf("%d callers: %v", load.Callers, load.Run(t))
	})
}

// TestRES2ManyReplyAddressesUseBoundedMemory replies to many addresses
// through one resolver, and prints what that leaves behind.
func TestRES2ManyReplyAddressesUseBoundedMemory(t *testing.T) {
	volume.Measures(t)
	const cacheMax = 100
	for _, test := range []struct {
		name      string
		addresses int
		open      func(t *testing.T) driver.Opener
		heapLimit uint64 // bytes that may remain; 0: only printed, because messages are kept there
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
			queues := registry.New(&registry.Options{
				Fallback: test.open(t), CacheMax: cacheMax,
				Hooks: registry.Hooks{
					Opened:  func(context.Context, registry.OpenedEvent) { opened++ },
					Evicted: func(registry.EvictedEvent) { closed++ },
				},
			})
			defer queues.Close()
			requests := must(mailbox.Open(t.Context(), membox.New(nil), "requests", &mailbox.Options[int]{Resolver: queues}))(t)
			defer requests.Close()
			handle := reply.Handle(func(_ context.Context, m *mailbox.Message[int]) (int, error) { return m.Body, nil }, nil)
			ask := func(i int) {
				must(requests.Send(t.Context(), i, mailbox.WithReplyTo(fmt.Sprint("client-", i))))(t)
				expectError(t, handle(t.Context(), must(requests.Receive(t.Context()))(t)[0]), nil)
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
			expectEqual(t, "queues that are open", opened-closed, cacheMax)
			expectEqual(t, "in use", queues.Stats(), registry.Stats{Cached: cacheMax})
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
