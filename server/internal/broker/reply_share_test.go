package broker_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/verify"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/reply"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

func TestSlotsAreSharedFairly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, ctx := newReplyBench(t, broker.Limits{MaxReplySlots: 16}), t.Context()
		create := func(store broker.Replies, prefix string) (made int, err error) {
			for ; err == nil; made++ {
				err = store.Create(ctx, prefix+string(rune('a'+made)), time.Minute)
			}
			return made - 1, err
		}
		greedy, quiet := b.replies("greedy"), b.replies("quiet")
		made, err := create(greedy, "g")
		if e, ok := errors.AsType[*driver.Error](err); made != 13 || !ok || e.Code != driver.ErrFull || !strings.Contains(e.Detail, "reply slots") || e.RetryAfter == 0 {
			t.Errorf("a tenant alone got %d, then %v", made, err)
		}
		if made, _ = create(quiet, "q"); made == 0 {
			t.Error("another tenant got none")
		}
		if err := greedy.Delete(ctx, "ga"); err != nil {
			t.Fatal(err)
		}
		expectSlotCode(t, greedy.Create(ctx, "again", time.Minute), driver.ErrFull, "more than half beside another tenant")
		time.Sleep(2 * time.Minute) // all expire
		if made, _ = create(greedy, "x"); made < 8 {
			t.Errorf("after the others have expired: %d", made)
		}
	})
}

// TestAnswerBytesAreSharedFairly (OPS-4) has a tenant whose clients never read their answers, and another one
// that asks beside it.
func TestAnswerBytesAreSharedFairly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 64 << 10
		b, ctx := newReplyBench(t, broker.Limits{MaxReplyBytes: 16 * size}), t.Context()
		greedy, quiet := b.replies("greedy"), b.replies("quiet")
		answer := func(store broker.Replies, id string, bytes int) error {
			if err := store.Create(ctx, id, time.Minute); err != nil {
				t.Fatal(err)
			}
			return store.Resolve(ctx, id, driver.Answer{Body: make([]byte, bytes)})
		}
		expectUsed := func(want int64, what string) {
			t.Helper()
			if used := usedShare(b.Broker, "answer bytes"); used != want {
				t.Errorf("%s: %d bytes are counted, want %d", what, used, want)
			}
		}
		stored, err := 0, error(nil)
		for ; err == nil; stored++ {
			err = answer(greedy, string(rune('a'+stored)), size)
		}
		if e, ok := errors.AsType[*driver.Error](err); stored != 13 || !ok || e.Code != driver.ErrFull || !strings.Contains(e.Detail, "answer bytes") || e.RetryAfter == 0 {
			t.Errorf("a tenant alone stored %d, then %v", stored-1, err)
		}
		if err := answer(quiet, "q", size); err != nil {
			t.Errorf("another tenant beside it: %v", err)
		}
		expectUsed(13*size, "of both")
		expectSlotCode(t, greedy.Resolve(ctx, "a", driver.Answer{Body: make([]byte, size)}), driver.ErrReplyAlreadySent, "a second answer")
		if _, err := greedy.Consume(ctx, "a"); err != nil {
			t.Fatal(err)
		}
		if err := greedy.Delete(ctx, "b"); err != nil {
			t.Fatal(err)
		}
		expectUsed(11*size, "after one was read and one deleted")
		expectSlotCode(t, greedy.Resolve(ctx, "m", driver.Answer{Body: make([]byte, size)}), driver.ErrFull, "more than half beside another tenant")
		expectSlotCode(t, greedy.Resolve(ctx, "never created", driver.Answer{Body: []byte("a")}), driver.ErrNotFound, "no slot")
		expectUsed(11*size, "after answers that were not stored")
		time.Sleep(2 * time.Minute) // all expire
		expectUsed(0, "after all have expired")
		if err := answer(greedy, "x", size); err != nil {
			t.Error(err)
		}
	})
}

// TestSlotsRemovedElsewhereAreNotCounted (OPS-4): two daemons have one store, and slots that were created
// through one are removed through the other.
func TestSlotsRemovedElsewhereAreNotCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, ctx := newReplyBenchOn(t, broker.Limits{MaxReplySlots: 16}, &sharedStore{ReplyStore: reply.NewMemory(nil)}), t.Context()
		other, err := broker.New(broker.Options{Opener: membox.New(nil), Replies: b.store, Ring: b.ring, Verifier: verify.New(b.ring, nil)})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = other.Close() }()
		here := b.replies("busy")
		elsewhere := (&replyBench{Broker: other, t: t, ring: b.ring}).replies("busy")
		id := func(n int) string { return string(rune('a' + n)) }
		for n := range 13 {
			if err := here.Create(ctx, id(n), time.Hour); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		expectSlotCode(t, here.Create(ctx, "more", time.Hour), driver.ErrFull, "while all exist")
		for n := range 5 {
			if err := elsewhere.Delete(ctx, id(n)); err != nil {
				t.Fatal(err)
			}
		}
		if err := here.Create(ctx, "more", time.Hour); err != nil {
			t.Errorf("after five were removed: %v", err)
		}
		if used := usedSlots(b.Broker); used != 9 {
			t.Errorf("%d slots are counted, want the 8 that are left and one more", used)
		}
	})
}

// TestExpiredSlotsAreListedInBounds: a tenant's list does not read all slots of all tenants.
func TestExpiredSlotsAreListedInBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &sharedStore{ReplyStore: reply.NewMemory(nil)}
		b, ctx := newReplyBenchOn(t, broker.Limits{}, store), t.Context()
		for n := range 3 {
			if err := b.replies("a").Create(ctx, string(rune('a'+n)), time.Second); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * time.Second)
		if ids, err := b.replies("a").Expired(ctx, 2); err != nil || len(ids) != 2 || store.listed > 4096 {
			t.Errorf("listed %q, %v, and asked the store for %d", ids, err, store.listed)
		}
		if n, err := b.replies("a").Sweep(ctx, 1<<30); err != nil || n != 3 || store.listed > 4096 {
			t.Errorf("swept %d, %v, and asked the store for %d", n, err, store.listed)
		}
	})
}
