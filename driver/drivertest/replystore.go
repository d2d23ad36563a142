package drivertest

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// A ReplyStore tells the suite how to get at a reply store.
type ReplyStore struct {
	// Open returns a fresh and empty store. What it needs to clean up it
	// registers with t.Cleanup. A store with a method Close() error is closed
	// by the suite.
	Open func(t testing.TB) driver.ReplyStore
	// Another returns a second client of the same store, as another process
	// would have it. Nil means that there is no other process.
	Another func(t testing.TB, store driver.ReplyStore) driver.ReplyStore
	// Late is how long it may take until who waits learns that a slot is
	// pending no more, for stores that can only look again; 0 means at once.
	Late time.Duration
	// Virtual says that everything may run inside a synctest bubble.
	Virtual bool
	// Tick is the suite's unit of time when not Virtual, for stores that count
	// in coarser steps; 0 means 200 ms.
	Tick time.Duration
}

// RunReplyStore runs every case for reply stores against b, each as a subtest
// called "ID/title" with a store of its own.
func RunReplyStore(t *testing.T, b ReplyStore) {
	t.Helper()
	for _, c := range allSlotCases() {
		t.Run(c.id+"/"+c.title, func(t *testing.T) {
			if b.Virtual {
				synctest.Test(t, func(t *testing.T) { c.run(newSlotSession(t, b, c.id)) })
			} else {
				c.run(newSlotSession(t, b, c.id))
			}
		})
	}
}

// ReplyStoreCases lists all cases in the order in which RunReplyStore runs them.
func ReplyStoreCases() []CaseInfo {
	var infos []CaseInfo
	for _, c := range allSlotCases() {
		infos = append(infos, CaseInfo{ID: c.id, Title: c.title})
	}
	return infos
}

// A slotCase proves one claim about one rule.
type slotCase struct {
	id    string
	title string
	run   func(s *slotSession)
}

func allSlotCases() []slotCase {
	return slices.Concat(slotCreateCases, slotWriteCases, slotTimeCases, slotWaitCases, slotRemoveCases, slotModelCases)
}

// A slotSession is one case at work on a reply store.
type slotSession struct {
	*session
	store driver.ReplyStore
	// other is the same store, seen from another process if there is one.
	other driver.ReplyStore
	late  time.Duration
}

func newSlotSession(t *testing.T, b ReplyStore, rule string) *slotSession {
	plain := &session{t: t, rule: rule, backend: Backend{Virtual: b.Virtual}, hold: 10 * time.Minute}
	if b.Virtual {
		plain.tick, plain.patience = 10*time.Second, time.Minute
	} else {
		plain.tick, plain.patience, plain.slack = cmp.Or(b.Tick, 200*time.Millisecond), 15*time.Second, 5*time.Millisecond
	}
	s := &slotSession{session: plain, late: max(b.Late, promptness)}
	s.store = b.Open(t)
	s.other = s.store
	if b.Another != nil {
		s.other = b.Another(t, s.store)
	}
	t.Cleanup(func() {
		s.running.Wait()
		if store, ok := s.store.(closer); ok {
			if err := store.Close(); err != nil {
				t.Errorf("%s: closing the store: %v", rule, err)
			}
		}
	})
	return s
}

// create makes a slot that does not expire during the case.
func (s *slotSession) create(ids ...string) {
	s.t.Helper()
	for _, id := range ids {
		s.createFor(id, s.hold)
	}
}

func (s *slotSession) createFor(id string, ttl time.Duration) {
	s.t.Helper()
	s.ok(s.store.Create(s.ctx(), id, ttl), "create slot %q for %v", id, ttl)
}

func (s *slotSession) resolve(id, body string) {
	s.t.Helper()
	s.ok(s.other.Resolve(s.ctx(), id, driver.Answer{Body: []byte(body)}), "resolve slot %q", id)
}

func (s *slotSession) cancel(id string) {
	s.t.Helper()
	s.ok(s.other.Cancel(s.ctx(), id), "cancel slot %q", id)
}

// expect looks at a slot, which must be in this state.
func (s *slotSession) expect(id string, want driver.SlotState) driver.Slot {
	s.t.Helper()
	got, err := s.store.Get(s.ctx(), id)
	s.ok(err, "get slot %q", id)
	s.expectSlot(got, id, want)
	return got
}

