package broker_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/driver/drivertest"
	"github.com/mailboxmq/mailbox/internal/completion"
	"github.com/mailboxmq/mailbox/internal/keyring"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
	"github.com/mailboxmq/mailbox/internal/verify"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/reply"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// replyBench is a broker with a reply store in memory.
type replyBench struct {
	*broker.Broker
	t     testing.TB
	ring  *keyring.Ring
	store driver.ReplyStore
}

func newReplyBench(t testing.TB, limits broker.Limits) *replyBench {
	t.Helper()
	return newReplyBenchOn(t, limits, reply.NewMemory(nil))
}

func newReplyBenchOn(t testing.TB, limits broker.Limits, store driver.ReplyStore) *replyBench {
	t.Helper()
	b := &replyBench{t: t, ring: keyring.New(keyring.NewKey()), store: store}
	backend := membox.New(nil)
	var err error
	b.Broker, err = broker.New(broker.Options{
		Opener: backend, Replies: b.store, Ring: b.ring, Verifier: verify.New(b.ring, nil), Limits: limits,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(b.Close(), backend.Close()) })
	return b
}

// replies returns the store of a new token, by default for everything.
func (b *replyBench) replies(tenant string, caveats ...capability.Caveat) broker.Replies {
	b.t.Helper()
	if len(caveats) == 0 {
		caveats = []capability.Caveat{capability.EveryOperation()}
	}
	token, err := b.ring.Mint(tenant, append(caveats, capability.Queues(capability.AnyQueue()), capability.ExpiresAt(time.Now().AddDate(200, 0, 0)))...)
	if err != nil {
		b.t.Fatal(err)
	}
	return b.Caller(token, broker.Origin{}).Replies()
}

// TestReplyConformance runs the suite of reply stores on the broker, without a wire.
func TestReplyConformance(t *testing.T) {
	volume.Repeats(t)
	drivertest.RunReplyStore(t, drivertest.ReplyStore{
		Virtual: true,
		Open:    func(t testing.TB) driver.ReplyStore { return newReplyBench(t, broker.Limits{}).replies("") },
	})
}

func expectSlotCode(t *testing.T, err error, code driver.Code, what string) {
	t.Helper()
	if !errors.Is(err, code) {
		t.Errorf("%s: got %v, want %v", what, err, code)
	}
}

func TestTenantsHaveTheirOwnSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, ctx := newReplyBench(t, broker.Limits{}), t.Context()
		none, acme := b.replies(""), b.replies("acme")
		for _, store := range []broker.Replies{none, acme} {
			if err := store.Create(ctx, "s", time.Minute); err != nil {
				t.Fatal(err)
			}
		}
		err := acme.Create(ctx, "s", time.Minute)
		expectSlotCode(t, err, driver.ErrConflict, "create again")
		if strings.Contains(err.Error(), "~") {
			t.Errorf("the error shows the name in the backend: %v", err)
		}
		if err := acme.Resolve(ctx, "s", driver.Answer{Body: []byte("a")}); err != nil {
			t.Fatal(err)
		}
		if slot, err := none.Get(ctx, "s"); err != nil || slot.State != driver.SlotPending || slot.ID != "s" {
			t.Errorf("the slot of no tenant: %+v, %v", slot, err)
		}
		_, err = none.Get(ctx, "~acme~s")
		expectSlotCode(t, err, driver.ErrNotFound, "a slot of another tenant")
		time.Sleep(2 * time.Minute)
		if ids, err := acme.Expired(ctx, 10); err != nil || len(ids) != 1 || ids[0] != "s" {
			t.Errorf("expired: %v, %v", ids, err)
		}
		if removed, err := acme.Sweep(ctx, 10); err != nil || removed != 1 {
			t.Errorf("swept %d, %v", removed, err)
		}
		if ids, err := none.Expired(ctx, 10); err != nil || len(ids) != 1 {
			t.Errorf("of no tenant: %v, %v", ids, err)
		}
	})
}

