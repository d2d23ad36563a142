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
	{"RPL-5", "a stored answer does not share its sender's bytes", answersAreCopied},
	{"RPL-6", "a failure is read as a failure, with its kind", failuresAreKept},
	{"RPL-2", "a second answer is ErrReplyAlreadySent and changes nothing", secondAnswer},
	{"RPL-2", "a cancelled slot takes no answer, and says why", cancelledTakesNoAnswer},
	{"RPL-2", "an expired slot takes no answer, and says why", expiredTakesNoAnswer},
	{"RPL-4", "cancelling is final, and doing it twice is fine", cancelIsFinal},
	{"RPL-4", "an answered slot cannot be cancelled", answeredCannotBeCancelled},
	{"RPL-5", "of many answers at once, one is written", oneAnswerWins},
	{"RPL-5", "of answers and cancels at once, one wins", answersAgainstCancels},
	{"RPL-5", "an answer before the end of its time wins, at the end and after it loses", answerAroundTheEnd},
}

func answersAreKept(e *slotEnv) {
	large := make([]byte, 64<<10)
	random := rand.NewChaCha8([32]byte{1})
	_, _ = random.Read(large) // never fails
	for i, body := range [][]byte{{}, []byte("tea"), {0, 1, 0xff, '\n', 0}, []byte("ünï"), large} {
		id := fmt.Sprint(i)
		e.create(id)
		e.ok(e.other.Resolve(e.ctx(), id, driver.Answer{Body: body}), "resolve with %d bytes", len(body))
		for range 2 { // reading changes nothing
			got := e.expect(id, driver.SlotResolved)
			if !bytes.Equal(got.Answer.Body, body) || got.Answer.Failure != "" || got.Answer.FailureKind != "" {
				e.failf("resolve with %q: got %q, failure %q", brief(body), brief(got.Answer.Body), got.Answer.Failure)
			}
			if got.ResolvedAt.Before(got.CreatedAt) || got.ResolvedAt.Location() != time.UTC {
				e.failf("resolved at %v, created at %v", got.ResolvedAt, got.CreatedAt)
			}
		}
	}
}

func answersAreCopied(e *slotEnv) {
	e.create("a")
	body := []byte("tea")
	e.ok(e.store.Resolve(e.ctx(), "a", driver.Answer{Body: body}), "resolve")
	copy(body, "XXX")
	e.expectAnswer("a", "tea")
}

func failuresAreKept(e *slotEnv) {
	e.create("a", "b")
	want := driver.Answer{Failure: "out of tea: 茶", FailureKind: "sold out"}
	e.ok(e.other.Resolve(e.ctx(), "a", want), "resolve with a failure")
	got := e.expect("a", driver.SlotResolved).Answer
	if len(got.Body) > 0 || got.Failure != want.Failure || got.FailureKind != want.FailureKind {
		e.failf("resolve with %+v: got %+v", want, got)
	}
	waiting := e.waitFor(e.ctx(), "b", e.hold)
	e.ok(e.other.Resolve(e.ctx(), "b", want), "resolve with a failure")
	if got := e.wokenNow(waiting, "b", driver.SlotResolved, "resolve with a failure").Answer; got.Failure != want.Failure || got.FailureKind != want.FailureKind {
		e.failf("wait for %+v: got %+v", want, got)
	}
}

func secondAnswer(e *slotEnv) {
	e.create("a")
	e.resolve("a", "first")
	e.expectCode(e.store.Resolve(e.ctx(), "a", driver.Answer{Body: []byte("second")}), driver.ErrReplyAlreadySent, "resolve a second time")
	e.expectCode(e.other.Resolve(e.ctx(), "a", driver.Answer{Body: []byte("first")}), driver.ErrReplyAlreadySent, "resolve again with the same")
	e.expectAnswer("a", "first")
}

func cancelledTakesNoAnswer(e *slotEnv) {
	e.create("a")
	e.cancel("a")
	e.expectCode(e.store.Resolve(e.ctx(), "a", driver.Answer{Body: []byte("late")}), driver.ErrReplyCancelled, "resolve a cancelled slot")
	e.expect("a", driver.SlotCancelled)
}

func expiredTakesNoAnswer(e *slotEnv) {
	e.createFor("a", e.tick())
	e.createFor("b", e.tick())
	created := time.Now()
	e.untilExpired(created, e.tick())
	e.expectCode(e.store.Resolve(e.ctx(), "a", driver.Answer{Body: []byte("late")}), driver.ErrReplyExpired, "resolve an expired slot")
	e.expectCode(e.store.Cancel(e.ctx(), "b"), driver.ErrReplyExpired, "cancel an expired slot")
	e.expect("a", driver.SlotExpired)
	e.expect("b", driver.SlotExpired)
}

func cancelIsFinal(e *slotEnv) {
	e.create("a")
	e.cancel("a")
	e.ok(e.store.Cancel(e.ctx(), "a"), "cancel a second time")
	e.expect("a", driver.SlotCancelled)
}

func answeredCannotBeCancelled(e *slotEnv) {
	e.create("a")
	e.resolve("a", "tea")
	e.expectCode(e.store.Cancel(e.ctx(), "a"), driver.ErrReplyAlreadySent, "cancel an answered slot")
	e.expectAnswer("a", "tea")
}

func oneAnswerWins(e *slotEnv) {
	for round := range e.rounds(50, 5) {
		id := fmt.Sprint("round ", round)
		e.create(id)
		var winner atomic.Value
		var winners atomic.Int32
		e.parallel(8, func(i int) error {
			body := fmt.Sprint("answer ", i)
			store := e.store
			if i%2 == 1 {
				store = e.other
			}
			err := store.Resolve(e.ctx(), id, driver.Answer{Body: []byte(body)})
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
			e.failf("8 answers to one slot at once: %d were accepted, want 1", n)
		}
		e.expectAnswer(id, winner.Load().(string))
	}
}

func answersAgainstCancels(e *slotEnv) {
	for round := range e.rounds(100, 10) {
		id := fmt.Sprint("round ", round)
		e.create(id)
		var resolved, cancelled atomic.Int32
		e.parallel(6, func(i int) error {
			var err error
			if i%2 == 0 {
				if err = e.store.Resolve(e.ctx(), id, driver.Answer{Body: []byte("tea")}); err == nil {
					resolved.Add(1)
				}
			} else {
				if err = e.other.Cancel(e.ctx(), id); err == nil {
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
			e.expectAnswer(id, "tea")
		case n == 0 && cancelled.Load() == 3: // cancelling twice is fine
			e.expect(id, driver.SlotCancelled)
		default:
			e.failf("3 answers and 3 cancels at once: %d and %d were accepted", n, cancelled.Load())
		}
	}
}

func answerAroundTheEnd(e *slotEnv) {
	if !e.backend.Virtual {
		e.t.Log("exact to the nanosecond, and so checked in virtual time only")
		return
	}
	for _, offset := range []time.Duration{-time.Second, -1, 0, 1, time.Second} {
		id := offset.String()
		e.createFor(id, e.tick())
		time.Sleep(e.tick() + offset)
		err := e.store.Resolve(e.ctx(), id, driver.Answer{Body: []byte("tea")})
		if offset < 0 {
			e.ok(err, "resolve %v before the end of the slot's time", -offset)
			e.expectAnswer(id, "tea")
		} else {
			e.expectCode(err, driver.ErrReplyExpired, "resolve %v after the end of the slot's time", offset)
		}
	}
}
