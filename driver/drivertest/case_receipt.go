package drivertest

import (
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var receiptCases = []testCase{
	{id: "VIS-2", title: "every delivery has a fresh receipt", run: receiptsAreFresh},
	{id: "VIS-2", title: "a receipt from an earlier delivery fails and does not touch the new holder", run: staleReceiptFails},
	{id: "VIS-2", title: "a receipt of an acked message fails", run: ackedReceiptFails},
	{id: "VIS-2", title: "a receipt of a nacked message fails", run: nackedReceiptFails},
	{id: "VIS-2", title: "a receipt fails after the deadline even if nothing has swept yet", run: lateReceiptFails},
	{id: "VIS-2", title: "a receipt works until just before the deadline", run: receiptWorksUntilDeadline},
	{id: "VIS-2", title: "extending a lease keeps its receipt alive beyond the first deadline", run: extendedReceiptWorks},
	{id: "VIS-2", title: "an unknown, zero or mangled receipt fails", run: unknownReceiptsFail},
	{id: "VIS-2", title: "a receipt with any one bit changed fails", run: flippedReceiptsFail},
	{
		id: "VIS-2", title: "a receipt with any one bit changed fails over several shards",
		config: always(driver.Config{Shards: 5}), run: flippedReceiptsFail,
	},
	{id: "VIS-2", title: "a receipt of another queue fails", run: foreignReceiptFails},
	{id: "VIS-2", title: "a receipt survives being written as text", run: receiptSurvivesText},
}

func receiptsAreFresh(e *env, q driver.Queue) {
	e.send(q, "a", "b", "c")
	seen := make(map[driver.Receipt]string)
	for range 4 {
		got := e.receive(q, 3)
		for _, d := range got {
			if body, used := seen[d.Receipt]; used {
				e.failf("a delivery of %q has the receipt of an earlier delivery of %q", d.Body, body)
			}
			seen[d.Receipt] = string(d.Body)
		}
		e.expire(q, got...)
	}
}

func staleReceiptFails(e *env, q driver.Queue) {
	e.send(q, "a")
	first := e.receive(q, 1)[0]
	e.expire(q, first)
	second := e.receive(q, 1)[0]

	e.expectExpired(q, first, "a receipt from an earlier delivery")
	e.expectStats(q, driver.Stats{InFlight: 1})
	e.expectNothing(q)
	e.extend(q, second, e.hold) // the new lease is untouched
	e.nack(q, second, 0, "")
	third := e.receive(q, 1)[0]
	e.expectExpired(q, first, "a receipt from the delivery before the last")
	e.expectExpired(q, second, "a receipt from the last delivery")
	e.ack(q, third)
	e.expectEmpty(q)
}

func ackedReceiptFails(e *env, q driver.Queue) {
	e.send(q, "a")
	held := e.receive(q, 1)[0]
	e.ack(q, held)
	e.expectExpired(q, held, "the receipt of an acked message")
	e.expectEmpty(q)
}

func nackedReceiptFails(e *env, q driver.Queue) {
	e.send(q, "a")
	held := e.receive(q, 1)[0]
	e.nack(q, held, 0, "")
	e.expectExpired(q, held, "the receipt of a nacked message")
	e.expectStats(q, driver.Stats{Ready: 1})

	held = e.receive(q, 1)[0]
	e.nack(q, held, e.hold, "")
	e.expectExpired(q, held, "the receipt of a message nacked with a delay")
	e.expectStats(q, driver.Stats{Delayed: 1})
}

func lateReceiptFails(e *env, q driver.Queue) {
	e.send(q, "a", "b", "c")
	held := e.expectBodies(q, e.receiveFor(q, 3, e.tick), "a", "b", "c")
	e.sleep(e.tick) // without any call
	e.expectCode(tryAck(e, q, held[0]), driver.ErrReceiptExpired, "ack at the deadline, with nothing swept")
	e.expectCode(tryExtend(e, q, held[1], e.hold), driver.ErrReceiptExpired, "extend at the deadline, with nothing swept")
	e.expectCode(tryNack(e, q, held[2], 0, ""), driver.ErrReceiptExpired, "nack at the deadline, with nothing swept")
	e.expectStats(q, driver.Stats{Ready: 3})
	e.expectNext(q, "a", "b", "c")
}

func receiptWorksUntilDeadline(e *env, q driver.Queue) {
	e.send(q, "a", "b")
	visibility := e.hold
	held := e.receiveFor(q, 2, visibility)
	if e.backend.Virtual {
		e.sleep(visibility - time.Millisecond)
	}
	e.ack(q, held[0])
	e.extend(q, held[1], visibility)
	if e.backend.Virtual {
		e.sleep(visibility - time.Millisecond)
	}
	e.ack(q, held[1])
	e.expectEmpty(q)
}

func extendedReceiptWorks(e *env, q driver.Queue) {
	e.send(q, "a")
	start := time.Now()
	held := e.receiveFor(q, 1, 5*e.tick)[0]
	e.expectHeld(tryExtend(e, q, held, e.hold), start, 5*e.tick)
	e.sleep(5 * e.tick)
	e.expectNothing(q)
	e.ack(q, held)
	e.expectEmpty(q)
}

func unknownReceiptsFail(e *env, q driver.Queue) {
	e.send(q, "a")
	held := e.receive(q, 1)[0]
	mangle := func(change func(*driver.Receipt)) driver.Delivery {
		mangled := held
		change(&mangled.Receipt)
		return mangled
	}
	e.expectExpired(q, driver.Delivery{}, "a zero receipt")
	e.expectExpired(q, mangle(func(r *driver.Receipt) { r.Handle = "no-such-delivery" }), "an unknown handle")
	e.expectExpired(q, mangle(func(r *driver.Receipt) { *r = driver.Receipt{Handle: "made up", Place: 1, Nonce: 1} }), "a made-up receipt")
	e.expectExpired(q, mangle(func(r *driver.Receipt) { r.Handle += "x" }), "a receipt with a changed handle")
	if held.Receipt.Nonce != 0 {
		e.expectExpired(q, mangle(func(r *driver.Receipt) { r.Nonce++ }), "a receipt with a changed nonce")
		e.expectExpired(q, mangle(func(r *driver.Receipt) { r.Nonce = 0 }), "a receipt without a nonce")
	}
	if held.Receipt.Place != 0 {
		e.expectExpired(q, mangle(func(r *driver.Receipt) { r.Place = ^uint64(0) }), "a receipt with a wild place")
	}
	e.expectStats(q, driver.Stats{InFlight: 1})
	e.ack(q, held)
}

func flippedReceiptsFail(e *env, q driver.Queue) {
	e.send(q, numbered("m", 20)...)
	held := e.receive(q, 20)
	for _, d := range held[:5] {
		for bit := range 64 {
			flipped := d
			if d.Receipt.Nonce != 0 {
				flipped.Receipt.Nonce ^= 1 << bit
				e.expectCode(tryAck(e, q, flipped), driver.ErrReceiptExpired, "ack with bit %d of the nonce changed", bit)
			}
			flipped = d
			if d.Receipt.Place != 0 {
				flipped.Receipt.Place ^= 1 << bit
				e.expectCode(tryAck(e, q, flipped), driver.ErrReceiptExpired, "ack with bit %d of the place changed", bit)
			}
		}
	}
	e.expectStats(q, driver.Stats{InFlight: 20})
	e.ack(q, held...)
	e.expectEmpty(q)
}

func foreignReceiptFails(e *env, q driver.Queue) {
	other := e.open("invoices")
	e.send(q, "order")
	e.send(other, "invoice")
	order := e.receive(q, 1)[0]
	invoice := e.receive(other, 1)[0]
	e.expectExpired(other, order, "a receipt of another queue")
	e.expectExpired(q, invoice, "a receipt of another queue")
	e.ack(q, order)
	e.ack(other, invoice)
}

func receiptSurvivesText(e *env, q driver.Queue) {
	e.send(q, "a")
	held := e.receive(q, 1)[0]
	parsed, err := driver.ParseReceipt(held.Receipt.String())
	e.ok(err, "parse the receipt %q", held.Receipt)
	if parsed != held.Receipt {
		e.failf("receipt %+v became %+v as text and back", held.Receipt, parsed)
	}
	e.ok(q.Ack(e.ctx(), []driver.Receipt{parsed}), "ack with a receipt that was text")
	e.expectEmpty(q)
}