// TestSlotOperationsNeedTheirOperation also shows which tokens see an answer.
func TestSlotOperationsNeedTheirOperation(t *testing.T) {
	b, ctx := newReplyBench(t, broker.Limits{}), t.Context()
	only := func(o ...capability.Operation) broker.Replies { return b.replies("", capability.Operations(o...)) }
	ask, answer, admin, star := only(capability.OpAsk), only(capability.OpAnswer), only(capability.OpAdmin), b.replies("", capability.AllOperations())
	for name, store := range map[string]broker.Replies{"answer": answer, "admin": admin, "*": star, "slot": b.replies("", capability.EveryOperation(), capability.ForSlot("other"))} {
		expectSlotCode(t, store.Create(ctx, "s", time.Minute), driver.ErrForbidden, "create with "+name)
		expectSlotCode(t, store.Delete(ctx, "s"), driver.ErrForbidden, "delete with "+name)
	}
	if err := ask.Create(ctx, "s", time.Minute); err != nil {
		t.Fatal(err)
	}
	expectSlotCode(t, ask.Resolve(ctx, "s", driver.Answer{}), driver.ErrForbidden, "resolve with ask")
	expectSlotCode(t, answer.Cancel(ctx, "s"), driver.ErrForbidden, "cancel with answer")
	_, err := ask.Expired(ctx, 1)
	expectSlotCode(t, err, driver.ErrForbidden, "list with ask")
	_, err = ask.Sweep(ctx, 1)
	expectSlotCode(t, err, driver.ErrForbidden, "sweep with ask")
	one := b.replies("", capability.Operations(capability.OpAnswer), capability.ForSlot("s"))
	if err := one.Resolve(ctx, "s", driver.Answer{Body: []byte("yes")}); err != nil {
		t.Errorf("resolve with a token for the slot: %v", err)
	}
	for name, want := range map[string]string{"ask": "yes", "answer": "", "admin": "", "*": ""} {
		store := map[string]broker.Replies{"ask": ask, "answer": answer, "admin": admin, "*": star}[name]
		slot, err := store.Get(ctx, "s")
		if err != nil || slot.State != driver.SlotResolved || string(slot.Answer.Body) != want {
			t.Errorf("%s reads %+v, %v", name, slot, err)
		}
		slot, err = store.Wait(ctx, "s", time.Minute)
		if err != nil || string(slot.Answer.Body) != want {
			t.Errorf("%s waits for %+v, %v", name, slot, err)
		}
	}
}

// TestAnswersCountAgainstCaveats: a failure counts as a body does, and what was answered or read delays
// the next receive.
func TestAnswersCountAgainstCaveats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, ctx := newReplyBench(t, broker.Limits{}), t.Context()
		all, long := b.replies(""), strings.Repeat("x", 1000)
		for _, id := range []string{"a", "b"} {
			if err := all.Create(ctx, id, time.Hour); err != nil {
				t.Fatal(err)
			}
		}
		small := b.replies("", capability.EveryOperation(), capability.MaxBodyBytes(100))
		if err := small.Resolve(ctx, "a", driver.Answer{Failure: long}); err == nil {
			t.Error("a long failure with a token for small bodies was stored")
		}
		token, err := b.ring.Mint("", capability.EveryOperation(), capability.Queues(capability.AnyQueue()),
			capability.BytesPerSecond(100), capability.ExpiresAt(time.Now().Add(time.Hour)))
		if err != nil {
			t.Fatal(err)
		}
		slow := b.Caller(token, broker.Origin{})
		expectReceive := func(code driver.Code, what string) {
			t.Helper()
			_, err := slow.Receive(ctx, "q", driver.ReceiveRequest{Max: 1})
			expectSlotCode(t, err, code, what)
		}
		expectReceive(driver.ErrNotFound, "a receive before")
		if err := slow.Replies().Resolve(ctx, "a", driver.Answer{Failure: long}); err != nil {
			t.Fatal(err)
		}
		expectReceive(driver.ErrFull, "a receive after a long answer")
		if err := slow.Replies().Resolve(ctx, "b", driver.Answer{}); err != nil {
			t.Errorf("an answer beyond the quota: %v", err)
		}
		time.Sleep(time.Minute)
		expectReceive(driver.ErrNotFound, "a receive a minute later")
		if slot, err := slow.Replies().Get(ctx, "a"); err != nil || slot.Answer.Failure != long {
			t.Fatal(slot, err)
		}
		expectReceive(driver.ErrFull, "a receive after a long answer was read")
	})
}

