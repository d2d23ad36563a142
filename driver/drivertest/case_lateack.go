package drivertest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mailboxmq/mailbox/driver"
)

var lateAckNeeds = []need{needLateAck}

var lateAckCases = []testCase{
	{id: "VIS-7", title: "every earlier receipt works", needs: lateAckNeeds, run: lateAckOfAnyDelivery},
	{id: "VIS-7", title: "unknown, changed and foreign receipts fail", needs: lateAckNeeds, run: lateAckOfForged},
	{id: "VIS-7", title: "many are removed in any order, and counts are exact", needs: lateAckNeeds, run: manyLateAcks},
	{
		id: "VIS-7", title: "it is found in its shard", config: always(driver.Config{Shards: 4}),
		needs: lateAckNeeds, run: manyLateAcks,
	},
	{id: "VIS-7", title: "in a strict group it wakes a receiver for the next", config: strict, needs: lateAckNeeds, run: lateAckWakesGroup},
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

func lateAckWakesGroup(e *env, q driver.Queue) {
	e.sendTo(q, "g", "g1", "g2")
	first := e.expectAlone(q, "g1")
	e.expire(q, first)
	e.expectAlone(q, "g1")
	waiting := e.receiveInBackground(e.ctx(), q, 1)
	e.lateAck(q, first)
	e.expectHandedTo(waiting, "g2", "a late ack")
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
