package broker_test

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/diskbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/completion"
	"github.com/mailboxmq/mailbox/internal/keyring"
	"github.com/mailboxmq/mailbox/internal/slotstore"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
	"github.com/mailboxmq/mailbox/internal/verify"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/reply"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// seeing is a backend whose queues say that the slot of each request waits, and fake is a reply store
// that cannot tell it.
type (
	seeing     struct{ driver.Opener }
	seeingOnly struct{ driver.Queue }
	fake       struct{ driver.ReplyStore }
)

func (s seeing) OpenQueue(ctx context.Context, name string) (driver.Queue, error) {
	q, err := s.Opener.OpenQueue(ctx, name)
	return seeingOnly{q}, err
}

func (s seeingOnly) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	got, err := s.Queue.Receive(ctx, req)
	for i := range got {
		got[i].SlotPending = true
	}
	return got, err
}

// TestDeliveryTellsOfPendingSlotOfItsTenant (RPL-6): the state is that of the slot of the caller's tenant,
// also if the backend looks at the id alone.
func TestDeliveryTellsOfPendingSlotOfItsTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := membox.New(nil)
		defer memory.Close()
		for name, options := range map[string]broker.Options{
			"store":   {Opener: memory, Replies: reply.NewMemory(nil)},
			"backend": {Opener: seeing{memory}, Replies: fake{reply.NewMemory(nil)}},
		} {
			b := &replyBench{t: t, ring: keyring.New(keyring.NewKey())}
			options.Ring, options.Verifier = b.ring, verify.New(b.ring, nil)
			var err error
			if b.Broker, err = broker.New(options); err != nil {
				t.Fatal(err)
			}
			if err := b.replies("").Create(t.Context(), "s", time.Minute); err != nil {
				t.Fatal(err)
			}
			for tenant, want := range map[string]bool{"": true, "acme": false} {
				if got := b.askFor(tenant, "s"); got != want {
					t.Errorf("%s, tenant %q: got %t, want %t", name, tenant, got, want)
				}
			}
			_ = b.Close()
		}
	})
}

// askFor sends a request that names a slot, and reports whether the delivery says that it waits.
func (b *replyBench) askFor(tenant, id string) bool {
	b.t.Helper()
	token, err := b.ring.Mint(tenant, capability.EveryOperation(), capability.Queues(capability.AnyQueue()), capability.ExpiresAt(time.Now().AddDate(200, 0, 0)))
	if err != nil {
		b.t.Fatal(err)
	}
	caller := b.Caller(token, broker.Origin{})
	request := broker.Outgoing{Outgoing: driver.Outgoing{Body: []byte("?"), ReplyTo: driver.SlotAddress(id)}}
	if _, err := caller.Send(b.t.Context(), "asked", []broker.Outgoing{request}); err != nil {
		b.t.Fatal(err)
	}
	got, err := caller.Receive(b.t.Context(), "asked", driver.ReceiveRequest{Max: 1, Visibility: time.Hour})
	if err != nil || len(got) != 1 {
		b.t.Fatal(got, err)
	}
	return got[0].SlotPending
}

// waitingStore is a reply store whose waits need no goroutine.
type waitingStore interface {
	driver.ReplyStore
	StartWait(id string, wait time.Duration, done func(driver.Slot, error)) (cancel func())
}

// countedStore counts the calls that read slots.
type countedStore struct {
	waitingStore
	reads atomic.Int64
}

func (s *countedStore) StartWait(id string, wait time.Duration, done func(driver.Slot, error)) func() {
	s.reads.Add(1)
	return s.waitingStore.StartWait(id, wait, done)
}

func (s *countedStore) Get(ctx context.Context, id string) (driver.Slot, error) {
	s.reads.Add(1)
	return s.waitingStore.Get(ctx, id)
}

func (s *countedStore) Wait(ctx context.Context, id string, wait time.Duration) (driver.Slot, error) {
	s.reads.Add(1)
	return s.waitingStore.Wait(ctx, id, wait)
}

// slotReads counts the waits that are over.
type slotReads struct{ answered atomic.Int64 }

func (r *slotReads) SlotRead(_ *completion.Round, slot driver.Slot, err error) {
	if err == nil && slot.State == driver.SlotResolved {
		r.answered.Add(1)
	}
}

// TestTenThousandWaitsPollNothing has 10,000 callers that wait for an hour, in memory and on disk: no goroutine
// each, one call of the store each, and little memory.
func TestTenThousandWaitsPollNothing(t *testing.T) {
	volume.Measures(t)
	t.Run("memory", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { waitsPollNothing(t, slotstore.New(slotstore.Options{})) })
	})
	t.Run("disk", func(t *testing.T) {
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			disk, err := diskbox.Open(t.Context(), dir, &diskbox.Options{Sync: diskbox.SyncNone})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = disk.Close() })
			waitsPollNothing(t, disk.Replies().(waitingStore))
		})
	})
}

// waitsPollNothing lets 10,000 callers wait in a store.
func waitsPollNothing(t *testing.T, waiting waitingStore) {
	const slots = 10_000
	store := &countedStore{waitingStore: waiting}
	b := newReplyBenchOn(t, broker.Limits{}, store)
	replies := b.replies("")
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before, goroutines := heap(), runtime.NumGoroutine()
	var round completion.Round
	got := &slotReads{}
	for n := range slots {
		id := fmt.Sprintf("%032d", n)
		if err := replies.Create(t.Context(), id, 2*time.Hour); err != nil {
			t.Fatal(err)
		}
		if replies.StartWait(t.Context(), &round, id, 2*time.Hour, got) == nil {
			t.Fatalf("slot %d is not waited for", n)
		}
	}
	each := (heap() - before) / slots
	<-time.After(time.Hour) // of virtual time
	more, reads := runtime.NumGoroutine()-goroutines, store.reads.Load()
	if more > 10 {
		t.Errorf("there are %d more goroutines", more)
	}
	if reads != slots {
		t.Errorf("the store was read %d times in an hour, want %d", reads, slots)
	}
	if each > 2<<10 {
		t.Errorf("a slot that is waited for takes %d bytes", each)
	}
	t.Logf("a slot that is waited for takes %d bytes, all of them %d goroutines and %d reads in an hour", each, more, reads)
	for n := range slots {
		if err := replies.Resolve(t.Context(), fmt.Sprintf("%032d", n), driver.Answer{}); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Wait()
	if answered := got.answered.Load(); answered != slots {
		t.Errorf("%d of %d waits were answered", answered, slots)
	}
}
