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

func slotExpires(s *slotSession) {
	before := time.Now()
	s.createFor("a", s.tick)
	created := time.Now()
	s.sleep(s.tick / 2)
	if got := s.expectAny("a"); time.Since(before) < s.tick-s.slack {
		s.expectSlot(got, "a", driver.SlotPending)
	}
	if s.backend.Virtual {
		time.Sleep(s.tick/2 - 1)
		s.expect("a", driver.SlotPending)
	}
	s.untilExpired(created, s.tick)
	s.expect("a", driver.SlotExpired)
	s.sleep(s.tick)
	s.expect("a", driver.SlotExpired)
}

// expectAny looks at a slot in whatever state.
func (s *slotSession) expectAny(id string) driver.Slot {
	s.t.Helper()
	got, err := s.store.Get(s.ctx(), id)
	s.ok(err, "get slot %q", id)
	return got
}

func answerExpires(s *slotSession) {
	ttl := s.life()
	before := time.Now()
	s.createFor("a", ttl)
	created := time.Now()
	s.sleep(ttl / 10)
	s.resolve("a", "tea")
	s.sleep(ttl / 10)
	if got := s.expectAny("a"); time.Since(before) < ttl-s.slack {
		s.expectSlot(got, "a", driver.SlotResolved)
	}
	s.untilExpired(created, ttl)
	s.expect("a", driver.SlotExpired)
	s.expectCode(s.store.Resolve(s.ctx(), "a", driver.Answer{}), driver.ErrReplyExpired, "resolve a slot that was answered and has expired")
}

func cancelledExpires(s *slotSession) {
	s.createFor("a", s.life())
	created := time.Now()
	s.cancel("a")
	s.untilExpired(created, s.life())
	s.expect("a", driver.SlotExpired)
	s.expectCode(s.store.Cancel(s.ctx(), "a"), driver.ErrReplyExpired, "cancel a slot that was cancelled and has expired")
}

func slotsExpireEachAtItsTime(s *slotSession) {
	const n = 5
	for i := range n {
		s.createFor(fmt.Sprint(i), time.Duration(n-i)*s.tick) // the last expires first
	}
	created := time.Now()
	for i := range n {
		s.untilExpired(created, time.Duration(i+1)*s.tick)
		s.expect(fmt.Sprint(n-1-i), driver.SlotExpired)
		if next := n - 2 - i; next >= 0 && s.backend.Virtual {
			s.expect(fmt.Sprint(next), driver.SlotPending)
		}
	}
}

var slotWaitCases = []slotCase{
	{"RPL-4", "a wait is woken by the answer", answerWakes},
	{"RPL-4", "a wait is woken by the cancel", slotCancelWakes},
	{"RPL-4", "a wait is woken by the end of the slot's time", endOfTimeWakes},
	{"RPL-4", "everybody who waits for a slot is woken", everybodyIsWoken},
	{"RPL-4", "a wait for what is decided returns at once", waitForDecided},
	{"RPL-4", "a wait ends when it has passed, with the slot still pending", waitPasses},
	{"RPL-4", "a wait of nothing is a look", waitOfNothing},
	{"RPL-4", "a wait is not ended by what happens to other slots", othersDoNotWake},
	{"RPL-4", "a wait ends with its context, at once", contextEndsWait},
	{"RPL-4", "a wait for a slot that is removed is ErrNotFound", removalEndsWait},
	{"RPL-4", "an answer that comes just as somebody begins to wait is not missed", answerMeetsWait},
	{"RPL-4", "a slot that expires first wakes first, also if it was made last", laterSlotExpiresFirst},
}

func answerWakes(s *slotSession) {
	s.create("a")
	waiting := s.waitFor(s.ctx(), "a", s.hold)
	s.resolve("a", "tea")
	got := s.wokenNow(waiting, "a", driver.SlotResolved, "answer")
	if string(got.Answer.Body) != "tea" {
		s.failf("the wait returned the answer %q, want %q", brief(got.Answer.Body), "tea")
	}
}

func slotCancelWakes(s *slotSession) {
	s.create("a")
	waiting := s.waitFor(s.ctx(), "a", s.hold)
	s.cancel("a")
	s.wokenNow(waiting, "a", driver.SlotCancelled, "cancel")
}

func endOfTimeWakes(s *slotSession) {
	before := time.Now()
	s.createFor("a", s.tick)
	got := s.wokenAt(s.waitFor(s.ctx(), "a", s.hold), before.Add(s.tick), "end of the slot's time")
	s.ok(got.err, "wait for a slot that expires")
	s.expectSlot(got.slot, "a", driver.SlotExpired)
}

func everybodyIsWoken(s *slotSession) {
	for name, wake := range map[string]func(id string) driver.SlotState{
		"answer": func(id string) driver.SlotState { s.resolve(id, "tea"); return driver.SlotResolved },
		"cancel": func(id string) driver.SlotState { s.cancel(id); return driver.SlotCancelled },
	} {
		s.create(name)
		waiting := make([]<-chan slotOutcome, 5)
		for i := range waiting {
			waiting[i] = s.waitFor(s.ctx(), name, s.hold)
		}
		state := wake(name)
		for i := range waiting {
			s.wokenNow(waiting[i], name, state, fmt.Sprintf("%s, waiter %d of %d", name, i+1, len(waiting)))
		}
	}
	ends := time.Now().Add(s.tick)
	s.createFor("end", s.tick)
	first, second := s.waitFor(s.ctx(), "end", s.hold), s.waitFor(s.ctx(), "end", s.hold)
	for _, waiting := range []<-chan slotOutcome{first, second} {
		got := s.wokenAt(waiting, ends, "end of the slot's time")
		s.ok(got.err, "wait for a slot that expires")
		s.expectSlot(got.slot, "end", driver.SlotExpired)
	}
}

