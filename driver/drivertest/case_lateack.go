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
	{id: "VIS-7", title: "past the deadline it removes a message that was not delivered since", needs: lateAckNeeds, run: lateAckOfExpired},
	{id: "VIS-7", title: "the receipt of an earlier delivery removes the message, and the later receipt expires", needs: lateAckNeeds, run: lateAckOfSuperseded},
	{id: "VIS-7", title: "every earlier receipt works", needs: lateAckNeeds, run: lateAckOfAnyDelivery},
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
	{id: "VIS-7", title: "in a strict group it wakes a receiver for the next", config: strict, needs: lateAckNeeds, run: lateAckWakesGroup},
	{
		id: "VIS-7", title: "retention by count does not count it", config: always(driver.Config{RetainReady: driver.Retention{Count: 2}}),
		needs: []need{needLateAck, needDeadLetters}, run: lateAckAndRetention,
	},
	{id: "VIS-7", title: "the dedup window stays", needs: []need{needLateAck, needDedup}, run: lateAckLeavesKeys},
	{id: "VIS-7", title: "of two late acks at once exactly one removes", needs: lateAckNeeds, run: lateAcksRace},
	{id: "VIS-7", title: "a closed handle acks nothing", needs: lateAckNeeds, run: closedHandleAcksNothing},
}

func tryLateAck(e *env, q driver.Queue, d driver.Delivery) error {
	return q.AckLate(e.ctx(), []driver.Receipt{d.Receipt})
}

func (e *env) lateAck(q driver.Queue, d driver.Delivery) {
	e.t.Helper()
	e.ok(tryLateAck(e, q, d), "late ack of %q", brief(d.Body))
}

// expectTooLate checks that a receipt is too late even for AckLate, if the queue supports it.
func (e *env) expectTooLate(q driver.Queue, d driver.Delivery, which string) {
	e.t.Helper()
	if q.Traits().LateAck {
		e.expectCode(tryLateAck(e, q, d), driver.ErrReceiptExpired, "late ack with %s", which)
	}
}

func lateAckInTime(e *env, q driver.Queue) {
	e.send(q, "a", "b")
	held := e.expectNext(q, "a")[0]
	e.lateAck(q, held)
	e.expectStats(q, driver.Stats{Ready: 1})
	e.expectExpired(q, held, "the receipt of an acked message")
	e.expectNext(q, "b")
}

func lateAckOfExpired(e *env, q driver.Queue) {
	e.send(q, "a", "b")
	held := e.expectBodies(q, e.receiveFor(q, 2, e.tick), "a", "b")
	e.sleep(e.tick) // without any call
	e.lateAck(q, held[0])
	e.expectStats(q, driver.Stats{Ready: 1})
	e.expectCode(tryAck(e, q, held[1]), driver.ErrReceiptExpired, "ack past the deadline")
	e.lateAck(q, held[1])
	e.expectEmpty(q)
}

func lateAckOfSuperseded(e *env, q driver.Queue) {
	e.send(q, "a")
	first := e.receive(q, 1)[0]
	e.expire(q, first)
	second := e.receive(q, 1)[0]
	e.lateAck(q, first)
	e.expectEmpty(q)
	e.expectExpired(q, second, "the later receipt of a message that was acked late")
	e.expectTooLate(q, second, "the later receipt of a message that was acked late")
	e.expectEmpty(q)
}

func lateAckOfAnyDelivery(e *env, q driver.Queue) {
	for which := range 3 {
		e.send(q, "a")
		var held []driver.Delivery
		for range 3 {
			d := e.receive(q, 1)[0]
			held = append(held, d)
			e.expire(q, d)
		}
		e.lateAck(q, held[which])
		e.expectEmpty(q)
		for _, d := range held {
			e.expectTooLate(q, d, "a receipt of a message that was acked late")
		}
	}
}

func lateAckOfSettled(e *env, q driver.Queue) {
	e.send(q, "a", "b")
	held := e.expectBodies(q, e.receive(q, 2), "a", "b")
	e.ack(q, held[0])
	e.expectTooLate(q, held[0], "the receipt of an acked message")
	e.lateAck(q, held[1])
	e.expectTooLate(q, held[1], "the receipt of a message that was acked late")
	e.expectEmpty(q)
}

func lateAckOfNacked(e *env, q driver.Queue) {
	e.send(q, "a")
	early := e.receive(q, 1)[0]
	e.expire(q, early)
	first := e.receive(q, 1)[0]
	e.nack(q, first, 0, "not mine")
	e.expectTooLate(q, first, "the receipt of a nacked message")
	e.expectTooLate(q, early, "a receipt from before a nack")
	e.expectStats(q, driver.Stats{Ready: 1})

	second := e.receive(q, 1)[0]
	e.expectTooLate(q, first, "the receipt of a nacked message that was delivered again")
	e.expectStats(q, driver.Stats{InFlight: 1})
	e.extend(q, second, e.hold) // the new lease is untouched
	e.expire(q, second)
	e.expectTooLate(q, early, "a receipt from before a nack")
	e.lateAck(q, second)
	e.expectEmpty(q)
}

