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

func tryLateExtend(s *session, q driver.Queue, d driver.Delivery) error {
	return q.ExtendLate(s.ctx(), []driver.Extension{{Receipt: d.Receipt, Visibility: s.hold}})
}

func (s *session) lateExtend(q driver.Queue, d driver.Delivery) {
	s.t.Helper()
	s.ok(tryLateExtend(s, q, d), "late extension of %q", brief(d.Body))
}

func (s *session) expectNotLeasedAgain(q driver.Queue, d driver.Delivery, which string) {
	s.t.Helper()
	s.expectCode(tryLateExtend(s, q, d), driver.ErrReceiptExpired, "late extension with %s", which)
}

func lateExtendInTime(s *session, q driver.Queue) {
	s.send(q, "a")
	held := s.receiveFor(q, 1, s.tick)[0]
	s.lateExtend(q, held)
	s.sleep(s.tick)
	s.expectStats(q, driver.Stats{InFlight: 1})
	s.ack(q, held)
	s.expectEmpty(q)
}

func lateExtendOfExpired(s *session, q driver.Queue) {
	s.send(q, "a", "b")
	held := s.expectBodies(q, s.receiveFor(q, 2, s.tick), "a", "b")
	s.sleep(s.tick) // and nothing is called meanwhile
	s.lateExtend(q, held[0])
	s.expectStats(q, driver.Stats{Ready: 1, InFlight: 1})
	s.expectNext(q, "b")
	s.expectNothing(q)
	s.expire(q, held[0])
	again := s.receive(q, 1)[0]
	if string(again.Body) != "a" || again.Deliveries != 2 {
		s.failf("got %q, delivery %d; want %q, delivery 2: leasing it again is not a delivery", again.Body, again.Deliveries, "a")
	}
	s.ack(q, again)
}

func lateExtendKeepsPlace(s *session, q driver.Queue) {
	s.send(q, "a", "b", "c")
	held := s.expectNext(q, "a")[0]
	s.expire(q, held)
	s.lateExtend(q, held)
	s.expire(q, held)
	s.expectNext(q, "a", "b", "c")
}

func lateExtendOfSuperseded(s *session, q driver.Queue) {
	s.send(q, "a")
	first := s.receive(q, 1)[0]
	s.expire(q, first)
	second := s.receiveFor(q, 1, s.tick)[0]
	s.expectNotLeasedAgain(q, first, "a receipt while another delivery is out")
	s.expectStats(q, driver.Stats{InFlight: 1})
	s.sleep(s.tick)
	s.expectNotLeasedAgain(q, first, "a receipt that was superseded")
	s.expectStats(q, driver.Stats{Ready: 1})
	s.lateExtend(q, second)
	s.ack(q, second)
	s.expectNotLeasedAgain(q, second, "the receipt of an acked message")
	s.expectEmpty(q)
}

func lateExtendOfSettled(s *session, q driver.Queue) {
	s.send(q, "a", "b")
	held := s.expectBodies(q, s.receive(q, 2), "a", "b")
	s.ack(q, held[0])
	s.expectNotLeasedAgain(q, held[0], "the receipt of an acked message")
	s.nack(q, held[1], 0, "no")
	s.expectNotLeasedAgain(q, held[1], "the receipt of a nacked message")
	s.expectStats(q, driver.Stats{Ready: 1})
	again := s.receive(q, 1)[0]
	s.nack(q, again, s.hold, "later")
	s.expectNotLeasedAgain(q, again, "the receipt of a message nacked with a delay")
	s.expectStats(q, driver.Stats{Delayed: 1})
}

func lateExtendAfterRefusedMove(s *session, q driver.Queue) {
	shelter := s.configure(shelterQueue, driver.Config{MaxMessages: 1})
	s.send(shelter, "in the way")
	s.send(q, "a")
	held := s.receive(q, 1)[0]
	s.expire(q, held)
	s.expectMoveStops(q, shelterQueue, 0)
	s.lateExtend(q, held)
	s.expectStats(q, driver.Stats{InFlight: 1})
	s.ack(q, held)
	s.expectEmpty(q)
}

func lateExtendOfDead(s *session, q driver.Queue) {
	s.send(q, "a")
	held := s.receive(q, 1)[0]
	s.expire(q, held)
	s.expectNotLeasedAgain(q, held, "the receipt of a dead letter")
	s.redrive(q, nil, 0, 1)
	s.expectNotLeasedAgain(q, held, "the receipt of a redriven message")
	s.expectStats(q, driver.Stats{Ready: 1})
}

func lateExtendAtCeiling(s *session, q driver.Queue) {
	s.send(q, "a", "b")
	held := s.expectBodies(q, s.receive(q, 2), "a", "b")
	s.expire(q, held[0])
	if !s.reconfigure(driver.Config{MaxInFlight: 1}) {
		return
	}
	s.expectNotLeasedAgain(q, held[0], "a receipt beyond the in-flight ceiling")
	s.ack(q, held[1])
	s.lateExtend(q, held[0])
	s.expectStats(q, driver.Stats{InFlight: 1})
}

func lateExtendInStrictGroup(s *session, q driver.Queue) {
	s.sendTo(q, "g", "a", "b")
	held := s.receive(q, 1)[0]
	s.expire(q, held)
	s.expectNotLeasedAgain(q, held, "a receipt of a strict group")
	s.expectNext(q, "a", "b")
}

func lateExtendInFairGroup(s *session, q driver.Queue) {
	s.sendTo(q, "g", "a", "b")
	held := s.receive(q, 1)[0]
	s.expire(q, held)
	s.lateExtend(q, held)
	s.sendTo(q, "h", "c")
	s.expectNext(q, "c", "b") // g has one out
	s.ack(q, held)
	s.expectStats(q, driver.Stats{InFlight: 2})
}
