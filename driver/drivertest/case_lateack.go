package drivertest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mailboxmq/mailbox/driver"
)

var lateAckNeeds = []need{needLateAck}

var lateAckCases = []testCase{
	{id: "VIS-7", title: "unknown, changed and foreign receipts fail", needs: lateAckNeeds, run: lateAckOfForged},
	{id: "VIS-7", title: "many are removed in any order, and counts are exact", needs: lateAckNeeds, run: manyLateAcks},
	{
		id: "VIS-7", title: "it is found in its shard", config: always(driver.Config{Shards: 4}),
		needs: lateAckNeeds, run: manyLateAcks,
	},
	{id: "VIS-7", title: "of two late acks at once exactly one removes", needs: lateAckNeeds, run: lateAcksRace},
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
