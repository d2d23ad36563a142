package drivertest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mailboxmq/mailbox/driver"
)

var lateAckNeeds = []need{needLateAck}

var lateAckCases = []testCase{
	{id: "VIS-7", title: "in time it is an ack like any other", needs: lateAckNeeds, run: lateAckInTime},
	{id: "VIS-7", title: "past the deadline it removes a message that nobody got since", needs: lateAckNeeds, run: lateAckOfExpired},
	{id: "VIS-7", title: "the receipt of an earlier delivery removes the message, and the later receipt expires", needs: lateAckNeeds, run: lateAckOfSuperseded},
	{id: "VIS-7", title: "every earlier receipt is as good", needs: lateAckNeeds, run: lateAckOfAnyDelivery},
	{id: "VIS-7", title: "what is settled stays settled", needs: lateAckNeeds, run: lateAckOfSettled},
	{id: "VIS-7", title: "a nacked message is in another place, and stays", needs: lateAckNeeds, run: lateAckOfNacked},
	{id: "VIS-7", title: "a message nacked with a delay stays", needs: lateAckNeeds, run: lateAckOfDelayed},
	{
		id: "VIS-7", title: "a dead letter stays, and so does one that was redriven",
		config: always(driver.Config{MaxDeliveries: 1}), needs: []need{needLateAck, needDeadLetters}, run: lateAckOfDead,
	},
	{id: "VIS-7", title: "a purged message is not there to be acked", needs: lateAckNeeds, run: lateAckOfPurged},
	{id: "VIS-7", title: "unknown, changed and foreign receipts fail", needs: lateAckNeeds, run: lateAckOfForged},
	{id: "VIS-7", title: "positions are kept", needs: lateAckNeeds, run: lateAckKeepsPositions},
	{id: "VIS-7", title: "the others keep their order", needs: []need{needLateAck, needFIFO}, run: lateAckKeepsOrder},
	{id: "VIS-7", title: "many are removed in any order, and counts are exact", needs: lateAckNeeds, run: manyLateAcks},
	{
		id: "VIS-7", title: "it is found in its shard", config: always(driver.Config{Shards: 4}),
		needs: lateAckNeeds, run: manyLateAcks,
	},
	{
		id: "VIS-7", title: "it makes room",
		config: always(driver.Config{MaxMessages: 1, MaxBytes: 3, MaxInFlight: 1}), needs: lateAckNeeds, run: lateAckMakesRoom,
	},
	{id: "VIS-7", title: "in a strict group it lets the next go", config: strict, needs: lateAckNeeds, run: lateAckFreesGroup},
	{id: "VIS-7", title: "in a strict group it lets the next go to who waits", config: strict, needs: lateAckNeeds, run: lateAckWakesGroup},
	{
		id: "VIS-7", title: "what is too many is judged without it", config: always(driver.Config{RetainReady: driver.Retention{Count: 2}}),
		needs: []need{needLateAck, needDeadLetters}, run: lateAckAndRetention,
	},
	{id: "VIS-7", title: "the dedup window stays", needs: []need{needLateAck, needDedup}, run: lateAckLeavesKeys},
	{id: "VIS-7", title: "of two late acks at once exactly one removes", needs: lateAckNeeds, run: lateAcksRace},
	{id: "VIS-7", title: "a closed handle acks nothing", needs: lateAckNeeds, run: closedHandleAcksNothing},
}

func tryLateAck(s *session, q driver.Queue, d driver.Delivery) error {
	return q.AckLate(s.ctx(), []driver.Receipt{d.Receipt})
}

func (s *session) lateAck(q driver.Queue, d driver.Delivery) {
	s.t.Helper()
	s.ok(tryLateAck(s, q, d), "late ack of %q", brief(d.Body))
}

// expectTooLate checks that a receipt is too late even for AckLate, where there
// is one.
func (s *session) expectTooLate(q driver.Queue, d driver.Delivery, which string) {
	s.t.Helper()
	if q.Traits().LateAck {
		s.expectCode(tryLateAck(s, q, d), driver.ErrReceiptExpired, "late ack with %s", which)
	}
}

func lateAckInTime(s *session, q driver.Queue) {
	s.send(q, "a", "b")
	held := s.expectNext(q, "a")[0]
	s.lateAck(q, held)
	s.expectStats(q, driver.Stats{Ready: 1})
	s.expectExpired(q, held, "the receipt of an acked message")
	s.expectNext(q, "b")
}

