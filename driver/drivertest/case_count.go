package drivertest

import (
	"github.com/mailboxmq/mailbox/driver"
)

var countCases = []testCase{
	{id: "CNT-1", title: "stats follow a message through its life", needs: []need{needExactStats}, run: statsFollowALife},
	{id: "CNT-1", title: "stats follow the clock without a sweep", needs: []need{needExactStats}, run: statsFollowTheClock},
	{id: "CNT-1", title: "the waiting count is ready, delayed and in flight", run: waitingIsTheSum},
	{id: "CNT-1", title: "stats of a new queue are zero", run: newQueueIsEmpty},

	{id: "CNT-3", title: "purge removes ready, delayed and in-flight messages and says how many", run: purgeRemovesAll},
	{id: "CNT-3", title: "receipts of purged messages expire", run: purgeExpiresReceipts},
	{id: "CNT-3", title: "purge leaves the dead letters", needs: []need{needDeadLetters}, run: purgeLeavesDeadLetters},
	{id: "CNT-3", title: "a purged queue still works", run: purgedQueueWorksOn},
	{id: "CNT-3", title: "purge of one queue leaves others", run: purgeLeavesOtherQueues},
	{id: "CNT-3", title: "a second purge works, or says when it will", run: secondPurge},
}

func statsFollowALife(e *env, q driver.Queue) {
	e.send(q, "a", "b", "c")
	e.expectStats(q, driver.Stats{Ready: 3})
	e.sendLater(q, e.hold, "d")
	e.expectStats(q, driver.Stats{Ready: 3, Delayed: 1})
	held := e.receive(q, 3)
	e.expectStats(q, driver.Stats{Delayed: 1, InFlight: 3})
	e.nack(q, held[0], 0, "")
	e.expectStats(q, driver.Stats{Ready: 1, Delayed: 1, InFlight: 2})
	e.nack(q, held[1], e.hold, "")
	e.expectStats(q, driver.Stats{Ready: 1, Delayed: 2, InFlight: 1})
	e.extend(q, held[2], e.hold)
	e.expectStats(q, driver.Stats{Ready: 1, Delayed: 2, InFlight: 1})
	e.ack(q, held[2])
	e.expectStats(q, driver.Stats{Ready: 1, Delayed: 2})
}

func statsFollowTheClock(e *env, q driver.Queue) {
	e.sendLater(q, e.tick, "delayed")
	e.sleep(e.tick)
	e.expectStats(q, driver.Stats{Ready: 1})
	e.receiveFor(q, 1, e.tick)
	e.sleep(e.tick)
	e.expectStats(q, driver.Stats{Ready: 1})
	e.nack(q, e.receive(q, 1)[0], e.tick, "")
	e.sleep(e.tick)
	e.expectStats(q, driver.Stats{Ready: 1})
}

func waitingIsTheSum(e *env, q driver.Queue) {
	e.send(q, "a", "b")
	e.receive(q, 1)
	e.sendLater(q, e.hold, "c")
	got, err := q.Stats(e.ctx())
	e.ok(err, "stats")
	if q.Traits().ExactStats && got.Waiting() != 3 {
		e.failf("one ready, one delayed, one in flight: got %d waiting of %+v, want 3", got.Waiting(), got)
	}
}

func newQueueIsEmpty(e *env, q driver.Queue) {
	e.expectEmpty(q)
}

// purge purges the queue and checks the returned count.
func (e *env) purge(q driver.Queue, want int) {
	e.t.Helper()
	removed, err := q.Purge(e.ctx())
	e.ok(err, "purge")
	if q.Traits().ExactStats && removed != want {
		e.failf("purge: got %d removed, want %d", removed, want)
	}
}

func purgeRemovesAll(e *env, q driver.Queue) {
	e.send(q, "a", "b", "c")
	e.receive(q, 1)
	e.sendLater(q, e.hold, "d")
	e.purge(q, 4)
	e.expectEmpty(q)
	if e.backend.Virtual {
		e.sleep(2 * e.hold) // no message is left that could become due
		e.expectEmpty(q)
	}
}

func purgeExpiresReceipts(e *env, q driver.Queue) {
	e.send(q, "a")
	held := e.receive(q, 1)[0]
	e.purge(q, 1)
	e.expectExpired(q, held, "the receipt of a purged message")
	e.expectEmpty(q)
}

func purgeLeavesDeadLetters(e *env, q driver.Queue) {
	e.send(q, "dead", "ready")
	held := e.expectBodies(q, e.receive(q, 2), "dead", "ready")
	e.deadLetter(q, held[0], driver.ReasonFatal)
	e.expire(q, held[1])
	e.purge(q, 1)
	e.expectStats(q, driver.Stats{Dead: 1})
	e.expectDead(q, "dead")
}

func purgedQueueWorksOn(e *env, q driver.Queue) {
	e.send(q, "a", "b")
	e.purge(q, 2)
	waiting := e.receiveInBackground(e.ctx(), q, 1)
	e.send(q, "c")
	got := e.expectHandedTo(waiting, "c", "send after a purge")
	if got.Deliveries != 1 {
		e.failf("delivery after a purge: got Deliveries %d, want 1", got.Deliveries)
	}
	e.ack(q, got)
}

func purgeLeavesOtherQueues(e *env, q driver.Queue) {
	other := e.open("invoices")
	e.send(q, "a")
	e.send(other, "b")
	e.purge(q, 1)
	e.expectStats(other, driver.Stats{Ready: 1})
	e.expectNext(other, "b")
}

func secondPurge(e *env, q driver.Queue) {
	e.send(q, "a")
	e.purge(q, 1)
	if q.Traits().PurgeCooldown == 0 {
		e.purge(q, 0)
		e.send(q, "b")
		e.purge(q, 1)
		return
	}
	e.send(q, "b")
	_, err := q.Purge(e.ctx())
	e.expectFull(err, "a second purge within the cool-down")
	e.expectNext(q, "b")
}
