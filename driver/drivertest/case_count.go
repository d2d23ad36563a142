package drivertest

import (
	"github.com/mailboxmq/mailbox/driver"
)

var countCases = []testCase{
	{id: "CNT-1", title: "the waiting count is ready, delayed and in flight", run: waitingIsTheSum},

	{id: "CNT-3", title: "a second purge works, or says when it will", run: secondPurge},
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

// purge purges the queue and checks the returned count.
func (e *env) purge(q driver.Queue, want int) {
	e.t.Helper()
	removed, err := q.Purge(e.ctx())
	e.ok(err, "purge")
	if q.Traits().ExactStats && removed != want {
		e.failf("purge: got %d removed, want %d", removed, want)
	}
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
