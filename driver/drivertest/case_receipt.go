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

func receiptsAreFresh(s *session, q driver.Queue) {
	s.send(q, "a", "b", "c")
	seen := make(map[driver.Receipt]string)
	for range 4 {
		got := s.receive(q, 3)
		for _, d := range got {
			if body, used := seen[d.Receipt]; used {
				s.failf("a delivery of %q has the receipt of an earlier delivery of %q", d.Body, body)
			}
			seen[d.Receipt] = string(d.Body)
		}
		s.expire(q, got...)
	}
}

func staleReceiptFails(s *session, q driver.Queue) {
	s.send(q, "a")
	first := s.receive(q, 1)[0]
	s.expire(q, first)
	second := s.receive(q, 1)[0]

	s.expectExpired(q, first, "a receipt from an earlier delivery")
	s.expectStats(q, driver.Stats{InFlight: 1})
	s.expectNothing(q)
	s.extend(q, second, s.hold) // the new holder holds as before
	s.nack(q, second, 0, "")
	third := s.receive(q, 1)[0]
	s.expectExpired(q, first, "a receipt from the delivery before the last")
	s.expectExpired(q, second, "a receipt from the last delivery")
	s.ack(q, third)
	s.expectEmpty(q)
}

func ackedReceiptFails(s *session, q driver.Queue) {
	s.send(q, "a")
	held := s.receive(q, 1)[0]
	s.ack(q, held)
	s.expectExpired(q, held, "the receipt of an acked message")
	s.expectEmpty(q)
}

func nackedReceiptFails(s *session, q driver.Queue) {
	s.send(q, "a")
	held := s.receive(q, 1)[0]
	s.nack(q, held, 0, "")
	s.expectExpired(q, held, "the receipt of a nacked message")
	s.expectStats(q, driver.Stats{Ready: 1})

	held = s.receive(q, 1)[0]
	s.nack(q, held, s.hold, "")
	s.expectExpired(q, held, "the receipt of a message nacked with a delay")
	s.expectStats(q, driver.Stats{Delayed: 1})
}

func lateReceiptFails(s *session, q driver.Queue) {
	s.send(q, "a", "b", "c")
	held := s.expectBodies(q, s.receiveFor(q, 3, s.tick), "a", "b", "c")
	s.sleep(s.tick) // and nobody calls anything meanwhile
	s.expectCode(tryAck(s, q, held[0]), driver.ErrReceiptExpired, "ack at the deadline, with nothing swept")
	s.expectCode(tryExtend(s, q, held[1], s.hold), driver.ErrReceiptExpired, "extend at the deadline, with nothing swept")
	s.expectCode(tryNack(s, q, held[2], 0, ""), driver.ErrReceiptExpired, "nack at the deadline, with nothing swept")
	s.expectStats(q, driver.Stats{Ready: 3})
	s.expectNext(q, "a", "b", "c")
}

func receiptWorksUntilDeadline(s *session, q driver.Queue) {
	s.send(q, "a", "b")
	visibility := s.hold
	held := s.receiveFor(q, 2, visibility)
	if s.backend.Virtual {
		s.sleep(visibility - time.Millisecond)
	}
	s.ack(q, held[0])
	s.extend(q, held[1], visibility)
	if s.backend.Virtual {
		s.sleep(visibility - time.Millisecond)
	}
	s.ack(q, held[1])
	s.expectEmpty(q)
}

func extendedReceiptWorks(s *session, q driver.Queue) {
	s.send(q, "a")
	start := time.Now()
	held := s.receiveFor(q, 1, 5*s.tick)[0]
	s.expectHeld(tryExtend(s, q, held, s.hold), start, 5*s.tick)
	s.sleep(5 * s.tick)
	s.expectNothing(q)
	s.ack(q, held)
	s.expectEmpty(q)
}

func unknownReceiptsFail(s *session, q driver.Queue) {
	s.send(q, "a")
	held := s.receive(q, 1)[0]
	mangle := func(change func(*driver.Receipt)) driver.Delivery {
		mangled := held
		change(&mangled.Receipt)
		return mangled
	}
	s.expectExpired(q, driver.Delivery{}, "a zero receipt")
	s.expectExpired(q, mangle(func(r *driver.Receipt) { r.Handle = "no-such-delivery" }), "an unknown handle")
	s.expectExpired(q, mangle(func(r *driver.Receipt) { *r = driver.Receipt{Handle: "made up", Place: 1, Nonce: 1} }), "a made-up receipt")
	s.expectExpired(q, mangle(func(r *driver.Receipt) { r.Handle += "x" }), "a receipt with a changed handle")
	if held.Receipt.Nonce != 0 {
		s.expectExpired(q, mangle(func(r *driver.Receipt) { r.Nonce++ }), "a receipt with a changed nonce")
		s.expectExpired(q, mangle(func(r *driver.Receipt) { r.Nonce = 0 }), "a receipt without a nonce")
	}
	if held.Receipt.Place != 0 {
		s.expectExpired(q, mangle(func(r *driver.Receipt) { r.Place = ^uint64(0) }), "a receipt with a wild place")
	}
	s.expectStats(q, driver.Stats{InFlight: 1})
	s.ack(q, held)
}

func flippedReceiptsFail(s *session, q driver.Queue) {
	s.send(q, numbered("m", 20)...)
	held := s.receive(q, 20)
	for _, d := range held[:5] {
		for bit := range 64 {
			flipped := d
			if d.Receipt.Nonce != 0 {
				flipped.Receipt.Nonce ^= 1 << bit
				s.expectCode(tryAck(s, q, flipped), driver.ErrReceiptExpired, "ack with bit %d of the nonce changed", bit)
			}
			flipped = d
			if d.Receipt.Place != 0 {
				flipped.Receipt.Place ^= 1 << bit
				s.expectCode(tryAck(s, q, flipped), driver.ErrReceiptExpired, "ack with bit %d of the place changed", bit)
			}
		}
	}
	s.expectStats(q, driver.Stats{InFlight: 20})
	s.ack(q, held...)
	s.expectEmpty(q)
}

func foreignReceiptFails(s *session, q driver.Queue) {
	other := s.open("invoices")
	s.send(q, "order")
	s.send(other, "invoice")
	order := s.receive(q, 1)[0]
	invoice := s.receive(other, 1)[0]
	s.expectExpired(other, order, "a receipt of another queue")
	s.expectExpired(q, invoice, "a receipt of another queue")
	s.ack(q, order)
	s.ack(other, invoice)
}

func receiptSurvivesText(s *session, q driver.Queue) {
	s.send(q, "a")
	held := s.receive(q, 1)[0]
	parsed, err := driver.ParseReceipt(held.Receipt.String())
	s.ok(err, "parse the receipt %q", held.Receipt)
	if parsed != held.Receipt {
		s.failf("receipt %+v became %+v as text and back", held.Receipt, parsed)
	}
	s.ok(q.Ack(s.ctx(), []driver.Receipt{parsed}), "ack with a receipt that was text")
	s.expectEmpty(q)
}
