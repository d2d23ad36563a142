package drivertest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// A ReplyStore describes a reply store to the suite.
type ReplyStore struct {
	// Open returns a fresh and empty store. It registers its clean-up with t.Cleanup. The suite
	// closes a store with a method Close() error.
	Open func(t testing.TB) driver.ReplyStore
	// Another returns a second client of the same store, as another process would have it. Nil
	// means that there is no other process.
	Another func(t testing.TB, store driver.ReplyStore) driver.ReplyStore
	// Late bounds the time until a waiter learns that a slot is not pending any more, for
	// stores that can only poll; 0 means at once.
	Late time.Duration
	// Only says which cases RunReplyStore runs, by their names as in ReplyStoreCases; nil means all.
	Only func(name string) bool
	// Virtual reports that all cases can run inside a synctest bubble.
	Virtual bool
	// Tick is the suite's unit of time when not Virtual, for stores that count in coarser
	// steps; 0 means 200 ms.
	Tick time.Duration
}

// RunReplyStore runs every case for reply stores against b, each as a subtest
// called "ID/title" with a store of its own.
func RunReplyStore(t *testing.T, b ReplyStore) {
	t.Helper()
	for _, c := range allSlotCases() {
		name := c.id + "/" + c.title
		if b.Only != nil && !b.Only(name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			if b.Virtual {
				synctest.Test(t, func(t *testing.T) { c.run(newSlotEnv(t, b, c.id)) })
			} else {
				c.onRealClock(b).check(t, b.Tick, 1)
			}
		})
	}
}

// ReplyStoreCases lists all cases, as Cases does, in the order in which RunReplyStore runs them.
func ReplyStoreCases() []string {
	var names []string
	for _, c := range allSlotCases() {
		names = append(names, c.id+"/"+c.title)
	}
	return names
}

// A slotCase proves one claim about one rule.
type slotCase struct {
	id    string
	title string
	run   func(e *slotEnv)
}

// onRealClock returns the attempts at the case.
func (c slotCase) onRealClock(b ReplyStore) attempts {
	return func(t *testing.T, tick time.Duration) (*env, func()) {
		b.Tick = tick
		e := newSlotEnv(t, b, c.id)
		return e.env, func() { c.run(e) }
	}
}

func allSlotCases() []slotCase {
	return slices.Concat(slotCreateCases, slotWriteCases, slotTimeCases, slotWaitCases, slotRemoveCases, slotListCases, slotModelCases)
}

// A slotEnv is the environment of one case of a reply store.
type slotEnv struct {
	*env
	store driver.ReplyStore
	// other is the same store, as seen from another process if there is one.
	other driver.ReplyStore
	late  time.Duration
}

func newSlotEnv(t *testing.T, b ReplyStore, rule string) *slotEnv {
	plain := newPlainEnv(t, Backend{Virtual: b.Virtual, Tick: b.Tick}, rule)
	e := &slotEnv{env: plain, late: max(b.Late, promptness)}
	e.store = b.Open(t)
	e.other = e.store
	if b.Another != nil {
		e.other = b.Another(t, e.store)
	}
	e.began = time.Now() // Open may have waited for its turn
	t.Cleanup(func() {
		e.running.Wait()
		if store, ok := e.store.(closer); ok {
			if err := store.Close(); err != nil {
				t.Errorf("%s: closing the store: %v", rule, err)
			}
		}
	})
	return e
}

// create creates slots that do not expire during the case.
func (e *slotEnv) create(ids ...string) {
	e.t.Helper()
	for _, id := range ids {
		e.createFor(id, e.hold)
	}
}

func (e *slotEnv) createFor(id string, ttl time.Duration) {
	e.t.Helper()
	e.ok(e.store.Create(e.ctx(), id, ttl), "create slot %q for %v", id, ttl)
}

func (e *slotEnv) resolve(id, body string) {
	e.t.Helper()
	e.ok(e.other.Resolve(e.ctx(), id, driver.Answer{Body: []byte(body)}), "resolve slot %q", id)
}

func (e *slotEnv) cancel(id string) {
	e.t.Helper()
	e.ok(e.other.Cancel(e.ctx(), id), "cancel slot %q", id)
}

// expect reads a slot, which must be in this state.
func (e *slotEnv) expect(id string, want driver.SlotState) driver.Slot {
	e.t.Helper()
	got, err := e.store.Get(e.ctx(), id)
	e.ok(err, "get slot %q", id)
	e.expectSlot(got, id, want)
	return got
}

