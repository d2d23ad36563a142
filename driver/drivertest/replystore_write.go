package drivertest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var slotWriteCases = []slotCase{
	{"RPL-5", "an answer is read as it was written", answersAreKept},
	{"RPL-5", "an answer belongs to its sender again when it is stored", answersAreCopied},
	{"RPL-6", "a failure is read as a failure, with its kind", failuresAreKept},
	{"RPL-2", "a second answer is ErrReplyAlreadySent and changes nothing", secondAnswer},
	{"RPL-2", "a cancelled slot takes no answer, and says why", cancelledTakesNoAnswer},
	{"RPL-2", "an expired slot takes no answer, and says why", expiredTakesNoAnswer},
	{"RPL-4", "cancelling is final, and doing it twice is fine", cancelIsFinal},
	{"RPL-4", "what was answered cannot be cancelled", answeredCannotBeCancelled},
	{"RPL-5", "of many answers at once, one is written", oneAnswerWins},
	{"RPL-5", "of answers and cancels at once, one wins", answersAgainstCancels},
	{"RPL-5", "an answer before the end of its time wins, at the end and after it loses", answerAroundTheEnd},
}

func answersAreKept(s *slotSession) {
	large := make([]byte, 64<<10)
	random := rand.NewChaCha8([32]byte{1})
	_, _ = random.Read(large) // never fails
	for i, body := range [][]byte{{}, []byte("tea"), {0, 1, 0xff, '\n', 0}, []byte("ünï"), large} {
		id := fmt.Sprint(i)
		s.create(id)
		s.ok(s.other.Resolve(s.ctx(), id, driver.Answer{Body: body}), "resolve with %d bytes", len(body))
		for range 2 { // looking changes nothing
			got := s.expect(id, driver.SlotResolved)
			if !bytes.Equal(got.Answer.Body, body) || got.Answer.Failure != "" || got.Answer.FailureKind != "" {
				s.failf("resolve with %q: got %q, failure %q", brief(body), brief(got.Answer.Body), got.Answer.Failure)
			}
			if got.ResolvedAt.Before(got.CreatedAt) || got.ResolvedAt.Location() != time.UTC {
				s.failf("resolved at %v, created at %v", got.ResolvedAt, got.CreatedAt)
			}
		}
	}
}

func answersAreCopied(s *slotSession) {
	s.create("a")
	body := []byte("tea")
	s.ok(s.store.Resolve(s.ctx(), "a", driver.Answer{Body: body}), "resolve")
	copy(body, "XXX")
	s.expectAnswer("a", "tea")
}

func failuresAreKept(s *slotSession) {
	s.create("a", "b")
	want := driver.Answer{Failure: "out of tea: 茶", FailureKind: "sold out"}
	s.ok(s.other.Resolve(s.ctx(), "a", want), "resolve with a failure")
	got := s.expect("a", driver.SlotResolved).Answer
	if len(got.Body) > 0 || got.Failure != want.Failure || got.FailureKind != want.FailureKind {
		s.failf("resolve with %+v: got %+v", want, got)
	}
	waiting := s.waitFor(s.ctx(), "b", s.hold)
	s.ok(s.other.Resolve(s.ctx(), "b", want), "resolve with a failure")
	if got := s.wokenNow(waiting, "b", driver.SlotResolved, "resolve with a failure").Answer; got.Failure != want.Failure || got.FailureKind != want.FailureKind {
		s.failf("wait for %+v: got %+v", want, got)
	}
}

func secondAnswer(s *slotSession) {
	s.create("a")
	s.resolve("a", "first")
	s.expectCode(s.store.Resolve(s.ctx(), "a", driver.Answer{Body: []byte("second")}), driver.ErrReplyAlreadySent, "resolve a second time")
	s.expectCode(s.other.Resolve(s.ctx(), "a", driver.Answer{Body: []byte("first")}), driver.ErrReplyAlreadySent, "resolve again with the same")
	s.expectAnswer("a", "first")
}

