package drivertest

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var slotRemoveCases = []slotCase{
	{"RPL-5", "consuming returns the answer and removes the slot", consumeRemoves},
	{"RPL-5", "consuming a pending slot returns and keeps it", consumeKeepsPending},
	{"RPL-5", "consuming a cancelled or expired slot removes it", consumeRemovesOthers},
	{"RPL-5", "of many who consume one answer, one gets it", oneConsumes},
	{"RPL-5", "deleting removes a slot in any state, and deleting nothing is fine", deleteRemoves},
	{"RPL-5", "expired slots are listed, and no others", expiredAreListed},
	{"RPL-5", "sweeping removes expired slots, and no others", sweepRemovesExpired},
	{"RPL-5", "listing and sweeping keep to their limit", limitsAreKept},
	{"RPL-5", "what was written and has expired is swept too", sweepRemovesWritten},
	{"RPL-6", "when everything is read, deleted or swept, nothing is left", nothingIsLeft},
}

func consumeRemoves(s *slotSession) {
	s.create("a", "b")
	s.resolve("a", "tea")
	s.ok(s.other.Resolve(s.ctx(), "b", driver.Answer{Failure: "no milk", FailureKind: "sold out"}), "resolve")
	got, err := s.store.Consume(s.ctx(), "a")
	s.ok(err, "consume an answer")
	s.expectSlot(got, "a", driver.SlotResolved)
	if string(got.Answer.Body) != "tea" {
		s.failf("consume: got the answer %q, want %q", brief(got.Answer.Body), "tea")
	}
	got, err = s.store.Consume(s.ctx(), "b")
	s.ok(err, "consume a failure")
	if got.Answer.Failure != "no milk" || got.Answer.FailureKind != "sold out" {
		s.failf("consume a failure: got %+v", got.Answer)
	}
	s.expectGone("a")
	s.expectGone("b")
}

func consumeKeepsPending(s *slotSession) {
	s.create("a")
	for range 2 {
		got, err := s.store.Consume(s.ctx(), "a")
		s.ok(err, "consume a pending slot")
		s.expectSlot(got, "a", driver.SlotPending)
	}
	s.resolve("a", "tea")
	s.expectAnswer("a", "tea")
}

func consumeRemovesOthers(s *slotSession) {
	s.create("cancelled")
	s.createFor("expired", s.tick)
	created := time.Now()
	s.cancel("cancelled")
	s.untilExpired(created, s.tick)
	for _, state := range []driver.SlotState{driver.SlotCancelled, driver.SlotExpired} {
		got, err := s.store.Consume(s.ctx(), string(state))
		s.ok(err, "consume a slot that is %s", state)
		s.expectSlot(got, string(state), state)
		s.expectGone(string(state))
	}
}

func oneConsumes(s *slotSession) {
	for round := range s.rounds(50, 5) {
		id := fmt.Sprint("round ", round)
		s.create(id)
		s.resolve(id, "tea")
		var got atomic.Int32
		s.parallel(8, func(i int) error {
			store := s.store
			if i%2 == 1 {
				store = s.other
			}
			slot, err := store.Consume(s.ctx(), id)
			switch {
			case errors.Is(err, driver.ErrNotFound):
				return nil
			case err != nil:
				return err
			case string(slot.Answer.Body) != "tea":
				return fmt.Errorf("consume: got the answer %q, which is %s", slot.Answer.Body, slot.State)
			}
			got.Add(1)
			return nil
		})
		if n := got.Load(); n != 1 {
			s.failf("8 consumed one answer at once: %d got it, want 1", n)
		}
		s.expectGone(id)
	}
}

func deleteRemoves(s *slotSession) {
	s.create("pending", "resolved", "cancelled", "other")
	s.createFor("expired", s.tick)
	created := time.Now()
	s.resolve("resolved", "tea")
	s.cancel("cancelled")
	s.untilExpired(created, s.tick)
	for _, id := range []string{"pending", "resolved", "cancelled", "expired"} {
		s.ok(s.store.Delete(s.ctx(), id), "delete a slot that is %s", id)
		s.expectGone(id)
		s.ok(s.store.Delete(s.ctx(), id), "delete it again")
	}
	s.ok(s.store.Delete(s.ctx(), "never there"), "delete a slot that never was")
	s.expect("other", driver.SlotPending)
	s.expectExpired()
}