// stalledGets is a reply store whose Get does not return until it may.
type stalledGets struct {
	driver.ReplyStore
	goOn chan struct{}
}

func (s *stalledGets) Get(ctx context.Context, id string) (driver.Slot, error) {
	<-s.goOn
	return s.ReplyStore.Get(ctx, id)
}

// readSlot signals when a wait that was started is complete.
type readSlot chan error

func (r readSlot) SlotRead(_ *completion.Round, _ driver.Slot, err error) { r <- err }

// TestStartedWaitTakesTurn has a tenant use up its operations. Its next wait is not even begun.
func TestStartedWaitTakesTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring := keyring.New(keyring.NewKey())
		store := &stalledGets{reply.NewMemory(nil), make(chan struct{})}
		made, err := broker.New(broker.Options{Opener: membox.New(nil), Replies: store, Ring: ring, Verifier: verify.New(ring, nil)})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = made.Close() }()
		b := &replyBench{Broker: made, t: t, ring: ring}
		hostile, victim := b.replies("hostile"), b.replies("victim")
		for _, replies := range []broker.Replies{victim, hostile} {
			if err := errors.Join(replies.Create(t.Context(), "s", time.Hour), replies.Resolve(t.Context(), "s", driver.Answer{})); err != nil {
				t.Fatal(err)
			}
		}
		for range 50 {
			go func() { _, _ = hostile.Get(context.Background(), "s") }()
		}
		synctest.Wait()
		start := func(replies broker.Replies) readSlot {
			done := make(readSlot, 1)
			go func() {
				round := completion.NewRound()
				replies.StartWait(context.Background(), round, "s", time.Hour, done)
				round.Close()
			}()
			synctest.Wait()
			return done
		}
		if done := start(victim); len(done) != 1 || <-done != nil {
			t.Error("another tenant does not get its slot")
		}
		done := start(hostile)
		if len(done) != 0 {
			t.Error("a tenant that has used up its operations went on")
		}
		close(store.goOn)
		if err := <-done; err != nil {
			t.Error(err)
		}
		synctest.Wait()
	})
}

// replacedSlots is a reply store that lists a slot as expired that was replaced since.
type replacedSlots struct{ driver.ReplyStore }

func (replacedSlots) Expired(context.Context, int) ([]string, error) { return []string{"s"}, nil }

