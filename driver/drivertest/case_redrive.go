package drivertest

import (
	"fmt"
	"slices"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var redriveCases = []testCase{
	{id: "DLQ-5", title: "listing leases and changes nothing, and can stop early", needs: []need{needDeadLetters}, run: listingChangesNothing},
	{id: "DLQ-5", title: "dead letters can be discarded while they are listed", needs: []need{needDeadLetters}, run: discardWhileListing},
}

// kill sends messages and dead-letters them, one after the other.
func (e *env) kill(q driver.Queue, texts ...string) []string {
	e.t.Helper()
	var ids []string
	for _, text := range texts {
		ids = append(ids, e.send(q, text)...)
		e.deadLetter(q, e.expectNext(q, text)[0], driver.ReasonFatal)
		e.sleep(time.Millisecond)
	}
	return ids
}

// redrive redrives dead letters and checks how many.
func (e *env) redrive(q driver.Queue, ids []string, limit, want int) {
	e.t.Helper()
	moved, err := q.Redrive(e.ctx(), ids, limit)
	e.ok(err, "redrive")
	if moved != want {
		e.failf("redrive of %d ids with limit %d: got %d moved, want %d", len(ids), limit, moved, want)
	}
}

func listingChangesNothing(e *env, q driver.Queue) {
	e.kill(q, "a", "b", "c")
	for range 3 {
		e.expectDead(q, "a", "b", "c")
	}
	for range q.DeadLetters(e.ctx()) {
		break // a listing may be abandoned
	}
	letters := e.dead(q)
	e.sleep(e.tick())
	if again := e.dead(q); !slices.EqualFunc(letters, again, func(a, b driver.DeadLetter) bool {
		return a.ID == b.ID && a.Deliveries == b.Deliveries && a.DeadAt.Equal(b.DeadAt) && a.Redrives == b.Redrives
	}) {
		e.failf("listing twice: got %+v and then %+v", letters, again)
	}
	e.expectStats(q, driver.Stats{Dead: 3})
	e.expectNothing(q)
}

func discardWhileListing(e *env, q driver.Queue) {
	e.kill(q, "a", "b", "c")
	for letter, err := range q.DeadLetters(e.ctx()) {
		e.ok(err, "list dead letters")
		e.expectUnblocked("discard while listing", func() error {
			removed, err := q.Discard(e.ctx(), []string{letter.ID})
			if err == nil && removed != 1 {
				err = fmt.Errorf("got %d removed, want 1", removed)
			}
			return err
		})
	}
	e.expectDead(q)
}