// expectSlot checks what was found of a slot, and that it is consistent.
func (s *slotSession) expectSlot(got driver.Slot, id string, want driver.SlotState) {
	s.t.Helper()
	if got.ID != id || got.State != want {
		s.failf("slot %q: got %q, which is %s, want it to be %s", id, got.ID, orNothing(got.State), want)
	}
	hasAnswer := len(got.Answer.Body) > 0 || got.Answer.Failure != "" || got.Answer.FailureKind != ""
	if want != driver.SlotResolved && (hasAnswer || !got.ResolvedAt.IsZero()) {
		s.failf("slot %q is %s, and has an answer: %+v", id, want, got)
	}
	if want == driver.SlotResolved && got.ResolvedAt.IsZero() {
		s.failf("slot %q is resolved, and does not say when", id)
	}
}

// expectAnswer looks at a slot, which must be resolved with this body.
func (s *slotSession) expectAnswer(id, body string) {
	s.t.Helper()
	got := s.expect(id, driver.SlotResolved)
	if string(got.Answer.Body) != body || got.Answer.Failure != "" {
		s.failf("slot %q: got the answer %q, failure %q, want the answer %q", id, brief(got.Answer.Body), got.Answer.Failure, body)
	}
}

// expectGone checks that there is no such slot, whatever is asked of it.
func (s *slotSession) expectGone(id string) {
	s.t.Helper()
	_, err := s.store.Get(s.ctx(), id)
	s.expectCode(err, driver.ErrNotFound, "get slot %q, which is not there", id)
	_, err = s.store.Wait(s.ctx(), id, s.tick)
	s.expectCode(err, driver.ErrNotFound, "wait for slot %q, which is not there", id)
	_, err = s.store.Consume(s.ctx(), id)
	s.expectCode(err, driver.ErrNotFound, "consume slot %q, which is not there", id)
	s.expectCode(s.store.Resolve(s.ctx(), id, driver.Answer{}), driver.ErrNotFound, "resolve slot %q, which is not there", id)
	s.expectCode(s.store.Cancel(s.ctx(), id), driver.ErrNotFound, "cancel slot %q, which is not there", id)
}

// life is the time of a slot that expires during the case, and to which
// something has to happen before: on a real clock that may take a while.
func (s *slotSession) life() time.Duration {
	if s.backend.Virtual {
		return s.tick
	}
	return 5 * s.tick
}

// untilExpired lets time pass until a slot that was created at a moment, or
// just before it, has expired, and not much longer.
func (s *slotSession) untilExpired(created time.Time, ttl time.Duration) {
	s.sleep(max(time.Until(created.Add(ttl)), 0))
}

// A slotOutcome is what a wait in the background came to, and when.
type slotOutcome struct {
	slot driver.Slot
	err  error
	at   time.Time
}

// waitFor starts a wait for a slot, and returns when it is waiting.
func (s *slotSession) waitFor(ctx context.Context, id string, wait time.Duration) <-chan slotOutcome {
	done := make(chan slotOutcome, 1)
	s.running.Go(func() {
		slot, err := s.store.Wait(ctx, id, wait)
		done <- slotOutcome{slot, err, time.Now()}
	})
	s.settle()
	return done
}

// wokenAt returns what a background wait came to, which ought to end when due:
// never before, and in virtual time not much later.
func (s *slotSession) wokenAt(done <-chan slotOutcome, due time.Time, why string) slotOutcome {
	s.t.Helper()
	got := s.woken(done, due, why)
	if early := due.Sub(got.at); early > s.slack {
		s.failf("%s: the wait ended %v too early", why, early)
	}
	return got
}

// woken returns what a background wait came to, for which there was a reason
// at since.
func (s *slotSession) woken(done <-chan slotOutcome, since time.Time, why string) slotOutcome {
	s.t.Helper()
	select {
	case got := <-done:
		if late := got.at.Sub(since); s.backend.Virtual && late > s.late {
			s.failf("%s: the wait ended %v too late, at most %v are allowed", why, late, s.late)
		}
		return got
	case <-time.After(max(time.Until(since), 0) + s.late + s.patience):
		s.failf("%s: the wait has not ended %v later", why, s.late+s.patience)
		return slotOutcome{}
	}
}

// wokenNow is woken for a reason that there just was, and that ends a wait
// well.
func (s *slotSession) wokenNow(done <-chan slotOutcome, id string, want driver.SlotState, why string) driver.Slot {
	s.t.Helper()
	got := s.woken(done, time.Now(), why)
	s.ok(got.err, "%s: the wait", why)
	s.expectSlot(got.slot, id, want)
	return got.slot
}

// expectNamedField checks the error about a bad argument.
func (s *slotSession) expectNamedField(err error, what string) {
	s.t.Helper()
	s.expectCode(err, driver.ErrInvalid, "%s", what)
	if detail, _ := errors.AsType[*driver.Error](err); detail.Field == "" {
		s.failf("%s: the error does not say which argument is wrong: %v", what, err)
	}
}

func orNothing(state driver.SlotState) string {
	if state == "" {
		return "in no state"
	}
	return string(state)
}
