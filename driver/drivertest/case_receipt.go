package drivertest

import (
	"github.com/mailboxmq/mailbox/driver"
)

var receiptCases = []testCase{
	{id: "VIS-2", title: "an unknown, zero or mangled receipt fails", run: unknownReceiptsFail},
	{id: "VIS-2", title: "a receipt with any one bit changed fails", run: flippedReceiptsFail},
	{
		id: "VIS-2", title: "a receipt with any one bit changed fails over several shards",
		config: always(driver.Config{Shards: 5}), run: flippedReceiptsFail,
	},
	{id: "VIS-2", title: "a receipt survives being written as text", run: receiptSurvivesText},
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

func receiptSurvivesText(e *env, q driver.Queue) {
	e.send(q, "a")
	held := e.receive(q, 1)[0]
	var parsed driver.Receipt
	e.ok(parsed.UnmarshalText([]byte(held.Receipt.String())), "parse the receipt %q", held.Receipt)
	if parsed != held.Receipt {
		e.failf("receipt %+v became %+v as text and back", held.Receipt, parsed)
	}
	e.ok(q.Ack(e.ctx(), []driver.Receipt{parsed}), "ack with a receipt that was text")
	e.expectEmpty(q)
}