func lateAckOfDelayed(e *env, q driver.Queue) {
	e.send(q, "a")
	held := e.receive(q, 1)[0]
	e.nack(q, held, 2*e.tick, "later")
	e.expectTooLate(q, held, "the receipt of a message that was nacked with a delay")
	e.expectStats(q, driver.Stats{Delayed: 1})
	e.sleep(2 * e.tick)
	e.expectTooLate(q, held, "the receipt of a message that was nacked with a delay")
	e.expectNext(q, "a")
}

func lateAckOfDead(e *env, q driver.Queue) {
	e.send(q, "a")
	held := e.receiveFor(q, 1, e.tick)[0]
	e.sleep(e.tick)
	e.expectTooLate(q, held, "the receipt of a dead letter")
	e.expectStats(q, driver.Stats{Dead: 1})
	e.redrive(q, nil, 0, 1)
	e.expectTooLate(q, held, "a receipt from before a redrive")
	e.expectStats(q, driver.Stats{Ready: 1})
	again := e.receive(q, 1)[0]
	e.expectTooLate(q, held, "a receipt from before a redrive")
	e.ack(q, again)
	e.expectEmpty(q)
}

func lateAckOfPurged(e *env, q driver.Queue) {
	e.send(q, "a", "b")
	held := e.receive(q, 2)
	e.expire(q, held[0])
	e.purge(q, 2)
	for _, d := range held {
		e.expectTooLate(q, d, "the receipt of a purged message")
	}
	e.send(q, "c")
	for _, d := range held {
		e.expectTooLate(q, d, "the receipt of a purged message")
	}
	e.expectNext(q, "c")
}

func lateAckOfForged(e *env, q driver.Queue) {
	other := e.open("invoices")
	e.send(q, "a", "b")
	e.send(other, "a", "b")
	held, foreign := e.expectNext(q, "a", "b"), e.expectNext(other, "a", "b")
	e.expire(q, held[0])
	e.expire(other, foreign[0])
	for i := range held {
		e.expectTooLate(q, foreign[i], "a receipt of another queue")
		e.expectTooLate(other, held[i], "a receipt of another queue")
		for bit := range 64 {
			changed := held[i]
			if changed.Receipt.Nonce != 0 {
				changed.Receipt.Nonce ^= 1 << bit
				e.expectTooLate(q, changed, fmt.Sprintf("bit %d of the nonce changed", bit))
			}
			changed = held[i]
			if changed.Receipt.Place != 0 {
				changed.Receipt.Place ^= 1 << bit
				e.expectTooLate(q, changed, fmt.Sprintf("bit %d of the place changed", bit))
			}
		}
		changed := held[i]
		changed.Receipt.Handle += "x"
		e.expectTooLate(q, changed, "a changed handle")
	}
	e.expectTooLate(q, driver.Delivery{}, "a zero receipt")
	e.expectTooLate(q, driver.Delivery{Receipt: driver.Receipt{Handle: "made up", Place: 1, Nonce: 1}}, "a made-up receipt")
	e.expectStats(q, driver.Stats{Ready: 1, InFlight: 1})
	e.lateAck(q, held[0])
	e.lateAck(q, held[1])
	e.expectEmpty(q)
}

func lateAckKeepsPositions(e *env, q driver.Queue) {
	e.send(q, "a", "b", "c")
	held := e.expectNext(q, "a", "b", "c")
	e.expire(q, held[1])
	e.nack(q, held[2], 0, "")
	err := q.AckLate(e.ctx(), []driver.Receipt{
		held[0].Receipt, {Handle: "made up"}, held[1].Receipt, held[2].Receipt, held[0].Receipt, held[1].Receipt,
	})
	e.expectPositions(err, "late ack", fine, driver.ErrReceiptExpired, fine,
		driver.ErrReceiptExpired, driver.ErrReceiptExpired, driver.ErrReceiptExpired)
	e.expectStats(q, driver.Stats{Ready: 1})
	e.ok(q.AckLate(e.ctx(), nil), "late ack of nothing")
	e.expectNext(q, "c")
}

func lateAckKeepsOrder(e *env, q driver.Queue) {
	e.send(q, "a", "b", "c", "d")
	held := e.expectNext(q, "a", "b", "c")
	e.expire(q, held[2], held[0], held[1])
	e.lateAck(q, held[1])
	e.expectNext(q, "a", "c", "d")
}

func manyLateAcks(e *env, q driver.Queue) {
	n := e.rounds(500, 100)
	e.send(q, numbered("m", n)...)
	held := e.receive(q, n)
	for i, d := range held {
		if i%3 > 0 { // the others are still in flight
			e.expire(q, d)
		}
	}
	slices.Reverse(held)
	for i, d := range held[:n-10] {
		e.lateAck(q, d)
		stats, err := q.Stats(e.ctx())
		e.ok(err, "stats")
		if left := n - i - 1; q.Traits().ExactStats && stats.Waiting() != left {
			e.failf("after %d late acks of %d messages: %d wait, want %d", i+1, n, stats.Waiting(), left)
		}
	}
	e.expire(q, held[n-1], held[n-4], held[n-7], held[n-10])
	e.expectStats(q, driver.Stats{Ready: 10})
	e.receive(q, 10)
	for _, d := range held[n-10:] {
		e.lateAck(q, d)
	}
	e.expectEmpty(q)
}

