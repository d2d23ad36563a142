package drivertest

import (
	"github.com/mailboxmq/mailbox/driver"
)

var countCases = []testCase{
	{id: "CNT-1", title: "stats follow a message through its life", needs: []need{needExactStats}, run: statsFollowALife},
	{id: "CNT-1", title: "stats follow the clock although nobody sweeps", needs: []need{needExactStats}, run: statsFollowTheClock},
	{id: "CNT-1", title: "the waiting count is ready, delayed and in flight", run: waitingIsTheSum},
	{id: "CNT-1", title: "stats of a new queue are zero", run: newQueueIsEmpty},

	{id: "CNT-3", title: "purge removes ready, delayed and in-flight messages and says how many", run: purgeRemovesAll},
	{id: "CNT-3", title: "receipts of purged messages expire", run: purgeExpiresReceipts},
	{id: "CNT-3", title: "purge leaves the dead letters", needs: []need{needDeadLetters}, run: purgeLeavesDeadLetters},
	{id: "CNT-3", title: "a purged queue works on", run: purgedQueueWorksOn},
	{id: "CNT-3", title: "purge of one queue leaves others", run: purgeLeavesOtherQueues},
	{id: "CNT-3", title: "a second purge works, or says when it will", run: secondPurge},
}

func statsFollowALife(s *session, q driver.Queue) {
	s.send(q, "a", "b", "c")
	s.expectStats(q, driver.Stats{Ready: 3})
	s.sendLater(q, s.hold, "d")
	s.expectStats(q, driver.Stats{Ready: 3, Delayed: 1})
	held := s.receive(q, 3)
	s.expectStats(q, driver.Stats{Delayed: 1, InFlight: 3})
	s.nack(q, held[0], 0, "")
	s.expectStats(q, driver.Stats{Ready: 1, Delayed: 1, InFlight: 2})
	s.nack(q, held[1], s.hold, "")
	s.expectStats(q, driver.Stats{Ready: 1, Delayed: 2, InFlight: 1})
	s.extend(q, held[2], s.hold)
	s.expectStats(q, driver.Stats{Ready: 1, Delayed: 2, InFlight: 1})
	s.ack(q, held[2])
	s.expectStats(q, driver.Stats{Ready: 1, Delayed: 2})
}

func statsFollowTheClock(s *session, q driver.Queue) {
	s.sendLater(q, s.tick, "delayed")
	s.sleep(s.tick)
	s.expectStats(q, driver.Stats{Ready: 1})
	s.receiveFor(q, 1, s.tick)
	s.sleep(s.tick)
	s.expectStats(q, driver.Stats{Ready: 1})
	s.nack(q, s.receive(q, 1)[0], s.tick, "")
	s.sleep(s.tick)
	s.expectStats(q, driver.Stats{Ready: 1})
}

func waitingIsTheSum(s *session, q driver.Queue) {
	s.send(q, "a", "b")
	s.receive(q, 1)
	s.sendLater(q, s.hold, "c")
	got, err := q.Stats(s.ctx())
	s.ok(err, "stats")
	if q.Traits().ExactStats && got.Waiting() != 3 {
		s.failf("one ready, one delayed, one in flight: got %d waiting of %+v, want 3", got.Waiting(), got)
	}
}

func newQueueIsEmpty(s *session, q driver.Queue) {
	s.expectEmpty(q)
}

// purge purges, and checks the answer.
func (s *session) purge(q driver.Queue, want int) {
	s.t.Helper()
	removed, err := q.Purge(s.ctx())
	s.ok(err, "purge")
	if q.Traits().ExactStats && removed != want {
		s.failf("purge: got %d removed, want %d", removed, want)
	}
}

func purgeRemovesAll(s *session, q driver.Queue) {
	s.send(q, "a", "b", "c")
	s.receive(q, 1)
	s.sendLater(q, s.hold, "d")
	s.purge(q, 4)
	s.expectEmpty(q)
	if s.backend.Virtual {
		s.sleep(2 * s.hold) // nothing is left that could come due
		s.expectEmpty(q)
	}
}

func purgeExpiresReceipts(s *session, q driver.Queue) {
	s.send(q, "a")
	held := s.receive(q, 1)[0]
	s.purge(q, 1)
	s.expectExpired(q, held, "the receipt of a purged message")
	s.expectEmpty(q)
}

func purgeLeavesDeadLetters(s *session, q driver.Queue) {
	s.send(q, "dead", "ready")
	held := s.expectBodies(q, s.receive(q, 2), "dead", "ready")
	s.bury(q, held[0], driver.ReasonFatal)
	s.expire(q, held[1])
	s.purge(q, 1)
	s.expectStats(q, driver.Stats{Dead: 1})
	s.expectDead(q, "dead")
}

func purgedQueueWorksOn(s *session, q driver.Queue) {
	s.send(q, "a", "b")
	s.purge(q, 2)
	waiting := s.receiveInBackground(s.ctx(), q, 1)
	s.send(q, "c")
	got := s.expectHandedTo(waiting, "c", "send after a purge")
	if got.Deliveries != 1 {
		s.failf("delivery after a purge: got Deliveries %d, want 1", got.Deliveries)
	}
	s.ack(q, got)
}

func purgeLeavesOtherQueues(s *session, q driver.Queue) {
	other := s.open("invoices")
	s.send(q, "a")
	s.send(other, "b")
	s.purge(q, 1)
	s.expectStats(other, driver.Stats{Ready: 1})
	s.expectNext(other, "b")
}

func secondPurge(s *session, q driver.Queue) {
	s.send(q, "a")
	s.purge(q, 1)
	if q.Traits().PurgeCooldown == 0 {
		s.purge(q, 0)
		s.send(q, "b")
		s.purge(q, 1)
		return
	}
	s.send(q, "b")
	_, err := q.Purge(s.ctx())
	s.expectFull(err, "a second purge within the cool-down")
	s.expectNext(q, "b")
}