func cancelledTakesNoAnswer(s *slotSession) {
	s.create("a")
	s.cancel("a")
	s.expectCode(s.store.Resolve(s.ctx(), "a", driver.Answer{Body: []byte("late")}), driver.ErrReplyCancelled, "resolve a cancelled slot")
	s.expect("a", driver.SlotCancelled)
}

func expiredTakesNoAnswer(s *slotSession) {
	s.createFor("a", s.tick)
	s.createFor("b", s.tick)
	created := time.Now()
	s.untilExpired(created, s.tick)
	s.expectCode(s.store.Resolve(s.ctx(), "a", driver.Answer{Body: []byte("late")}), driver.ErrReplyExpired, "resolve an expired slot")
	s.expectCode(s.store.Cancel(s.ctx(), "b"), driver.ErrReplyExpired, "cancel an expired slot")
	s.expect("a", driver.SlotExpired)
	s.expect("b", driver.SlotExpired)
}

func cancelIsFinal(s *slotSession) {
	s.create("a")
	s.cancel("a")
	s.ok(s.store.Cancel(s.ctx(), "a"), "cancel a second time")
	s.expect("a", driver.SlotCancelled)
}

func answeredCannotBeCancelled(s *slotSession) {
	s.create("a")
	s.resolve("a", "tea")
	s.expectCode(s.store.Cancel(s.ctx(), "a"), driver.ErrReplyAlreadySent, "cancel an answered slot")
	s.expectAnswer("a", "tea")
}

func oneAnswerWins(s *slotSession) {
	for round := range s.rounds(50, 5) {
		id := fmt.Sprint("round ", round)
		s.create(id)
		var winner atomic.Value
		var winners atomic.Int32
		s.parallel(8, func(i int) error {
			body := fmt.Sprint("answer ", i)
			store := s.store
			if i%2 == 1 {
				store = s.other
			}
			err := store.Resolve(s.ctx(), id, driver.Answer{Body: []byte(body)})
			switch {
			case err == nil:
				winners.Add(1)
				winner.Store(body)
			case !errors.Is(err, driver.ErrReplyAlreadySent):
				return err
			}
			return nil
		})
		if n := winners.Load(); n != 1 {
			s.failf("8 answers to one slot at once: %d were accepted, want 1", n)
		}
		s.expectAnswer(id, winner.Load().(string))
	}
}

func answersAgainstCancels(s *slotSession) {
	for round := range s.rounds(100, 10) {
		id := fmt.Sprint("round ", round)
		s.create(id)
		var resolved, cancelled atomic.Int32
		s.parallel(6, func(i int) error {
			var err error
			if i%2 == 0 {
				if err = s.store.Resolve(s.ctx(), id, driver.Answer{Body: []byte("tea")}); err == nil {
					resolved.Add(1)
				}
			} else {
				if err = s.other.Cancel(s.ctx(), id); err == nil {
					cancelled.Add(1)
				}
			}
			if err != nil && !errors.Is(err, driver.ErrReplyAlreadySent) && !errors.Is(err, driver.ErrReplyCancelled) {
				return err
			}
			return nil
		})
		switch n := resolved.Load(); {
		case n == 1 && cancelled.Load() == 0:
			s.expectAnswer(id, "tea")
		case n == 0 && cancelled.Load() == 3: // cancelling twice is fine
			s.expect(id, driver.SlotCancelled)
		default:
			s.failf("3 answers and 3 cancels at once: %d and %d were accepted", n, cancelled.Load())
		}
	}
}

func answerAroundTheEnd(s *slotSession) {
	if !s.backend.Virtual {
		s.t.Log("exact to the nanosecond, and so checked in virtual time only")
		return
	}
	for _, offset := range []time.Duration{-time.Second, -1, 0, 1, time.Second} {
		id := offset.String()
		s.createFor(id, s.tick)
		time.Sleep(s.tick + offset)
		err := s.store.Resolve(s.ctx(), id, driver.Answer{Body: []byte("tea")})
		if offset < 0 {
			s.ok(err, "resolve %v before the end of the slot's time", -offset)
			s.expectAnswer(id, "tea")
		} else {
			s.expectCode(err, driver.ErrReplyExpired, "resolve %v after the end of the slot's time", offset)
		}
	}
}