func TestSweepKeepsSlotThatWasReplaced(t *testing.T) {
	ring := keyring.New(keyring.NewKey())
	made, err := broker.New(broker.Options{Opener: membox.New(nil), Replies: replacedSlots{reply.NewMemory(nil)}, Ring: ring, Verifier: verify.New(ring, nil)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = made.Close() }()
	replies, ctx := (&replyBench{Broker: made, t: t, ring: ring}).replies(""), t.Context()
	if err := errors.Join(replies.Create(ctx, "s", time.Hour), replies.Resolve(ctx, "s", driver.Answer{Body: []byte("yes")})); err != nil {
		t.Fatal(err)
	}
	if removed, err := replies.Sweep(ctx, 10); removed != 0 || err != nil {
		t.Errorf("swept %d, %v", removed, err)
	}
	if slot, err := replies.Get(ctx, "s"); err != nil || string(slot.Answer.Body) != "yes" {
		t.Errorf("the answer after a sweep: %+v, %v", slot, err)
	}
}

func TestCancellationByAdminIsAudited(t *testing.T) {
	b, ctx := newReplyBench(t, broker.Limits{}), t.Context()
	all, admin := b.replies(""), b.replies("", capability.Operations(capability.OpAdmin))
	for _, id := range []string{"own", "other"} {
		if err := all.Create(ctx, id, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(all.Cancel(ctx, "own"), admin.Cancel(ctx, "other")); err != nil {
		t.Fatal(err)
	}
	token, err := b.ring.Mint("", capability.EveryOperation(), capability.Queues(capability.AnyQueue()), capability.ExpiresAt(time.Now().Add(time.Hour)))
	if err != nil {
		t.Fatal(err)
	}
	records, _, err := b.Caller(token, broker.Origin{}).Audit(ctx)
	if err != nil || len(records) != 1 || records[0].Operation != "cancel request" || records[0].Subject != "other" {
		t.Errorf("audit: %+v, %v", records, err)
	}
}

// TestSlotsOfBeforeCountAfterRestart: two brokers have one store, one after the other.
func TestSlotsOfBeforeCountAfterRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, ctx := newReplyBench(t, broker.Limits{MaxReplySlots: 16}), t.Context()
		greedy := b.replies("greedy")
		for n := range 13 {
			if err := greedy.Create(ctx, string(rune('a'+n)), time.Hour); err != nil {
				t.Fatal(err)
			}
		}
		next, err := broker.New(broker.Options{
			Opener: membox.New(nil), Replies: b.store, Ring: b.ring, Verifier: verify.New(b.ring, nil), Limits: broker.Limits{MaxReplySlots: 16},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = next.Close() }()
		b.Broker = next
		greedy = b.replies("greedy")
		if used := usedSlots(next); used != 13 {
			t.Errorf("%d slots are counted after a restart", used)
		}
		if err := b.replies("quiet").Create(ctx, "q", time.Hour); err != nil {
			t.Errorf("another tenant: %v", err)
		}
		expectSlotCode(t, greedy.Create(ctx, "more", time.Hour), driver.ErrFull, "more than half beside another tenant")
		for n := range 13 {
			if err := greedy.Delete(ctx, string(rune('a'+n))); err != nil {
				t.Fatal(err)
			}
		}
		if err := greedy.Create(ctx, "more", time.Minute); err != nil {
			t.Errorf("after all were deleted: %v", err)
		}
		time.Sleep(2 * time.Hour)
		if used := usedSlots(next); used != 0 {
			t.Errorf("%d slots are counted after all have expired", used)
		}
	})
}

// listedStore is a store that other daemons use too, and that lists its slots after some failures.
type listedStore struct {
	driver.ReplyStore
	fails   int           // how many lists fail
	proceed chan struct{} // if it is not nil, lists wait until it is closed
}

func (s *listedStore) Slots(ctx context.Context) iter.Seq2[driver.Slot, error] {
	return func(yield func(driver.Slot, error) bool) {
		if s.proceed != nil {
			select {
			case <-s.proceed:
			case <-ctx.Done():
				yield(driver.Slot{}, ctx.Err())
				return
			}
		}
		if s.fails > 0 {
			s.fails--
			yield(driver.Slot{}, &driver.Error{Code: driver.ErrUnavailable, Op: "list slots"})
			return
		}
		s.ReplyStore.(driver.SlotLister).Slots(ctx)(yield)
	}
}

// TestSlotsOfSharedStoreCountAfterRestart (OPS-4): the store answers late, and not at first. The broker begins
// without it, and counts each slot once.
func TestSlotsOfSharedStoreCountAfterRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, memory := t.Context(), reply.NewMemory(nil)
		before := newReplyBenchOn(t, broker.Limits{MaxReplySlots: 32}, memory)
		for n := range 16 {
			if err := before.replies("greedy").Create(ctx, fmt.Sprint("old-", n), time.Hour); err != nil {
				t.Fatal(err)
			}
		}
		store := &listedStore{ReplyStore: memory, fails: 3, proceed: make(chan struct{})}
		b := newReplyBenchOn(t, broker.Limits{MaxReplySlots: 32}, store)
		greedy := b.replies("greedy")
		for n := range 8 { // while the store is read
			if err := greedy.Create(ctx, fmt.Sprint("new-", n), time.Hour); err != nil {
				t.Fatal(err)
			}
		}
		close(store.proceed)
		time.Sleep(time.Minute)
		if used := usedSlots(b.Broker); used != 24 {
			t.Errorf("%d slots are counted, want 16 of before and 8", used)
		}
		if err := b.replies("quiet").Create(ctx, "q", time.Hour); err != nil {
			t.Errorf("another tenant: %v", err)
		}
		expectSlotCode(t, greedy.Create(ctx, "more", time.Hour), driver.ErrFull, "more than half beside another tenant")
		time.Sleep(2 * time.Hour)
		if used := usedSlots(b.Broker); used != 0 {
			t.Errorf("%d slots are counted after all have expired", used)
		}
	})
}

