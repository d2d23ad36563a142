package drivertest

import (
	"context"
	"fmt"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var slotTimeCases = []slotCase{
	{"RPL-5", "a slot is expired when its time is over, swept or not, and not before", slotExpires},
	{"RPL-5", "an answer is kept for the rest of the slot's time, and no longer", answerExpires},
	{"RPL-5", "a cancelled slot expires too", cancelledExpires},
	{"RPL-5", "slots expire each at its own time", slotsExpireEachAtItsTime},
}

func slotExpires(e *slotEnv) {
	before := time.Now()
	e.createFor("a", e.tick())
	created := time.Now()
	e.sleep(e.tick() / 2)
	if got := e.expectAny("a"); time.Since(before) < e.tick()-e.slack {
		e.expectSlot(got, "a", driver.SlotPending)
	}
	if e.backend.Virtual {
		time.Sleep(e.tick()/2 - 1)
		e.expect("a", driver.SlotPending)
	}
	e.untilExpired(created, e.tick())
	e.expect("a", driver.SlotExpired)
	e.sleep(e.tick())
	e.expect("a", driver.SlotExpired)
}

// expectAny reads a slot in any state.
func (e *slotEnv) expectAny(id string) driver.Slot {
	e.t.Helper()
	got, err := e.store.Get(e.ctx(), id)
	e.ok(err, "get slot %q", id)
	return got
}

func answerExpires(e *slotEnv) {
	ttl := e.life()
	before := time.Now()
	e.createFor("a", ttl)
	created := time.Now()
	e.sleep(ttl / 10)
	e.resolve("a", "tea")
	e.sleep(ttl / 10)
	if got := e.expectAny("a"); time.Since(before) < ttl-e.slack {
		e.expectSlot(got, "a", driver.SlotResolved)
	}
	e.untilExpired(created, ttl)
	e.expect("a", driver.SlotExpired)
	e.expectCode(e.store.Resolve(e.ctx(), "a", driver.Answer{}), driver.ErrReplyExpired, "resolve a slot that was answered and has expired")
}

func cancelledExpires(e *slotEnv) {
	e.createFor("a", e.life())
	created := time.Now()
	e.cancel("a")
	e.untilExpired(created, e.life())
	e.expect("a", driver.SlotExpired)
	e.expectCode(e.store.Cancel(e.ctx(), "a"), driver.ErrReplyExpired, "cancel a slot that was cancelled and has expired")
}

func slotsExpireEachAtItsTime(e *slotEnv) {
	const n = 5
	for i := range n {
		e.createFor(fmt.Sprint(i), time.Duration(n-i)*e.tick()) // the last expires first
	}
	created := time.Now()
	for i := range n {
		e.untilExpired(created, time.Duration(i+1)*e.tick())
		e.expect(fmt.Sprint(n-1-i), driver.SlotExpired)
		if next := n - 2 - i; next >= 0 && e.backend.Virtual {
			e.expect(fmt.Sprint(next), driver.SlotPending)
		}
	}
}

var slotWaitCases = []slotCase{
	{"RPL-4", "a wait is woken by the answer", answerWakes},
	{"RPL-4", "a wait is woken by the cancel", slotCancelWakes},
	{"RPL-4", "a wait is woken by the end of the slot's time", endOfTimeWakes},
	{"RPL-4", "every waiter of a slot is woken", allWaitersAreWoken},
	{"RPL-4", "a wait for a decided slot returns at once", waitForDecided},
	{"RPL-4", "a wait ends when it has passed, with the slot still pending", waitPasses},
	{"RPL-4", "a wait of zero returns at once", waitOfNothing},
	{"RPL-4", "a wait is not ended by what happens to other slots", othersDoNotWake},
	{"RPL-4", "a wait ends with its context, at once", contextEndsWait},
	{"RPL-4", "a wait for a slot that is removed is ErrNotFound", removalEndsWait},
	{"RPL-4", "an answer that comes just as a wait begins is not missed", answerMeetsWait},
	{"RPL-4", "a slot that expires first wakes first, even if created last", laterSlotExpiresFirst},
}

func answerWakes(e *slotEnv) {
	e.create("a")
	waiting := e.waitFor(e.ctx(), "a", e.hold)
	e.resolve("a", "tea")
	got := e.wokenNow(waiting, "a", driver.SlotResolved, "answer")
	if string(got.Answer.Body) != "tea" {
		e.failf("the wait returned the answer %q, want %q", brief(got.Answer.Body), "tea")
	}
}

func slotCancelWakes(e *slotEnv) {
	e.create("a")
	waiting := e.waitFor(e.ctx(), "a", e.hold)
	e.cancel("a")
	e.wokenNow(waiting, "a", driver.SlotCancelled, "cancel")
}

func endOfTimeWakes(e *slotEnv) {
	before := time.Now()
	e.createFor("a", e.tick())
	got := e.wokenAt(e.waitFor(e.ctx(), "a", e.hold), before.Add(e.tick()), "end of the slot's time")
	e.ok(got.err, "wait for a slot that expires")
	e.expectSlot(got.slot, "a", driver.SlotExpired)
}

func allWaitersAreWoken(e *slotEnv) {
	for name, wake := range map[string]func(id string) driver.SlotState{
		"answer": func(id string) driver.SlotState { e.resolve(id, "tea"); return driver.SlotResolved },
		"cancel": func(id string) driver.SlotState { e.cancel(id); return driver.SlotCancelled },
	} {
		e.create(name)
		waiting := make([]<-chan slotOutcome, 5)
		for i := range waiting {
			waiting[i] = e.waitFor(e.ctx(), name, e.hold)
		}
		state := wake(name)
		for i := range waiting {
			e.wokenNow(waiting[i], name, state, fmt.Sprintf("%s, waiter %d of %d", name, i+1, len(waiting)))
		}
	}
	ends := time.Now().Add(e.tick())
	e.createFor("end", e.tick())
	first, second := e.waitFor(e.ctx(), "end", e.hold), e.waitFor(e.ctx(), "end", e.hold)
	for _, waiting := range []<-chan slotOutcome{first, second} {
		got := e.wokenAt(waiting, ends, "end of the slot's time")
		e.ok(got.err, "wait for a slot that expires")
		e.expectSlot(got.slot, "end", driver.SlotExpired)
	}
}

func waitForDecided(e *slotEnv) {
	e.create("resolved", "cancelled")
	e.createFor("expired", e.tick())
	created := time.Now()
	e.resolve("resolved", "tea")
	e.cancel("cancelled")
	e.untilExpired(created, e.tick())
	for _, state := range []driver.SlotState{driver.SlotResolved, driver.SlotCancelled, driver.SlotExpired} {
		start := time.Now()
		got, err := e.store.Wait(e.ctx(), string(state), e.hold)
		e.ok(err, "wait for a slot that is %s", state)
		e.expectSlot(got, string(state), state)
		e.expectPrompt(start, "wait for a slot that is "+string(state))
	}
}

func waitPasses(e *slotEnv) {
	e.create("a")
	start := time.Now()
	got := e.wokenAt(e.waitFor(e.ctx(), "a", e.tick()), start.Add(e.tick()), "a wait that passes")
	e.ok(got.err, "a wait that passes")
	e.expectSlot(got.slot, "a", driver.SlotPending)
	e.resolve("a", "tea")
	e.expectAnswer("a", "tea")
}

func waitOfNothing(e *slotEnv) {
	e.create("a")
	for _, wait := range []time.Duration{0, -time.Second} {
		start := time.Now()
		got, err := e.store.Wait(e.ctx(), "a", wait)
		e.ok(err, "wait for %v", wait)
		e.expectSlot(got, "a", driver.SlotPending)
		e.expectPrompt(start, "wait for "+wait.String())
	}
}

func othersDoNotWake(e *slotEnv) {
	e.create("a", "b", "c", "d")
	e.createFor("e", e.tick()/2)
	start := time.Now()
	waiting := e.waitFor(e.ctx(), "a", e.tick())
	e.resolve("b", "tea")
	e.cancel("c")
	e.ok(e.store.Delete(e.ctx(), "d"), "delete slot %q", "d")
	got := e.wokenAt(waiting, start.Add(e.tick()), "a wait while other slots change")
	e.ok(got.err, "a wait while other slots change")
	e.expectSlot(got.slot, "a", driver.SlotPending)
}

func contextEndsWait(e *slotEnv) {
	e.create("a")
	ctx, cancel := e.cancellable()
	waiting := e.waitFor(ctx, "a", e.hold)
	cancel()
	got := e.woken(waiting, time.Now(), "cancel of the context")
	e.expectContextError(got.err, context.Canceled, "a wait whose context is cancelled")

	start := time.Now()
	ctx, stop := context.WithTimeout(e.ctx(), e.tick())
	defer stop()
	got = e.wokenAt(e.waitFor(ctx, "a", e.hold), start.Add(e.tick()), "end of the context's time")
	e.expectContextError(got.err, context.DeadlineExceeded, "a wait whose context runs out")
	e.expect("a", driver.SlotPending)
}

func removalEndsWait(e *slotEnv) {
	e.create("a")
	waiting := e.waitFor(e.ctx(), "a", e.hold)
	e.ok(e.other.Delete(e.ctx(), "a"), "delete slot %q", "a")
	got := e.woken(waiting, time.Now(), "delete")
	e.expectCode(got.err, driver.ErrNotFound, "a wait for a slot that is deleted")
}

func answerMeetsWait(e *slotEnv) {
	for round := range e.rounds(300, 20) {
		id := fmt.Sprint("round ", round)
		e.create(id)
		e.parallel(2, func(i int) error {
			if i == 0 {
				return e.other.Resolve(e.ctx(), id, driver.Answer{Body: []byte("tea")})
			}
			start := time.Now()
			got, err := e.store.Wait(e.ctx(), id, e.patience)
			if err == nil && (got.State != driver.SlotResolved || e.backend.Virtual && time.Since(start) > e.late) {
				return fmt.Errorf("a wait that meets the answer: the slot is %s after %v", got.State, time.Since(start))
			}
			return err
		})
	}
}

func laterSlotExpiresFirst(e *slotEnv) {
	slowEnds := time.Now().Add(3 * e.tick())
	e.createFor("slow", 3*e.tick())
	slow := e.waitFor(e.ctx(), "slow", e.hold)
	fastEnds := time.Now().Add(e.tick())
	e.createFor("fast", e.tick())
	fast := e.waitFor(e.ctx(), "fast", e.hold)
	got := e.wokenAt(fast, fastEnds, "the slot that was made last")
	e.ok(got.err, "wait for the slot that was made last")
	e.expectSlot(got.slot, "fast", driver.SlotExpired)
	got = e.wokenAt(slow, slowEnds, "the slot that was made first")
	e.ok(got.err, "wait for the slot that was made first")
	e.expectSlot(got.slot, "slow", driver.SlotExpired)
}