func lateAckOfExpired(s *session, q driver.Queue) {
	s.send(q, "a", "b")
	held := s.expectBodies(q, s.receiveFor(q, 2, s.tick), "a", "b")
	s.sleep(s.tick) // and nobody calls anything meanwhile
	s.lateAck(q, held[0])
	s.expectStats(q, driver.Stats{Ready: 1})
	s.expectCode(tryAck(s, q, held[1]), driver.ErrReceiptExpired, "ack past the deadline")
	s.lateAck(q, held[1])
	s.expectEmpty(q)
}

func lateAckOfSuperseded(s *session, q driver.Queue) {
	s.send(q, "a")
	first := s.receive(q, 1)[0]
	s.expire(q, first)
	second := s.receive(q, 1)[0]
	s.lateAck(q, first)
	s.expectEmpty(q)
	s.expectExpired(q, second, "the later receipt of a message that was acked late")
	s.expectTooLate(q, second, "the later receipt of a message that was acked late")
	s.expectEmpty(q)
}

func lateAckOfAnyDelivery(s *session, q driver.Queue) {
	for which := range 3 {
		s.send(q, "a")
		var held []driver.Delivery
		for range 3 {
			d := s.receive(q, 1)[0]
			held = append(held, d)
			s.expire(q, d)
		}
		s.lateAck(q, held[which])
		s.expectEmpty(q)
		for _, d := range held {
			s.expectTooLate(q, d, "a receipt of a message that was acked late")
		}
	}
}

func lateAckOfSettled(s *session, q driver.Queue) {
	s.send(q, "a", "b")
	held := s.expectBodies(q, s.receive(q, 2), "a", "b")
	s.ack(q, held[0])
	s.expectTooLate(q, held[0], "the receipt of an acked message")
	s.lateAck(q, held[1])
	s.expectTooLate(q, held[1], "the receipt of a message that was acked late")
	s.expectEmpty(q)
}

func lateAckOfNacked(s *session, q driver.Queue) {
	s.send(q, "a")
	early := s.receive(q, 1)[0]
	s.expire(q, early)
	first := s.receive(q, 1)[0]
	s.nack(q, first, 0, "not mine")
	s.expectTooLate(q, first, "the receipt of a nacked message")
	s.expectTooLate(q, early, "a receipt from before a nack")
	s.expectStats(q, driver.Stats{Ready: 1})

	second := s.receive(q, 1)[0]
	s.expectTooLate(q, first, "the receipt of a nacked message that was delivered again")
	s.expectStats(q, driver.Stats{InFlight: 1})
	s.extend(q, second, s.hold) // the new holder holds as before
	s.expire(q, second)
	s.expectTooLate(q, early, "a receipt from before a nack")
	s.lateAck(q, second)
	s.expectEmpty(q)
}

func lateAckOfDelayed(s *session, q driver.Queue) {
	s.send(q, "a")
	held := s.receive(q, 1)[0]
	s.nack(q, held, 2*s.tick, "later")
	s.expectTooLate(q, held, "the receipt of a message that was nacked with a delay")
	s.expectStats(q, driver.Stats{Delayed: 1})
	s.sleep(2 * s.tick)
	s.expectTooLate(q, held, "the receipt of a message that was nacked with a delay")
	s.expectNext(q, "a")
}

func lateAckOfDead(s *session, q driver.Queue) {
	s.send(q, "a")
	held := s.receiveFor(q, 1, s.tick)[0]
	s.sleep(s.tick)
	s.expectTooLate(q, held, "the receipt of a dead letter")
	s.expectStats(q, driver.Stats{Dead: 1})
	s.redrive(q, nil, 0, 1)
	s.expectTooLate(q, held, "a receipt from before a redrive")
	s.expectStats(q, driver.Stats{Ready: 1})
	again := s.receive(q, 1)[0]
	s.expectTooLate(q, held, "a receipt from before a redrive")
	s.ack(q, again)
	s.expectEmpty(q)
}

func lateAckOfPurged(s *session, q driver.Queue) {
	s.send(q, "a", "b")
	held := s.receive(q, 2)
	s.expire(q, held[0])
	s.purge(q, 2)
	for _, d := range held {
		s.expectTooLate(q, d, "the receipt of a purged message")
	}
	s.send(q, "c")
	for _, d := range held {
		s.expectTooLate(q, d, "the receipt of a purged message")
	}
	s.expectNext(q, "c")
}

