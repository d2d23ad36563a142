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
	{"RPL-5", "written slots that have expired are swept too", sweepRemovesWritten},
	{"RPL-6", "when everything is read, deleted or swept, nothing is left", nothingIsLeft},
}

func consumeRemoves(e *slotEnv) {
	e.create("a", "b")
	e.resolve("a", "tea")
	e.ok(e.other.Resolve(e.ctx(), "b", driver.Answer{Failure: "no milk", FailureKind: "sold out"}), "resolve")
	got, err := e.store.Consume(e.ctx(), "a")
	e.ok(err, "consume an answer")
	e.expectSlot(got, "a", driver.SlotResolved)
	if string(got.Answer.Body) != "tea" {
		e.failf("consume: got the answer %q, want %q", brief(got.Answer.Body), "tea")
	}
	got, err = e.store.Consume(e.ctx(), "b")
	e.ok(err, "consume a failure")
	if got.Answer.Failure != "no milk" || got.Answer.FailureKind != "sold out" {
		e.failf("consume a failure: got %+v", got.Answer)
	}
	e.expectGone("a")
	e.expectGone("b")
}

func consumeKeepsPending(e *slotEnv) {
	e.create("a")
	for range 2 {
		got, err := e.store.Consume(e.ctx(), "a")
		e.ok(err, "consume a pending slot")
		e.expectSlot(got, "a", driver.SlotPending)
	}
	e.resolve("a", "tea")
	e.expectAnswer("a", "tea")
}

func consumeRemovesOthers(e *slotEnv) {
	e.create("cancelled")
	e.createFor("expired", e.tick())
	created := time.Now()
	e.cancel("cancelled")
	e.untilExpired(created, e.tick())
	for _, state := range []driver.SlotState{driver.SlotCancelled, driver.SlotExpired} {
		got, err := e.store.Consume(e.ctx(), string(state))
		e.ok(err, "consume a slot that is %s", state)
		e.expectSlot(got, string(state), state)
		e.expectGone(string(state))
	}
}

func oneConsumes(e *slotEnv) {
	for round := range e.rounds(50, 5) {
		id := fmt.Sprint("round ", round)
		e.create(id)
		e.resolve(id, "tea")
		var got atomic.Int32
		e.parallel(8, func(i int) error {
			store := e.store
			if i%2 == 1 {
				store = e.other
			}
			slot, err := store.Consume(e.ctx(), id)
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
			e.failf("8 consumed one answer at once: %d got it, want 1", n)
		}
		e.expectGone(id)
	}
}

func deleteRemoves(e *slotEnv) {
	e.create("pending", "resolved", "cancelled", "other")
	e.createFor("expired", e.tick())
	created := time.Now()
	e.resolve("resolved", "tea")
	e.cancel("cancelled")
	e.untilExpired(created, e.tick())
	for _, id := range []string{"pending", "resolved", "cancelled", "expired"} {
		e.ok(e.store.Delete(e.ctx(), id), "delete a slot that is %s", id)
		e.expectGone(id)
		e.ok(e.store.Delete(e.ctx(), id), "delete it again")
	}
	e.ok(e.store.Delete(e.ctx(), "never there"), "delete a slot that never was")
	e.expect("other", driver.SlotPending)
	e.expectExpired()
}

// expectExpired checks the list of expired slots, in any order.
func (e *slotEnv) expectExpired(want ...string) {
	e.t.Helper()
	got, err := e.store.Expired(e.ctx(), 100)
	e.ok(err, "list expired slots")
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		e.failf("expired slots: got %q, want %q", got, want)
	}
}

func expiredAreListed(e *slotEnv) {
	e.create("living", "answered")
	e.resolve("answered", "tea")
	e.expectExpired()
	e.createFor("a", e.tick())
	e.createFor("b", e.tick())
	created := time.Now()
	e.untilExpired(created, e.tick())
	for range 2 { // listing changes nothing
		e.expectExpired("a", "b")
	}
	e.expect("a", driver.SlotExpired)
	_, err := e.store.Consume(e.ctx(), "a")
	e.ok(err, "consume an expired slot")
	e.expectExpired("b")
}

func sweepRemovesExpired(e *slotEnv) {
	e.create("living", "answered", "cancelled")
	e.resolve("answered", "tea")
	e.cancel("cancelled")
	e.expectSwept(100, 0)
	e.createFor("a", e.tick())
	e.createFor("b", e.tick())
	created := time.Now()
	e.untilExpired(created, e.tick())
	e.expectSwept(100, 2)
	e.expectGone("a")
	e.expectGone("b")
	e.expectExpired()
	e.expectSwept(100, 0)
	e.expect("living", driver.SlotPending)
	e.expect("cancelled", driver.SlotCancelled)
	e.expectAnswer("answered", "tea")
}

// expectSwept sweeps and checks the number of removed slots.
func (e *slotEnv) expectSwept(limit, want int) {
	e.t.Helper()
	removed, err := e.store.Sweep(e.ctx(), limit)
	e.ok(err, "sweep")
	if removed != want {
		e.failf("sweep of up to %d: removed %d, want %d", limit, removed, want)
	}
}

func limitsAreKept(e *slotEnv) {
	for i := range 5 {
		e.createFor(fmt.Sprint(i), e.tick())
	}
	created := time.Now()
	e.untilExpired(created, e.tick())
	for _, limit := range []int{0, -1} {
		_, err := e.store.Expired(e.ctx(), limit)
		e.expectNamedField(err, fmt.Sprint("list with limit ", limit))
		_, err = e.store.Sweep(e.ctx(), limit)
		e.expectNamedField(err, fmt.Sprint("sweep with limit ", limit))
	}
	ids, err := e.store.Expired(e.ctx(), 3)
	e.ok(err, "list expired slots")
	slices.Sort(ids)
	if len(slices.Compact(ids)) != 3 {
		e.failf("list of up to 3 of 5 expired slots: got %q", ids)
	}
	e.expectSwept(2, 2)
	e.expectSwept(2, 2)
	e.expectSwept(2, 1)
	e.expectSwept(2, 0)
}

func sweepRemovesWritten(e *slotEnv) {
	e.createFor("answered", e.life())
	e.createFor("cancelled", e.life())
	created := time.Now()
	e.resolve("answered", "tea")
	e.cancel("cancelled")
	e.untilExpired(created, e.life())
	e.expectExpired("answered", "cancelled")
	e.expectSwept(100, 2)
	e.expectGone("answered")
	e.expectGone("cancelled")
}

func nothingIsLeft(e *slotEnv) {
	const n = 20
	var ids []string
	for i := range n {
		ids = append(ids, fmt.Sprint("slot ", i))
		e.createFor(ids[i], e.life())
	}
	created := time.Now()
	for i, id := range ids {
		switch i % 4 {
		case 0:
			e.resolve(id, "tea")
			_, err := e.store.Consume(e.ctx(), id)
			e.ok(err, "consume")
		case 1:
			e.ok(e.store.Delete(e.ctx(), id), "delete")
		case 2:
			e.resolve(id, "tea")
		}
	}
	e.untilExpired(created, e.life())
	e.expectSwept(n, n/2)
	for _, id := range ids {
		e.expectGone(id)
	}
}
