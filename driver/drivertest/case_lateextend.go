package drivertest

import "github.com/mailboxmq/mailbox/driver"

var lateExtendCases = []testCase{
	{id: "VIS-7", title: "an extension in time is one like any other", needs: lateAckNeeds, run: lateExtendInTime},
	{id: "VIS-7", title: "an extension past the deadline leases a ready message again", needs: lateAckNeeds, run: lateExtendOfExpired},
	{id: "VIS-7", title: "a message that is leased again comes back to its place", needs: []need{needLateAck, needFIFO}, run: lateExtendKeepsPlace},
	{id: "VIS-7", title: "a superseded receipt extends nothing", needs: lateAckNeeds, run: lateExtendOfSuperseded},
	{id: "VIS-7", title: "what was settled or nacked is not leased again", needs: lateAckNeeds, run: lateExtendOfSettled},
	{
		id: "VIS-7", title: "a dead letter is not leased again, nor when it was redriven",
		config: always(driver.Config{MaxDeliveries: 1}), needs: []need{needLateAck, needDeadLetters}, run: lateExtendOfDead,
	},
	{
		id: "VIS-7", title: "a message is not leased again beyond the in-flight ceiling",
		config: always(driver.Config{MaxInFlight: 2}), needs: []need{needLateAck, needAdmin}, run: lateExtendAtCeiling,
	},
	{id: "VIS-7", title: "a message of a strict group is not leased again", config: strict, needs: lateAckNeeds, run: lateExtendInStrictGroup},
	{id: "VIS-7", title: "a message that a full target refused is leased again", needs: []need{needLateAck, needMove, needAdmin}, run: lateExtendAfterRefusedMove},
	{id: "VIS-7", title: "a message of a fair group is leased again", config: fair, needs: append([]need{needLateAck}, fairNeeds...), run: lateExtendInFairGroup},
}

func tryLateExtend(e *env, q driver.Queue, d driver.Delivery) error {
	return q.ExtendLate(e.ctx(), []driver.Extension{{Receipt: d.Receipt, Visibility: e.hold}})
}

func (e *env) lateExtend(q driver.Queue, d driver.Delivery) {
	e.t.Helper()
	e.ok(tryLateExtend(e, q, d), "late extension of %q", brief(d.Body))
}

func (e *env) expectNotLeasedAgain(q driver.Queue, d driver.Delivery, which string) {
	e.t.Helper()
	e.expectCode(tryLateExtend(e, q, d), driver.ErrReceiptExpired, "late extension with %s", which)
}

func lateExtendInTime(e *env, q driver.Queue) {
	e.send(q, "a")
	held := e.receiveFor(q, 1, e.tick)[0]
	e.lateExtend(q, held)
	e.sleep(e.tick)
	e.expectStats(q, driver.Stats{InFlight: 1})
	e.ack(q, held)
	e.expectEmpty(q)
}

func lateExtendOfExpired(e *env, q driver.Queue) {
	e.send(q, "a", "b")
	held := e.expectBodies(q, e.receiveFor(q, 2, e.tick), "a", "b")
	e.sleep(e.tick) // without any call
	e.lateExtend(q, held[0])
	e.expectStats(q, driver.Stats{Ready: 1, InFlight: 1})
	e.expectNext(q, "b")
	e.expectNothing(q)
	e.expire(q, held[0])
	again := e.receive(q, 1)[0]
	if string(again.Body) != "a" || again.Deliveries != 2 {
		e.failf("got %q, delivery %d; want %q, delivery 2: leasing it again is not a delivery", again.Body, again.Deliveries, "a")
	}
	e.ack(q, again)
}

func lateExtendKeepsPlace(e *env, q driver.Queue) {
	e.send(q, "a", "b", "c")
	held := e.expectNext(q, "a")[0]
	e.expire(q, held)
	e.lateExtend(q, held)
	e.expire(q, held)
	e.expectNext(q, "a", "b", "c")
}

func lateExtendOfSuperseded(e *env, q driver.Queue) {
	e.send(q, "a")
	first := e.receive(q, 1)[0]
	e.expire(q, first)
	second := e.receiveFor(q, 1, e.tick)[0]
	e.expectNotLeasedAgain(q, first, "a receipt while another delivery is in flight")
	e.expectStats(q, driver.Stats{InFlight: 1})
	e.sleep(e.tick)
	e.expectNotLeasedAgain(q, first, "a receipt that was superseded")
	e.expectStats(q, driver.Stats{Ready: 1})
	e.lateExtend(q, second)
	e.ack(q, second)
	e.expectNotLeasedAgain(q, second, "the receipt of an acked message")
	e.expectEmpty(q)
}

func lateExtendOfSettled(e *env, q driver.Queue) {
	e.send(q, "a", "b")
	held := e.expectBodies(q, e.receive(q, 2), "a", "b")
	e.ack(q, held[0])
	e.expectNotLeasedAgain(q, held[0], "the receipt of an acked message")
	e.nack(q, held[1], 0, "no")
	e.expectNotLeasedAgain(q, held[1], "the receipt of a nacked message")
	e.expectStats(q, driver.Stats{Ready: 1})
	again := e.receive(q, 1)[0]
	e.nack(q, again, e.hold, "later")
	e.expectNotLeasedAgain(q, again, "the receipt of a message nacked with a delay")
	e.expectStats(q, driver.Stats{Delayed: 1})
}

func lateExtendAfterRefusedMove(e *env, q driver.Queue) {
	target := e.configure(targetQueue, driver.Config{MaxMessages: 1})
	e.send(target, "in the way")
	e.send(q, "a")
	held := e.receive(q, 1)[0]
	e.expire(q, held)
	e.expectMoveStops(q, targetQueue, 0)
	e.lateExtend(q, held)
	e.expectStats(q, driver.Stats{InFlight: 1})
	e.ack(q, held)
	e.expectEmpty(q)
}

func lateExtendOfDead(e *env, q driver.Queue) {
	e.send(q, "a")
	held := e.receive(q, 1)[0]
	e.expire(q, held)
	e.expectNotLeasedAgain(q, held, "the receipt of a dead letter")
	e.redrive(q, nil, 0, 1)
	e.expectNotLeasedAgain(q, held, "the receipt of a redriven message")
	e.expectStats(q, driver.Stats{Ready: 1})
}

func lateExtendAtCeiling(e *env, q driver.Queue) {
	e.send(q, "a", "b")
	held := e.expectBodies(q, e.receive(q, 2), "a", "b")
	e.expire(q, held[0])
	if !e.reconfigure(driver.Config{MaxInFlight: 1}) {
		return
	}
	e.expectNotLeasedAgain(q, held[0], "a receipt beyond the in-flight ceiling")
	e.ack(q, held[1])
	e.lateExtend(q, held[0])
	e.expectStats(q, driver.Stats{InFlight: 1})
}

func lateExtendInStrictGroup(e *env, q driver.Queue) {
	e.sendTo(q, "g", "a", "b")
	held := e.receive(q, 1)[0]
	e.expire(q, held)
	e.expectNotLeasedAgain(q, held, "a receipt of a strict group")
	e.expectNext(q, "a", "b")
}

func lateExtendInFairGroup(e *env, q driver.Queue) {
	e.sendTo(q, "g", "a", "b")
	held := e.receive(q, 1)[0]
	e.expire(q, held)
	e.lateExtend(q, held)
	e.sendTo(q, "h", "c")
	e.expectNext(q, "c", "b") // g has one in flight
	e.ack(q, held)
	e.expectStats(q, driver.Stats{InFlight: 2})
}
