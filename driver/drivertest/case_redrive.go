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
	{id: "DLQ-5", title: "a redriven message starts over but keeps its identity", needs: []need{needDeadLetters}, run: redrivenStartsOver},
	{id: "DLQ-5", title: "redrive wakes a waiting receiver", needs: []need{needDeadLetters}, run: redriveWakes},
	{
		id: "DLQ-5", title: "listing, redrive, discard and purge see messages that died by the clock alone",
		config: mortal, needs: []need{needDeadLetters}, run: deadLettersFollowTheClock,
	},
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
	e.sleep(e.tick)
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

func redrivenStartsOver(e *env, q driver.Queue) {
	msg := doomed(q)
	id := e.sendOne(q, msg).ID
	first := e.receive(q, 1)[0]
	e.nack(q, first, 0, "failure")
	e.sleep(e.tick)
	e.deadLetter(q, e.receive(q, 1)[0], driver.ReasonFatal)
	lastError := e.onlyDead(q).LastError
	e.redrive(q, nil, 0, 1)

	got := e.receive(q, 1)[0]
	e.expectMessage(got.Message, msg, id, 1)
	if !got.EnqueuedAt.Equal(first.EnqueuedAt) || !got.FirstReceivedAt.Equal(first.FirstReceivedAt) || got.LastError != lastError {
		e.failf("a redriven message: got enqueued %v, first received %v, last error %q; want %v, %v and %q as before",
			got.EnqueuedAt, got.FirstReceivedAt, got.LastError, first.EnqueuedAt, first.FirstReceivedAt, lastError)
	}
}

func redriveWakes(e *env, q driver.Queue) {
	e.kill(q, "a")
	waiting := e.receiveInBackground(e.ctx(), q, 1)
	e.redrive(q, nil, 0, 1)
	e.expectHandedTo(waiting, "a", "redrive")
}

func deadLettersFollowTheClock(e *env, q driver.Queue) {
	// dying leaves a message whose last lease has ended unnoticed.
	dying := func(body string) (id string) {
		last := e.secondDelivery(q, body)
		e.extend(q, last, e.tick)
		e.sleep(e.tick)
		return last.ID
	}
	dying("listed")
	e.expectDead(q, "listed")
	e.roomAgain(q)
	dying("purged")
	if removed, err := q.PurgeDead(e.ctx()); err != nil || removed != 1 {
		e.failf("purge of a message that died by the clock alone: got %d removed, error %v; want 1", removed, err)
	}
	id := dying("discarded")
	if removed, err := q.Discard(e.ctx(), []string{id}); err != nil || removed != 1 {
		e.failf("discard of a message that died by the clock alone: got %d removed, error %v; want 1", removed, err)
	}
	id = dying("redriven")
	e.redrive(q, []string{id}, 0, 1)
	e.ack(q, e.expectNext(q, "redriven")...)
	dying("redriven with all")
	e.redrive(q, nil, 0, 1)
	e.ack(q, e.expectNext(q, "redriven with all")...)
	e.expectEmpty(q)
}

// roomAgain removes the dead letters.
func (e *env) roomAgain(q driver.Queue) {
	e.t.Helper()
	_, err := q.PurgeDead(e.ctx())
	e.ok(err, "purge dead letters")
}