func waitForDecided(s *slotSession) {
	s.create("resolved", "cancelled")
	s.createFor("expired", s.tick)
	created := time.Now()
	s.resolve("resolved", "tea")
	s.cancel("cancelled")
	s.untilExpired(created, s.tick)
	for _, state := range []driver.SlotState{driver.SlotResolved, driver.SlotCancelled, driver.SlotExpired} {
		start := time.Now()
		got, err := s.store.Wait(s.ctx(), string(state), s.hold)
		s.ok(err, "wait for a slot that is %s", state)
		s.expectSlot(got, string(state), state)
		s.expectPrompt(start, "wait for a slot that is "+string(state))
	}
}

func waitPasses(s *slotSession) {
	s.create("a")
	start := time.Now()
	got := s.wokenAt(s.waitFor(s.ctx(), "a", s.tick), start.Add(s.tick), "a wait that passes")
	s.ok(got.err, "a wait that passes")
	s.expectSlot(got.slot, "a", driver.SlotPending)
	s.resolve("a", "tea")
	s.expectAnswer("a", "tea")
}

func waitOfNothing(s *slotSession) {
	s.create("a")
	for _, wait := range []time.Duration{0, -time.Second} {
		start := time.Now()
		got, err := s.store.Wait(s.ctx(), "a", wait)
		s.ok(err, "wait for %v", wait)
		s.expectSlot(got, "a", driver.SlotPending)
		s.expectPrompt(start, "wait for "+wait.String())
	}
}

func othersDoNotWake(s *slotSession) {
	s.create("a", "b", "c", "d")
	s.createFor("e", s.tick/2)
	start := time.Now()
	waiting := s.waitFor(s.ctx(), "a", s.tick)
	s.resolve("b", "tea")
	s.cancel("c")
	s.ok(s.store.Delete(s.ctx(), "d"), "delete slot %q", "d")
	got := s.wokenAt(waiting, start.Add(s.tick), "a wait while other slots change")
	s.ok(got.err, "a wait while other slots change")
	s.expectSlot(got.slot, "a", driver.SlotPending)
}

func contextEndsWait(s *slotSession) {
	s.create("a")
	ctx, cancel := s.cancellable()
	waiting := s.waitFor(ctx, "a", s.hold)
	cancel()
	got := s.woken(waiting, time.Now(), "cancel of the context")
	s.expectContextError(got.err, context.Canceled, "a wait whose context is cancelled")

	start := time.Now()
	ctx, stop := context.WithTimeout(s.ctx(), s.tick)
	defer stop()
	got = s.wokenAt(s.waitFor(ctx, "a", s.hold), start.Add(s.tick), "end of the context's time")
	s.expectContextError(got.err, context.DeadlineExceeded, "a wait whose context runs out")
	s.expect("a", driver.SlotPending)
}

func removalEndsWait(s *slotSession) {
	s.create("a")
	waiting := s.waitFor(s.ctx(), "a", s.hold)
	s.ok(s.other.Delete(s.ctx(), "a"), "delete slot %q", "a")
	got := s.woken(waiting, time.Now(), "delete")
	s.expectCode(got.err, driver.ErrNotFound, "a wait for a slot that is deleted")
}

func answerMeetsWait(s *slotSession) {
	for round := range s.rounds(300, 20) {
		id := fmt.Sprint("round ", round)
		s.create(id)
		s.parallel(2, func(i int) error {
			if i == 0 {
				return s.other.Resolve(s.ctx(), id, driver.Answer{Body: []byte("tea")})
			}
			start := time.Now()
			got, err := s.store.Wait(s.ctx(), id, s.patience)
			if err == nil && (got.State != driver.SlotResolved || s.backend.Virtual && time.Since(start) > s.late) {
				return fmt.Errorf("a wait that meets the answer: the slot is %s after %v", got.State, time.Since(start))
			}
			return err
		})
	}
}

func laterSlotExpiresFirst(s *slotSession) {
	slowEnds := time.Now().Add(3 * s.tick)
	s.createFor("slow", 3*s.tick)
	slow := s.waitFor(s.ctx(), "slow", s.hold)
	fastEnds := time.Now().Add(s.tick)
	s.createFor("fast", s.tick)
	fast := s.waitFor(s.ctx(), "fast", s.hold)
	got := s.wokenAt(fast, fastEnds, "the slot that was made last")
	s.ok(got.err, "wait for the slot that was made last")
	s.expectSlot(got.slot, "fast", driver.SlotExpired)
	got = s.wokenAt(slow, slowEnds, "the slot that was made first")
	s.ok(got.err, "wait for the slot that was made first")
	s.expectSlot(got.slot, "slow", driver.SlotExpired)
}