func lateAckMakesRoom(e *env, q driver.Queue) {
	e.send(q, "abc")
	held := e.receive(q, 1)[0]
	e.expire(q, held)
	e.expectFull(trySend(e, q, "d"), "send to a full queue")
	e.lateAck(q, held)
	e.send(q, "def")
	first := e.receive(q, 1)[0]
	e.expire(q, first)
	e.receive(q, 1)
	e.lateAck(q, first)
	e.send(q, "ghi")
	e.expectNext(q, "ghi")
}

func lateAckFreesGroup(e *env, q driver.Queue) {
	e.sendTo(q, "g", "g1", "g2", "g3", "g4")
	first := e.expectAlone(q, "g1")
	e.expire(q, first)
	e.lateAck(q, first) // while it is ready
	first = e.expectAlone(q, "g2")
	e.expire(q, first)
	e.expectAlone(q, "g2")
	e.expectNothing(q)
	e.lateAck(q, first) // while it is in flight again
	e.expectStats(q, driver.Stats{Ready: 2})
	first = e.expectAlone(q, "g3")
	e.expire(q, first)
	e.expectBodies(q, e.receive(q, 2), "g3", "g4") // in one batch
	e.lateAck(q, first)
	e.expectStats(q, driver.Stats{InFlight: 1})
	e.sendTo(q, "g", "g5")
	e.expectNothing(q) // g4 is in flight
}

func lateAckWakesGroup(e *env, q driver.Queue) {
	e.sendTo(q, "g", "g1", "g2")
	first := e.expectAlone(q, "g1")
	e.expire(q, first)
	e.expectAlone(q, "g1")
	waiting := e.receiveInBackground(e.ctx(), q, 1)
	e.lateAck(q, first)
	e.expectHandedTo(waiting, "g2", "a late ack")
}

func lateAckAndRetention(e *env, q driver.Queue) {
	e.send(q, "a", "b")
	held := e.expectNext(q, "a")[0]
	e.expire(q, held)
	e.lateAck(q, held)
	e.send(q, "c") // b and c reach the bound
	e.expectStats(q, driver.Stats{Ready: 2})
	e.send(q, "d")
	e.expectStats(q, driver.Stats{Ready: 2, Dead: 1})
	e.expectExpiredLetter(q, "b", driver.ReasonExpired)
	e.expectNext(q, "c", "d")
}

func lateAckLeavesKeys(e *env, q driver.Queue) {
	id := e.expectFresh(q, keyed("key", "body"), "for the first time")
	held := e.receive(q, 1)[0]
	e.expire(q, held)
	e.lateAck(q, held)
	e.expectDuplicate(q, keyed("key", "body"), id, "after a late ack")
	e.expectEmpty(q)
}

// lateAcksRace races the current receipt of a message against an earlier one.
func lateAcksRace(e *env, q driver.Queue) {
	for range e.rounds(100, 10) {
		e.send(q, "a")
		first := e.receive(q, 1)[0]
		e.expire(q, first)
		second := e.receive(q, 1)[0]
		removed := make([]bool, 4)
		e.parallel(len(removed), func(i int) error {
			d := first
			if i%2 == 1 {
				d = second
			}
			err := tryLateAck(e, q, d)
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
			e.failf("%d late acks at once: %d of them removed the message, want 1", len(removed), winners)
		}
		e.expectEmpty(q)
	}
}

func closedHandleAcksNothing(e *env, q driver.Queue) {
	e.send(q, "a")
	held := e.receive(q, 1)[0]
	closed := e.open(queueName)
	e.ok(closed.Close(), "close")
	e.expectClosed(tryLateAck(e, closed, held), "late ack on a closed handle")
	e.expectStats(q, driver.Stats{InFlight: 1})
	e.ack(q, held)
}

func lateAckSurvives(e *env, q driver.Queue, how Crash) {
	e.send(q, "a", "b", "c")
	held := e.expectNext(q, "a", "b")
	e.expire(q, held...)
	e.expectNext(q, "a")
	e.lateAck(q, held[0])
	e.lateAck(q, held[1])
	q = e.restart(how)
	e.expectStats(q, driver.Stats{Ready: 1})
	for _, d := range held {
		e.expectTooLate(q, d, fmt.Sprintf("the receipt of a message that was acked late, after %v", how))
	}
	e.expectNext(q, "c")
}

func lateReceiptSurvives(e *env, q driver.Queue, how Crash) {
	e.send(q, "a", "b", "c")
	held := e.expectNext(q, "a", "b", "c")
	e.expire(q, held[0], held[1])
	e.nack(q, held[2], 0, "")
	e.expectNext(q, "a")
	q = e.restart(how)
	e.expectTooLate(q, held[2], "the receipt of a nacked message after a restart")
	e.lateAck(q, held[0])
	e.lateAck(q, held[1])
	e.expectStats(q, driver.Stats{Ready: 1})
	e.expectNext(q, "c")
}
