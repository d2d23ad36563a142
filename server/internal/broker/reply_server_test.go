package broker_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/completion"
	"github.com/mailboxmq/mailbox/internal/keyring"
	"github.com/mailboxmq/mailbox/internal/testing/pgtest"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
	"github.com/mailboxmq/mailbox/internal/verify"
	"github.com/mailboxmq/mailbox/pgbox"
	"github.com/mailboxmq/mailbox/redisbox"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// TestWaitOnServerTakesOneGoroutine measures callers that wait for slots in Redis and in PostgreSQL, whose
// stores block: one goroutine each, and the memory that docs/requests.md states.
func TestWaitOnServerTakesOneGoroutine(t *testing.T) {
	volume.Measures(t)
	t.Run("redis", func(t *testing.T) {
		client, err := rueidis.NewClient(redistest.Standalone(t).ClientOption())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(client.Close)
		backend, err := redisbox.Open(t.Context(), client, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = backend.Close() })
		waitsTakeGoroutines(t, backend.Replies(0))
	})
	t.Run("postgresql", func(t *testing.T) {
		backend, err := pgbox.Open(t.Context(), pgtest.Start(t, "fsync=off").Pool(t), &pgbox.Options{Migrate: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = backend.Close() })
		waitsTakeGoroutines(t, backend.Replies(0))
	})
}

func waitsTakeGoroutines(t *testing.T, store driver.ReplyStore) {
	const slots = 2_000
	replies := newReplyBenchOn(t, broker.Limits{}, store).replies("")
	got := &slotReads{}
	var round completion.Round
	create := func(from, to int) {
		for n := from; n < to; n++ {
			id := fmt.Sprintf("%032d", n)
			if err := replies.Create(t.Context(), id, time.Hour); err != nil {
				t.Fatal(err)
			}
			if replies.StartWait(t.Context(), &round, id, time.Hour, got) == nil {
				t.Fatalf("slot %d is not waited for", n)
			}
		}
	}
	memory := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc + m.StackInuse
	}
	const first = 100 // connections and subscriptions exist after them
	create(0, first)
	<-time.After(time.Second)
	before, goroutines := memory(), runtime.NumGoroutine()
	create(first, slots)
	<-time.After(time.Second) // all are blocked
	each, more := (int64(memory())-int64(before))/(slots-first), runtime.NumGoroutine()-goroutines
	t.Logf("a slot that is waited for takes %d bytes and %.2f goroutines", each, float64(more)/(slots-first))
	if more < (slots-first)*9/10 || more > (slots-first)*11/10 {
		t.Errorf("%d waits run %d goroutines", slots-first, more)
	}
	if each > 16<<10 {
		t.Errorf("a slot that is waited for takes %d bytes", each)
	}
	for n := range slots {
		if err := replies.Resolve(t.Context(), fmt.Sprintf("%032d", n), driver.Answer{}); err != nil {
			t.Fatal(err)
		}
	}
	for deadline := time.Now().Add(time.Minute); got.answered.Load() < slots; <-time.After(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d waits were answered", got.answered.Load(), slots)
		}
	}
}

// TestRedisDeliveryTellsOfSlotOfItsTenant (RPL-6): a queue in Redis reads the slots of its own tenant, which have
// the same ids as those of another one.
func TestRedisDeliveryTellsOfSlotOfItsTenant(t *testing.T) {
	client, err := rueidis.NewClient(redistest.Standalone(t).ClientOption())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	backend, err := redisbox.Open(t.Context(), client, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = backend.Close() })
	b := &replyBench{t: t, ring: keyring.New(keyring.NewKey())}
	b.Broker, err = broker.New(broker.Options{Opener: backend, Replies: backend.Replies(0), Ring: b.ring, Verifier: verify.New(b.ring, nil)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	tenants := []string{"", "acme", "globex"}
	for _, tenant := range tenants {
		b.askFor(tenant, "first") // queues read slots when they have seen that messages name some
	}
	for n := range 16 {
		id := fmt.Sprint("slot-", n)
		for _, tenant := range tenants {
			if err := b.replies(tenant).Create(t.Context(), id, time.Hour); err != nil {
				t.Fatal(err)
			}
		}
		cancelled := tenants[n%len(tenants)]
		if err := b.replies(cancelled).Cancel(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		for _, tenant := range tenants {
			if got := b.askFor(tenant, id); got != (tenant != cancelled) {
				t.Errorf("%s, cancelled by %q: the slot of tenant %q waits: %t", id, cancelled, tenant, got)
			}
		}
	}
	if b.askFor("", "~acme~slot-0") {
		t.Error("a tenant saw the slot of another")
	}
}