// expectSlot checks a slot that was read, and that it is consistent.
func (e *slotEnv) expectSlot(got driver.Slot, id string, want driver.SlotState) {
	e.t.Helper()
	if got.ID != id || got.State != want {
		e.failf("slot %q: got %q, which is %s, want it to be %s", id, got.ID, orNothing(got.State), want)
	}
	hasAnswer := len(got.Answer.Body) > 0 || got.Answer.Failure != "" || got.Answer.FailureKind != ""
	if want != driver.SlotResolved && (hasAnswer || !got.ResolvedAt.IsZero()) {
		e.failf("slot %q is %s, and has an answer: %+v", id, want, got)
	}
	if want == driver.SlotResolved && got.ResolvedAt.IsZero() {
		e.failf("slot %q is resolved without a time", id)
	}
}

// expectAnswer reads a slot, which must be resolved with this body.
func (e *slotEnv) expectAnswer(id, body string) {
	e.t.Helper()
	got := e.expect(id, driver.SlotResolved)
	if string(got.Answer.Body) != body || got.Answer.Failure != "" {
		e.failf("slot %q: got the answer %q, failure %q, want the answer %q", id, brief(got.Answer.Body), got.Answer.Failure, body)
	}
}

// expectGone checks that every operation finds no such slot.
func (e *slotEnv) expectGone(id string) {
	e.t.Helper()
	_, err := e.store.Get(e.ctx(), id)
	e.expectCode(err, driver.ErrNotFound, "get slot %q, which is not there", id)
	_, err = e.store.Wait(e.ctx(), id, e.tick())
	e.expectCode(err, driver.ErrNotFound, "wait for slot %q, which is not there", id)
	_, err = e.store.Consume(e.ctx(), id)
	e.expectCode(err, driver.ErrNotFound, "consume slot %q, which is not there", id)
	e.expectCode(e.store.Resolve(e.ctx(), id, driver.Answer{}), driver.ErrNotFound, "resolve slot %q, which is not there", id)
	e.expectCode(e.store.Cancel(e.ctx(), id), driver.ErrNotFound, "cancel slot %q, which is not there", id)
}

// life is the time to live of a slot that expires during the case, after other operations: on a
// real clock these may take a while.
func (e *slotEnv) life() time.Duration {
	if e.backend.Virtual {
		return e.tick()
	}
	return 5 * e.tick()
}

// untilExpired sleeps until a slot that was created at most at created has expired, and not
// much longer.
func (e *slotEnv) untilExpired(created time.Time, ttl time.Duration) {
	e.sleep(max(time.Until(created.Add(ttl)), 0))
}

// A slotOutcome is the result of a background wait, and its time.
type slotOutcome struct {
	slot driver.Slot
	err  error
	at   time.Time
}

// waitFor starts a wait for a slot, and returns when it is waiting.
func (e *slotEnv) waitFor(ctx context.Context, id string, wait time.Duration) <-chan slotOutcome {
	done := make(chan slotOutcome, 1)
	e.running.Go(func() {
		slot, err := e.store.Wait(ctx, id, wait)
		done <- slotOutcome{slot, err, time.Now()}
	})
	e.settle()
	return done
}

// wokenAt returns the outcome of a background wait that must end when due: never before, and in
// virtual time not much later.
func (e *slotEnv) wokenAt(done <-chan slotOutcome, due time.Time, why string) slotOutcome {
	e.t.Helper()
	got := e.woken(done, due, why)
	if early := due.Sub(got.at); early > e.slack {
		e.failf("%s: the wait ended %v too early", why, early)
	}
	return got
}

// woken returns the outcome of a background wait whose cause happened at since.
func (e *slotEnv) woken(done <-chan slotOutcome, since time.Time, why string) slotOutcome {
	e.t.Helper()
	select {
	case got := <-done:
		if late := got.at.Sub(since); e.backend.Virtual && late > e.late {
			e.failf("%s: the wait ended %v too late, at most %v are allowed", why, late, e.late)
		}
		return got
	case <-time.After(max(time.Until(since), 0) + e.late + e.patience):
		e.failf("%s: the wait has not ended %v later", why, e.late+e.patience)
		return slotOutcome{}
	}
}

// wokenNow is woken for a cause that just happened, and that ends a wait without an error.
func (e *slotEnv) wokenNow(done <-chan slotOutcome, id string, want driver.SlotState, why string) driver.Slot {
	e.t.Helper()
	got := e.woken(done, time.Now(), why)
	e.ok(got.err, "%s: the wait", why)
	e.expectSlot(got.slot, id, want)
	return got.slot
}

// expectNamedField checks the error of a bad argument.
func (e *slotEnv) expectNamedField(err error, what string) {
	e.t.Helper()
	e.expectCode(err, driver.ErrInvalid, "%s", what)
	if detail, _ := errors.AsType[*driver.Error](err); detail.Field == "" {
		e.failf("%s: the error does not name the argument: %v", what, err)
	}
}

func orNothing(state driver.SlotState) string {
	if state == "" {
		return "in no state"
	}
	return string(state)
}