// expectExpired checks what is listed as expired, in any order.
func (s *slotSession) expectExpired(want ...string) {
	s.t.Helper()
	got, err := s.store.Expired(s.ctx(), 100)
	s.ok(err, "list expired slots")
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		s.failf("expired slots: got %q, want %q", got, want)
	}
}

func expiredAreListed(s *slotSession) {
	s.create("living", "answered")
	s.resolve("answered", "tea")
	s.expectExpired()
	s.createFor("a", s.tick)
	s.createFor("b", s.tick)
	created := time.Now()
	s.untilExpired(created, s.tick)
	for range 2 { // looking changes nothing
		s.expectExpired("a", "b")
	}
	s.expect("a", driver.SlotExpired)
	_, err := s.store.Consume(s.ctx(), "a")
	s.ok(err, "consume an expired slot")
	s.expectExpired("b")
}

func sweepRemovesExpired(s *slotSession) {
	s.create("living", "answered", "cancelled")
	s.resolve("answered", "tea")
	s.cancel("cancelled")
	s.expectSwept(100, 0)
	s.createFor("a", s.tick)
	s.createFor("b", s.tick)
	created := time.Now()
	s.untilExpired(created, s.tick)
	s.expectSwept(100, 2)
	s.expectGone("a")
	s.expectGone("b")
	s.expectExpired()
	s.expectSwept(100, 0)
	s.expect("living", driver.SlotPending)
	s.expect("cancelled", driver.SlotCancelled)
	s.expectAnswer("answered", "tea")
}

// expectSwept sweeps, and checks how many slots that removed.
func (s *slotSession) expectSwept(limit, want int) {
	s.t.Helper()
	removed, err := s.store.Sweep(s.ctx(), limit)
	s.ok(err, "sweep")
	if removed != want {
		s.failf("sweep of up to %d: removed %d, want %d", limit, removed, want)
	}
}

func limitsAreKept(s *slotSession) {
	for i := range 5 {
		s.createFor(fmt.Sprint(i), s.tick)
	}
	created := time.Now()
	s.untilExpired(created, s.tick)
	for _, limit := range []int{0, -1} {
		_, err := s.store.Expired(s.ctx(), limit)
		s.expectNamedField(err, fmt.Sprint("list with limit ", limit))
		_, err = s.store.Sweep(s.ctx(), limit)
		s.expectNamedField(err, fmt.Sprint("sweep with limit ", limit))
	}
	ids, err := s.store.Expired(s.ctx(), 3)
	s.ok(err, "list expired slots")
	slices.Sort(ids)
	if len(slices.Compact(ids)) != 3 {
		s.failf("list of up to 3 of 5 expired slots: got %q", ids)
	}
	s.expectSwept(2, 2)
	s.expectSwept(2, 2)
	s.expectSwept(2, 1)
	s.expectSwept(2, 0)
}

func sweepRemovesWritten(s *slotSession) {
	s.createFor("answered", s.life())
	s.createFor("cancelled", s.life())
	created := time.Now()
	s.resolve("answered", "tea")
	s.cancel("cancelled")
	s.untilExpired(created, s.life())
	s.expectExpired("answered", "cancelled")
	s.expectSwept(100, 2)
	s.expectGone("answered")
	s.expectGone("cancelled")
}

func nothingIsLeft(s *slotSession) {
	const n = 20
	var ids []string
	for i := range n {
		ids = append(ids, fmt.Sprint("slot ", i))
		s.createFor(ids[i], s.life())
	}
	created := time.Now()
	for i, id := range ids {
		switch i % 4 {
		case 0:
			s.resolve(id, "tea")
			_, err := s.store.Consume(s.ctx(), id)
			s.ok(err, "consume")
		case 1:
			s.ok(s.store.Delete(s.ctx(), id), "delete")
		case 2:
			s.resolve(id, "tea")
		}
	}
	s.untilExpired(created, s.life())
	s.expectSwept(n, n/2)
	for _, id := range ids {
		s.expectGone(id)
	}
}