func lateAckOfForged(s *session, q driver.Queue) {
	other := s.open("invoices")
	s.send(q, "a", "b")
	s.send(other, "a", "b")
	held, foreign := s.expectNext(q, "a", "b"), s.expectNext(other, "a", "b")
	s.expire(q, held[0])
	s.expire(other, foreign[0])
	for i := range held {
		s.expectTooLate(q, foreign[i], "a receipt of another queue")
		s.expectTooLate(other, held[i], "a receipt of another queue")
		for bit := range 64 {
			changed := held[i]
			if changed.Receipt.Nonce != 0 {
				changed.Receipt.Nonce ^= 1 << bit
				s.expectTooLate(q, changed, fmt.Sprintf("bit %d of the nonce changed", bit))
			}
			changed = held[i]
			if changed.Receipt.Place != 0 {
				changed.Receipt.Place ^= 1 << bit
				s.expectTooLate(q, changed, fmt.Sprintf("bit %d of the place changed", bit))
			}
		}
		changed := held[i]
		changed.Receipt.Handle += "x"
		s.expectTooLate(q, changed, "a changed handle")
	}
	s.expectTooLate(q, driver.Delivery{}, "a zero receipt")
	s.expectTooLate(q, driver.Delivery{Receipt: driver.Receipt{Handle: "made up", Place: 1, Nonce: 1}}, "a made-up receipt")
	s.expectStats(q, driver.Stats{Ready: 1, InFlight: 1})
	s.lateAck(q, held[0])
	s.lateAck(q, held[1])
	s.expectEmpty(q)
}

func lateAckKeepsPositions(s *session, q driver.Queue) {
	s.send(q, "a", "b", "c")
	held := s.expectNext(q, "a", "b", "c")
	s.expire(q, held[1])
	s.nack(q, held[2], 0, "")
	err := q.AckLate(s.ctx(), []driver.Receipt{
		held[0].Receipt, {Handle: "made up"}, held[1].Receipt, held[2].Receipt, held[0].Receipt, held[1].Receipt,
	})
	s.expectPositions(err, "late ack", fine, driver.ErrReceiptExpired, fine,
		driver.ErrReceiptExpired, driver.ErrReceiptExpired, driver.ErrReceiptExpired)
	s.expectStats(q, driver.Stats{Ready: 1})
	s.ok(q.AckLate(s.ctx(), nil), "late ack of nothing")
	s.expectNext(q, "c")
}

func lateAckKeepsOrder(s *session, q driver.Queue) {
	s.send(q, "a", "b", "c", "d")
	held := s.expectNext(q, "a", "b", "c")
	s.expire(q, held[2], held[0], held[1])
	s.lateAck(q, held[1])
	s.expectNext(q, "a", "c", "d")
}

func manyLateAcks(s *session, q driver.Queue) {
	n := s.rounds(500, 100)
	s.send(q, numbered("m", n)...)
	held := s.receive(q, n)
	for i, d := range held {
		if i%3 > 0 { // the others are still in flight
			s.expire(q, d)
		}
	}
	slices.Reverse(held)
	for i, d := range held[:n-10] {
		s.lateAck(q, d)
		stats, err := q.Stats(s.ctx())
		s.ok(err, "stats")
		if left := n - i - 1; q.Traits().ExactStats && stats.Waiting() != left {
			s.failf("after %d late acks of %d messages: %d wait, want %d", i+1, n, stats.Waiting(), left)
		}
	}
	s.expire(q, held[n-1], held[n-4], held[n-7], held[n-10])
	s.expectStats(q, driver.Stats{Ready: 10})
	s.receive(q, 10)
	for _, d := range held[n-10:] {
		s.lateAck(q, d)
	}
	s.expectEmpty(q)
}

func lateAckMakesRoom(s *session, q driver.Queue) {
	s.send(q, "abc")
	held := s.receive(q, 1)[0]
	s.expire(q, held)
	s.expectFull(trySend(s, q, "d"), "send to a full queue")
	s.lateAck(q, held)
	s.send(q, "def")
	first := s.receive(q, 1)[0]
	s.expire(q, first)
	s.receive(q, 1)
	s.lateAck(q, first)
	s.send(q, "ghi")
	s.expectNext(q, "ghi")
}