// TestBrokerClosesWhileStoreIsRead: Close ends the list.
func TestBrokerClosesWhileStoreIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newReplyBenchOn(t, broker.Limits{}, &listedStore{ReplyStore: reply.NewMemory(nil), proceed: make(chan struct{})})
		synctest.Wait()
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestManySlotsOfOthersAreCountedInBounds: the store has more slots than the broker has room for.
func TestManySlotsOfOthersAreCountedInBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := reply.NewMemory(nil)
		for n := range 100 {
			if err := memory.Create(t.Context(), fmt.Sprint("slot-", n), time.Hour); err != nil {
				t.Fatal(err)
			}
		}
		b := newReplyBenchOn(t, broker.Limits{MaxReplySlots: 16}, &listedStore{ReplyStore: memory})
		synctest.Wait()
		if used := usedSlots(b.Broker); used != 16 {
			t.Errorf("%d slots are counted, want 16", used)
		}
	})
}

// sharedStore is a reply store that other daemons use too.
type sharedStore struct {
	driver.ReplyStore
	listed int // the largest limit of Expired
}

func (s *sharedStore) Expired(ctx context.Context, limit int) ([]string, error) {
	s.listed = max(s.listed, limit)
	return s.ReplyStore.Expired(ctx, limit)
}

func usedSlots(b *broker.Broker) int64 { return usedShare(b, "reply slots") }

func usedShare(b *broker.Broker, resource string) int64 {
	for _, share := range b.Shares() {
		if share.Resource == resource {
			return share.Used
		}
	}
	return -1
}

// slowCreates is a reply store whose Create returns late: the slot is there before.
type slowCreates struct {
	driver.ReplyStore
	created, goOn chan struct{}
}

func (s *slowCreates) Create(ctx context.Context, id string, ttl time.Duration) error {
	err := s.ReplyStore.Create(ctx, id, ttl)
	close(s.created)
	<-s.goOn
	return err
}

func TestSlotDeletedDuringCreateIsNotCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring := keyring.New(keyring.NewKey())
		store := &slowCreates{reply.NewMemory(nil), make(chan struct{}), make(chan struct{})}
		b, err := broker.New(broker.Options{Opener: membox.New(nil), Replies: store, Ring: ring, Verifier: verify.New(ring, nil)})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = b.Close() }()
		replies := (&replyBench{Broker: b, t: t, ring: ring}).replies("")
		done := make(chan error)
		go func() { done <- replies.Create(context.Background(), "s", time.Hour) }()
		<-store.created
		if err := replies.Delete(t.Context(), "s"); err != nil {
			t.Fatal(err)
		}
		close(store.goOn)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if used := usedSlots(b); used != 0 {
			t.Errorf("%d slots are counted", used)
		}
	})
}

func TestWaitForSlotEndsWhenDaemonDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newReplyBench(t, broker.Limits{})
		store := b.replies("")
		if err := store.Create(t.Context(), "s", time.Hour); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() {
			slot, err := store.Wait(context.Background(), "s", time.Hour)
			if err == nil && slot.State != driver.SlotPending {
				err = errors.New("it is " + string(slot.State))
			}
			done <- err
		}()
		synctest.Wait()
		b.SetState(broker.StateSettling)
		if err := <-done; err != nil {
			t.Error(err)
		}
		_, err := store.Wait(t.Context(), "s", time.Hour)
		expectSlotCode(t, err, driver.ErrUnavailable, "wait while draining")
		if err := store.Resolve(t.Context(), "s", driver.Answer{}); err != nil {
			t.Errorf("answer while draining: %v", err)
		}
		expectSlotCode(t, store.Create(t.Context(), "t", time.Hour), driver.ErrUnavailable, "create while draining")
	})
}

func TestSlotsNeedReplyStore(t *testing.T) {
	b := newBench(t, membox.New(nil), broker.Limits{})
	every, err := b.ring.Mint("", capability.EveryOperation(), capability.Queues(capability.AnyQueue()), capability.ExpiresAt(time.Now().Add(time.Hour)))
	if err != nil {
		t.Fatal(err)
	}
	err = b.Caller(every, broker.Origin{}).Replies().Create(t.Context(), "s", time.Minute)
	expectSlotCode(t, err, driver.ErrUnsupported, "create without a store")
}
