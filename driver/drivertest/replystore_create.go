package drivertest

import (
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var slotCreateCases = []slotCase{
	{"RPL-5", "a new slot is pending and knows its times", newSlotIsPending},
	{"RPL-5", "an id is taken for as long as its slot is there", slotIDIsTaken},
	{"RPL-5", "an id is free again when its slot is gone", slotIDIsFreeAgain},
	{"RPL-5", "of many who create one slot, one does", oneCreates},
	{"RPL-5", "ids and times outside their limits are refused", badSlotsAreRefused},
	{"RPL-1", "an id is kept to the letter", slotIDsAreKept},
	{"RPL-5", "a slot that is not there is ErrNotFound", missingSlots},
	{"RPL-5", "with a context that has ended nothing happens", endedContextDoesNothing},
}

func newSlotIsPending(s *slotSession) {
	before := time.Now()
	s.createFor("a", s.hold)
	got := s.expect("a", driver.SlotPending)
	if lives := got.ExpiresAt.Sub(got.CreatedAt); (lives - s.hold).Abs() > time.Second {
		s.failf("a slot created for %v: it lives for %v", s.hold, lives)
	}
	// The store's wall clock may be another machine's.
	if off := got.CreatedAt.Sub(before).Abs(); off > 5*time.Minute {
		s.failf("a slot created just now: CreatedAt is off by %v", off)
	}
	if got.CreatedAt.Location() != time.UTC || got.ExpiresAt.Location() != time.UTC {
		s.failf("times of a slot: got %v and %v, want UTC", got.CreatedAt.Location(), got.ExpiresAt.Location())
	}
}

func slotIDIsTaken(s *slotSession) {
	again := func(id string, while driver.SlotState) {
		s.t.Helper()
		s.expectCode(s.other.Create(s.ctx(), id, s.hold), driver.ErrConflict, "create slot %q a second time, while it is %s", id, while)
		s.expect(id, while)
	}
	s.create("pending", "resolved", "cancelled")
	s.createFor("expired", s.tick)
	created := time.Now()
	s.resolve("resolved", "tea")
	s.cancel("cancelled")
	again("pending", driver.SlotPending)
	again("resolved", driver.SlotResolved)
	again("cancelled", driver.SlotCancelled)
	s.expectAnswer("resolved", "tea")
	s.untilExpired(created, s.tick)
	again("expired", driver.SlotExpired)
}

func slotIDIsFreeAgain(s *slotSession) {
	s.create("a", "b")
	s.resolve("a", "old")
	_, err := s.store.Consume(s.ctx(), "a")
	s.ok(err, "consume slot %q", "a")
	s.ok(s.store.Delete(s.ctx(), "b"), "delete slot %q", "b")
	s.create("a", "b")
	s.expect("a", driver.SlotPending)
	s.expect("b", driver.SlotPending)
	s.resolve("a", "new")
	s.expectAnswer("a", "new")
}

func oneCreates(s *slotSession) {
	for range s.rounds(50, 5) {
		var created atomic.Int32
		s.parallel(8, func(i int) error {
			store := s.store
			if i%2 == 1 {
				store = s.other
			}
			err := store.Create(s.ctx(), "a", s.hold)
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
			s.failf("8 creates of one slot at once: %d succeeded, want 1", n)
		}
		s.expect("a", driver.SlotPending)
		s.ok(s.store.Delete(s.ctx(), "a"), "delete slot %q", "a")
	}
}

func badSlotsAreRefused(s *slotSession) {
	for _, id := range []string{
		"", strings.Repeat("x", driver.MaxNameBytes+1), "a{b}", "line\nbreak", "\xff\xfe",
	} {
		s.expectNamedField(s.store.Create(s.ctx(), id, s.hold), "create a slot with the id "+brief([]byte(id)))
	}
	for _, ttl := range []time.Duration{0, -1, -time.Hour, driver.MaxSlotTTL + 1} {
		s.expectNamedField(s.store.Create(s.ctx(), "a", ttl), "create a slot for "+ttl.String())
	}
	s.expectGone("a")
	s.createFor("a", driver.MaxSlotTTL)
	s.createFor(strings.Repeat("x", driver.MaxNameBytes), s.hold)
}

func slotIDsAreKept(s *slotSession) {
	ids := []string{"a", "A", "a ", "ä", "a/b", "a:b", "../a", "reply:a", "a%20b", "a*", "0"}
	s.create(ids...)
	for _, id := range ids {
		s.resolve(id, "for "+id)
	}
	for _, id := range ids {
		s.expectAnswer(id, "for "+id)
		if back, ok := driver.SlotID(driver.SlotAddress(id)); !ok || back != id {
			s.failf("the address of slot %q: names %q", id, back)
		}
	}
}

func missingSlots(s *slotSession) {
	s.create("a")
	s.expectGone("b")
	s.expect("a", driver.SlotPending)
}

func endedContextDoesNothing(s *slotSession) {
	s.create("a", "b", "c")
	s.resolve("c", "tea")
	ended, cancel := s.cancellable()
	cancel()
	check := func(err error, what string) {
		s.t.Helper()
		if err == nil { // it may not have looked; then it must have worked
			s.failf("%s with a context that has ended: got no error", what)
		}
		s.expectContextError(err, ended.Err(), what+" with a context that has ended")
	}
	check(s.store.Create(ended, "d", s.hold), "create")
	check(s.store.Resolve(ended, "a", driver.Answer{}), "resolve")
	check(s.store.Cancel(ended, "b"), "cancel")
	_, err := s.store.Get(ended, "a")
	check(err, "get")
	_, err = s.store.Wait(ended, "a", s.hold)
	check(err, "wait")
	_, err = s.store.Consume(ended, "c")
	check(err, "consume")
	check(s.store.Delete(ended, "c"), "delete")
	_, err = s.store.Sweep(ended, 1)
	check(err, "sweep")
	_, err = s.store.Expired(ended, 1)
	check(err, "list expired slots")
	s.expect("a", driver.SlotPending)
	s.expect("b", driver.SlotPending)
	s.expectAnswer("c", "tea")
	s.expectGone("d")
}