func lateAckFreesGroup(s *session, q driver.Queue) {
	s.sendTo(q, "g", "g1", "g2", "g3", "g4")
	first := s.expectAlone(q, "g1")
	s.expire(q, first)
	s.lateAck(q, first) // while it is ready
	first = s.expectAlone(q, "g2")
	s.expire(q, first)
	s.expectAlone(q, "g2")
	s.expectNothing(q)
	s.lateAck(q, first) // while it is out again
	s.expectStats(q, driver.Stats{Ready: 2})
	first = s.expectAlone(q, "g3")
	s.expire(q, first)
	s.expectBodies(q, s.receive(q, 2), "g3", "g4") // in one batch
	s.lateAck(q, first)
	s.expectStats(q, driver.Stats{InFlight: 1})
	s.sendTo(q, "g", "g5")
	s.expectNothing(q) // g4 is out
}

func lateAckWakesGroup(s *session, q driver.Queue) {
	s.sendTo(q, "g", "g1", "g2")
	first := s.expectAlone(q, "g1")
	s.expire(q, first)
	s.expectAlone(q, "g1")
	waiting := s.receiveInBackground(s.ctx(), q, 1)
	s.lateAck(q, first)
	s.expectHandedTo(waiting, "g2", "a late ack")
}

func lateAckAndRetention(s *session, q driver.Queue) {
	s.send(q, "a", "b")
	held := s.expectNext(q, "a")[0]
	s.expire(q, held)
	s.lateAck(q, held)
	s.send(q, "c") // b and c are as many as may wait
	s.expectStats(q, driver.Stats{Ready: 2})
	s.send(q, "d")
	s.expectStats(q, driver.Stats{Ready: 2, Dead: 1})
	s.expectExpiredLetter(q, "b", driver.ReasonExpired)
	s.expectNext(q, "c", "d")
}

func lateAckLeavesKeys(s *session, q driver.Queue) {
	id := s.expectFresh(q, keyed("key", "body"), "for the first time")
	held := s.receive(q, 1)[0]
	s.expire(q, held)
	s.lateAck(q, held)
	s.expectDuplicate(q, keyed("key", "body"), id, "after a late ack")
	s.expectEmpty(q)
}

// lateAcksRace has one who holds the message now and one who held it before.
func lateAcksRace(s *session, q driver.Queue) {
	for range s.rounds(100, 10) {
		s.send(q, "a")
		first := s.receive(q, 1)[0]
		s.expire(q, first)
		second := s.receive(q, 1)[0]
		removed := make([]bool, 4)
		s.parallel(len(removed), func(i int) error {
			d := first
			if i%2 == 1 {
				d = second
			}
			err := tryLateAck(s, q, d)
			removed[i] = err == nil
			if err != nil && !errors.Is(err, driver.ErrReceiptExpired) {
				return err
			}
			return nil
		})
		winners := 0
		for _, won := range removed {
			if won {
				winners++
			}
		}
		if winners != 1 {
			s.failf("%d late acks at once: %d of them removed the message, want 1", len(removed), winners)
		}
		s.expectEmpty(q)
	}
}

func closedHandleAcksNothing(s *session, q driver.Queue) {
	s.send(q, "a")
	held := s.receive(q, 1)[0]
	closed := s.open(queueName)
	s.ok(closed.Close(), "close")
	s.expectClosed(tryLateAck(s, closed, held), "late ack on a closed handle")
	s.expectStats(q, driver.Stats{InFlight: 1})
	s.ack(q, held)
}

func lateAckSurvives(s *session, q driver.Queue, how Crash) {
	s.send(q, "a", "b", "c")
	held := s.expectNext(q, "a", "b")
	s.expire(q, held...)
	s.expectNext(q, "a")
	s.lateAck(q, held[0])
	s.lateAck(q, held[1])
	q = s.restart(how)
	s.expectStats(q, driver.Stats{Ready: 1})
	for _, d := range held {
		s.expectTooLate(q, d, fmt.Sprintf("the receipt of a message that was acked late, after %v", how))
	}
	s.expectNext(q, "c")
}

func lateReceiptSurvives(s *session, q driver.Queue, how Crash) {
	s.send(q, "a", "b", "c")
	held := s.expectNext(q, "a", "b", "c")
	s.expire(q, held[0], held[1])
	s.nack(q, held[2], 0, "")
	s.expectNext(q, "a")
	q = s.restart(how)
	s.expectTooLate(q, held[2], "the receipt of a nacked message after a restart")
	s.lateAck(q, held[0])
	s.lateAck(q, held[1])
	s.expectStats(q, driver.Stats{Ready: 1})
	s.expectNext(q, "c")
}
