package reply_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/driver/drivertest"
	"github.com/mailboxmq/mailbox/reply"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var memoryStore = drivertest.ReplyStore{
	Open:    func(testing.TB) driver.ReplyStore { return reply.NewMemory(nil) },
	Virtual: true,
}

func TestMemoryIsReplyStore(t *testing.T) { drivertest.RunReplyStore(t, memoryStore) }

func TestMemoryIsReplyStoreOnRealClock(t *testing.T) {
	store := memoryStore
	store.Virtual, store.Tick = false, 100*time.Millisecond
	drivertest.RunReplyStore(t, store)
}

// TestMemoryBoundsBytesOfAnswers: an answer that finds no room leaves its slot pending, and a removed,
// consumed or expired answer makes room.
func TestMemoryBoundsBytesOfAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, ctx := reply.NewMemory(&reply.MemoryOptions{MaxBytes: 10}), t.Context()
		create := func(id string, ttl time.Duration) {
			t.Helper()
			if err := store.Create(ctx, id, ttl); err != nil {
				t.Fatal(err)
			}
		}
		answer := func(id string, code driver.Code) {
			t.Helper()
			err := store.Resolve(ctx, id, driver.Answer{Body: []byte("tea"), Failure: "f", FailureKind: "kk"})
			if code == "" && err != nil || code != "" && !errors.Is(err, code) {
				t.Errorf("resolve %s: %v, want %q", id, err, code)
			}
		}
		for _, free := range []func() error{
			func() error { return store.Delete(ctx, "a") },
			func() error { _, err := store.Consume(ctx, "a"); return err },
			func() error { time.Sleep(time.Minute); _, err := store.Sweep(ctx, 9); return err },
		} {
			create("a", time.Minute)
			create("b", time.Hour)
			answer("a", "")
			answer("b", driver.ErrFull)
			if slot, err := store.Get(ctx, "b"); err != nil || slot.State != driver.SlotPending {
				t.Errorf("the slot without room: %+v, %v", slot, err)
			}
			if err := free(); err != nil {
				t.Fatal(err)
			}
			answer("b", "")
			answer("b", driver.ErrReplyAlreadySent)
			if err := store.Delete(ctx, "b"); err != nil {
				t.Fatal(err)
			}
		}
		create("a", time.Minute)
		answer("a", "")
		create("b", time.Hour)
		time.Sleep(time.Minute) // expired, and not swept
		answer("b", "")
	})
}
