package drivertest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/mailboxmq/mailbox/driver"
)

var deadLetterCases = []testCase{
	{
		id: "DLQ-1", title: "without a limit a message is delivered again and again",
		config: always(driver.Config{}), run: noLimitNoDeath,
	},
	{id: "DLQ-1", title: "dead-lettering a batch keeps the positions of what failed", needs: []need{needDeadLetters}, run: deadLetteringKeepsPositions},
	{
		id: "DLQ-1", title: "the move is one step: nothing is in two places or in none",
		needs: []need{needDeadLetters, needExactStats}, run: moveIsOneStep,
	},

	{id: "DLQ-4", title: "an error that is too long is cut, not refused", needs: []need{needDeadLetters}, run: longDeadLetterErrorIsCut},
}

// deadLetter dead-letters a delivery.
func (e *env) deadLetter(q driver.Queue, d driver.Delivery, reason driver.Reason) {
	e.t.Helper()
	err := q.DeadLetter(e.ctx(), []driver.DeadLetterRequest{{Receipt: d.Receipt, Reason: reason}})
	e.ok(err, "dead-letter %q with reason %q", brief(d.Body), reason)
}

// dead lists the dead letters.
func (e *env) dead(q driver.Queue) []driver.DeadLetter {
	e.t.Helper()
	var letters []driver.DeadLetter
	for letter, err := range q.DeadLetters(e.ctx()) {
		e.ok(err, "list dead letters")
		letters = append(letters, letter)
	}
	return letters
}

// onlyDead returns the one dead letter.
func (e *env) onlyDead(q driver.Queue) driver.DeadLetter {
	e.t.Helper()
	letters := e.dead(q)
	if len(letters) != 1 {
		e.failf("got %d dead letters, want 1", len(letters))
	}
	return letters[0]
}

// expectDead checks that the dead letters have these bodies and are listed oldest death first.
// Letters that died at the same instant may be listed in any order.
func (e *env) expectDead(q driver.Queue, want ...string) []driver.DeadLetter {
	e.t.Helper()
	letters := e.dead(q)
	if !slices.IsSortedFunc(letters, func(a, b driver.DeadLetter) int { return a.DeadAt.Compare(b.DeadAt) }) {
		e.failf("dead letters are not listed oldest death first: %+v", letters)
	}
	slices.SortStableFunc(letters, func(a, b driver.DeadLetter) int {
		return cmp.Or(a.DeadAt.Compare(b.DeadAt), slices.Index(want, string(a.Body))-slices.Index(want, string(b.Body)))
	})
	got := make([]string, len(letters))
	for i, letter := range letters {
		got[i] = brief(letter.Body)
	}
	if !slices.Equal(got, want) {
		e.failf("dead letters: got %q, want %q", got, want)
	}
	return letters
}

// secondDelivery sends a message and returns its second delivery, which is the
// last one in a mortal queue.
func (e *env) secondDelivery(q driver.Queue, body string) driver.Delivery {
	e.t.Helper()
	e.send(q, body)
	e.nack(q, e.expectNext(q, body)[0], 0, "first failure")
	got := e.expectNext(q, body)[0]
	if got.Deliveries != 2 {
		e.failf("delivery after a nack: got Deliveries %d, want 2", got.Deliveries)
	}
	return got
}

func noLimitNoDeath(e *env, q driver.Queue) {
	e.send(q, "a")
	for delivery := 1; delivery <= 12; delivery++ {
		got := e.expectNext(q, "a")[0]
		if got.Deliveries != delivery {
			e.failf("delivery %d: got Deliveries %d", delivery, got.Deliveries)
		}
		if delivery%2 == 0 {
			e.nack(q, got, 0, "")
		} else {
			e.expire(q, got)
		}
	}
	e.expectStats(q, driver.Stats{Ready: 1})
}

var reasons = []driver.Reason{
	driver.ReasonMaxDeliveries, driver.ReasonFatal, driver.ReasonParse,
	driver.ReasonIntegrity, driver.ReasonExpired, driver.ReasonOperator,
}

func deadLetteringKeepsPositions(e *env, q driver.Queue) {
	held := e.someExpired(q)
	requests := make([]driver.DeadLetterRequest, len(held))
	for i, d := range held {
		requests[i] = driver.DeadLetterRequest{Receipt: d.Receipt, Reason: driver.ReasonFatal}
	}
	requests[0].Reason = "boredom"
	err := q.DeadLetter(e.ctx(), requests)
	e.expectPositions(err, "dead-letter of five receipts, two of them expired and one with a bad reason",
		driver.ErrInvalid, driver.ErrReceiptExpired, fine, driver.ErrReceiptExpired, fine)
	e.expectStats(q, driver.Stats{Ready: 2, InFlight: 1, Dead: 2})
	e.expectDead(q, "c", "e")
}

func moveIsOneStep(e *env, q driver.Queue) {
	const messages = 100
	e.send(q, numbered("m", messages)...)
	held := e.receive(q, messages)
	var watching sync.WaitGroup
	stop, problem := make(chan struct{}), make(chan string, 1)
	watching.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			got, err := q.Stats(e.ctx())
			if err != nil || got.InFlight+got.Dead != messages || got.Ready+got.Delayed != 0 {
				problem <- fmt.Sprintf("while %d messages in flight are dead-lettered: got %+v, error %v", messages, got, err)
				return
			}
		}
	})
	for _, d := range held {
		e.deadLetter(q, d, driver.ReasonFatal)
	}
	close(stop)
	watching.Wait()
	select {
	case text := <-problem:
		e.failf("%s", text)
	default:
	}
	e.expectStats(q, driver.Stats{Dead: messages})
}

// doomed is a message with everything a record must keep.
func doomed(q driver.Queue) driver.Outgoing {
	msg := driver.Outgoing{
		Body:          []byte("doomed \x00 body"),
		Attributes:    map[string]string{"k": "v", "ü": "✓"},
		ReplyTo:       "replies",
		CorrelationID: "corr",
	}
	if q.Traits().Groups {
		msg.Group = "g"
	}
	if q.Traits().Seals {
		msg.Seal = []byte("seal \x00\xff")
	}
	return msg
}

func longDeadLetterErrorIsCut(e *env, q driver.Queue) {
	e.send(q, "a")
	text := strings.Repeat("漢", driver.MaxCauseBytes)
	err := q.DeadLetter(e.ctx(), []driver.DeadLetterRequest{{Receipt: e.receive(q, 1)[0].Receipt, Reason: driver.ReasonFatal, Error: text}})
	e.ok(err, "dead-letter with an error of %d bytes", len(text))
	if got := e.onlyDead(q).LastError; got != driver.TrimCause(text) {
		e.failf("dead letter with an error of %d bytes: got %d bytes, want its first %d", len(text), len(got), driver.MaxCauseBytes)
	}
}
