package drivertest

import (
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var slotCreateCases = []slotCase{
	{"RPL-5", "a new slot is pending and has its times", newSlotIsPending},
	{"RPL-5", "an id is taken as long as its slot exists", slotIDIsTaken},
	{"RPL-5", "an id is free again when its slot is gone", slotIDIsFreeAgain},
	{"RPL-5", "of many creates of one slot, one succeeds", oneCreates},
	{"RPL-5", "ids and times outside their limits are refused", badSlotsAreRefused},
	{"RPL-1", "an id is kept to the letter", slotIDsAreKept},
	{"RPL-5", "a missing slot is ErrNotFound", missingSlots},
	{"RPL-5", "with a context that has ended nothing happens", endedContextDoesNothing},
}

func newSlotIsPending(e *slotEnv) {
	before := time.Now()
	e.createFor("a", e.hold)
	got := e.expect("a", driver.SlotPending)
	if lives := got.ExpiresAt.Sub(got.CreatedAt); (lives - e.hold).Abs() > time.Second {
		e.failf("a slot created for %v: it lives for %v", e.hold, lives)
	}
	// The wall clock of the store may be another machine's.
	if off := got.CreatedAt.Sub(before).Abs(); off > 5*time.Minute {
		e.failf("a slot created just now: CreatedAt is off by %v", off)
	}
	if got.CreatedAt.Location() != time.UTC || got.ExpiresAt.Location() != time.UTC {
		e.failf("times of a slot: got %v and %v, want UTC", got.CreatedAt.Location(), got.ExpiresAt.Location())
	}
}

func slotIDIsTaken(e *slotEnv) {
	again := func(id string, while driver.SlotState) {
		e.t.Helper()
		e.expectCode(e.other.Create(e.ctx(), id, e.hold), driver.ErrConflict, "create slot %q a second time, while it is %s", id, while)
		e.expect(id, while)
	}
	e.create("pending", "resolved", "cancelled")
	e.createFor("expired", e.tick())
	created := time.Now()
	e.resolve("resolved", "tea")
	e.cancel("cancelled")
	again("pending", driver.SlotPending)
	again("resolved", driver.SlotResolved)
	again("cancelled", driver.SlotCancelled)
	e.expectAnswer("resolved", "tea")
	e.untilExpired(created, e.tick())
	again("expired", driver.SlotExpired)
}

func slotIDIsFreeAgain(e *slotEnv) {
	e.create("a", "b")
	e.resolve("a", "old")
	_, err := e.store.Consume(e.ctx(), "a")
	e.ok(err, "consume slot %q", "a")
	e.ok(e.store.Delete(e.ctx(), "b"), "delete slot %q", "b")
	e.create("a", "b")
	e.expect("a", driver.SlotPending)
	e.expect("b", driver.SlotPending)
	e.resolve("a", "new")
	e.expectAnswer("a", "new")
}

func oneCreates(e *slotEnv) {
	for range e.rounds(50, 5) {
		var created atomic.Int32
		e.parallel(8, func(i int) error {
			store := e.store
			if i%2 == 1 {
				store = e.other
			}
			err := store.Create(e.ctx(), "a", e.hold)
			if err == nil {
				created.Add(1)
				return nil
			}
			if !errors.Is(err, driver.ErrConflict) {
				return err
			}
			return nil
		})
		if n := created.Load(); n != 1 {
			e.failf("8 creates of one slot at once: %d succeeded, want 1", n)
		}
		e.expect("a", driver.SlotPending)
		e.ok(e.store.Delete(e.ctx(), "a"), "delete slot %q", "a")
	}
}

func badSlotsAreRefused(e *slotEnv) {
	for _, id := range []string{
		"", strings.Repeat("x", driver.MaxNameBytes+1), "a{b}", "line\nbreak", "\xff\xfe",
	} {
		e.expectNamedField(e.store.Create(e.ctx(), id, e.hold), "create a slot with the id "+brief([]byte(id)))
	}
	for _, ttl := range []time.Duration{0, -1, -time.Hour, driver.MaxSlotTTL + 1} {
		e.expectNamedField(e.store.Create(e.ctx(), "a", ttl), "create a slot for "+ttl.String())
	}
	e.expectGone("a")
	e.createFor("a", driver.MaxSlotTTL)
	e.createFor(strings.Repeat("x", driver.MaxNameBytes), e.hold)
}

func slotIDsAreKept(e *slotEnv) {
	ids := []string{"a", "A", "a ", "ä", "a/b", "a:b", "../a", "reply:a", "a%20b", "a*", "0"}
	e.create(ids...)
	for _, id := range ids {
		e.resolve(id, "for "+id)
	}
	for _, id := range ids {
		e.expectAnswer(id, "for "+id)
		if back, ok := driver.SlotID(driver.SlotAddress(id)); !ok || back != id {
			e.failf("the address of slot %q: names %q", id, back)
		}
	}
}

func missingSlots(e *slotEnv) {
	e.create("a")
	e.expectGone("b")
	e.expect("a", driver.SlotPending)
}

func endedContextDoesNothing(e *slotEnv) {
	e.create("a", "b", "c")
	e.resolve("c", "tea")
	ended, cancel := e.cancellable()
	cancel()
	check := func(err error, what string) {
		e.t.Helper()
		if err == nil { // a store that does not check the context must succeed
			e.failf("%s with a context that has ended: got no error", what)
		}
		e.expectContextError(err, ended.Err(), what+" with a context that has ended")
	}
	check(e.store.Create(ended, "d", e.hold), "create")
	check(e.store.Resolve(ended, "a", driver.Answer{}), "resolve")
	check(e.store.Cancel(ended, "b"), "cancel")
	_, err := e.store.Get(ended, "a")
	check(err, "get")
	_, err = e.store.Wait(ended, "a", e.hold)
	check(err, "wait")
	_, err = e.store.Consume(ended, "c")
	check(err, "consume")
	check(e.store.Delete(ended, "c"), "delete")
	_, err = e.store.Sweep(ended, 1)
	check(err, "sweep")
	_, err = e.store.Expired(ended, 1)
	check(err, "list expired slots")
	e.expect("a", driver.SlotPending)
	e.expect("b", driver.SlotPending)
	e.expectAnswer("c", "tea")
	e.expectGone("d")
}
