package drivertest

import (
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var visibilityCases = []testCase{
	{id: "VIS-1", title: "a message in flight is not delivered to anybody else", run: leasedMessageIsHidden},
	{id: "VIS-1", title: "a message is delivered again when its visibility ends, not before", run: expiredMessageComesBack},
	{id: "VIS-1", title: "every message of a batch comes back when the visibility ends", run: expiredBatchComesBack},
	{id: "VIS-1", title: "each lease ends at its own time", run: leasesAreIndependent},
	{id: "VIS-1", title: "visibility zero delivers once and leaves the message ready", run: visibilityZero},
	{id: "VIS-1", title: "the longest visibility is honoured", run: longestVisibilityIsHonoured},

	{id: "VIS-3", title: "extend moves the deadline to later, counted from now", run: extendMakesLater},
	{id: "VIS-3", title: "extend can move the deadline to earlier", run: extendMakesEarlier},
	{id: "VIS-3", title: "extensions do not add up", run: extensionsDoNotAddUp},
	{id: "VIS-3", title: "extend to zero ends the lease, and the message is ready", run: extendToZeroEndsLease},
	{id: "VIS-3", title: "extend counts as no delivery and changes no receipt", run: extendKeepsReceipt},
	{id: "VIS-3", title: "the longest extension is honoured", run: longestExtensionIsHonoured},

	{
		id: "VIS-5", title: "extending cannot hold a message longer than MaxHold, and says how long",
		config: holdFor(6), run: maxHoldCapsOneExtension,
	},
	{
		id: "VIS-5", title: "extending again and again cannot hold a message longer than MaxHold",
		config: holdFor(6), run: maxHoldCapsManyExtensions,
	},
	{
		id: "VIS-5", title: "a message can be held for ten times its visibility however small MaxHold is",
		config: holdFor(1), run: maxHoldHasFloor,
	},
	{
		id: "VIS-5", title: "a new delivery has its full holding time",
		config: holdFor(6), run: maxHoldStartsAnew,
	},
}

func leasedMessageIsHidden(s *session, q driver.Queue) {
	s.send(q, "a")
	s.receive(q, 1)
	s.expectNothing(q)
	s.expectNothing(s.open(queueName))
	s.expectStats(q, driver.Stats{InFlight: 1})
	if s.backend.Virtual {
		s.sleep(s.hold - time.Millisecond)
		s.expectNothing(q)
		s.expectStats(q, driver.Stats{InFlight: 1})
	}
}

func expiredMessageComesBack(s *session, q driver.Queue) {
	id := s.send(q, "a")[0]
	start := time.Now()
	first := s.receiveFor(q, 1, s.tick)[0]
	second := s.expectArrival(q, start.Add(s.tick), "a")[0]
	if second.ID != id || second.Deliveries != 2 {
		s.failf("second delivery: got id %s, Deliveries %d, want %s and 2", second.ID, second.Deliveries, id)
	}
	if second.Receipt == first.Receipt {
		s.failf("second delivery: got the receipt of the first")
	}
}

func expiredBatchComesBack(s *session, q driver.Queue) {
	s.send(q, "a", "b", "c")
	start := time.Now()
	s.receiveFor(q, 3, s.tick)
	s.expectArrival(q, start.Add(s.tick), "a", "b", "c")
}

func leasesAreIndependent(s *session, q driver.Queue) {
	s.send(q, "long", "short")
	start := time.Now()
	got := s.expectBodies(q, s.receive(q, 2), "long", "short")
	s.extend(q, got[0], 3*s.tick)
	s.extend(q, got[1], s.tick)
	s.expectArrivals(q, map[string]time.Time{"short": start.Add(s.tick), "long": start.Add(3 * s.tick)})
}

func visibilityZero(s *session, q driver.Queue) {
	s.send(q, "a", "b")
	got := s.receiveOnce(q, driver.ReceiveRequest{Max: 10})
	s.expectBodies(q, got, "a", "b") // each once, although each is ready again
	s.expectStats(q, driver.Stats{Ready: 2})
	for _, d := range got {
		s.expectExpired(q, d, "the receipt of a delivery with visibility 0")
	}
	for _, d := range s.expectNext(q, "a", "b") {
		if d.Deliveries != 2 {
			s.failf("delivery after one with visibility 0: got Deliveries %d, want 2", d.Deliveries)
		}
	}
}

func longestVisibilityIsHonoured(s *session, q driver.Queue) {
	longest := q.Traits().MaxVisibility
	s.send(q, "a")
	start := time.Now()
	s.receiveFor(q, 1, longest)
	s.expectNothing(q)
	if s.backend.Virtual {
		s.sleep(longest - time.Millisecond)
		s.expectNothing(q)
		s.expectArrival(q, start.Add(longest), "a")
	}
}

func extendMakesLater(s *session, q driver.Queue) {
	s.send(q, "a")
	first := s.tick
	if !s.backend.Virtual {
		first = 5 * s.tick // time enough to extend even on a busy machine
	}
	received := time.Now()
	held := s.receiveFor(q, 1, first)[0]
	time.Sleep(first / 2)
	extended := time.Now()
	s.expectHeld(tryExtend(s, q, held, first), received, first)
	s.expectArrival(q, extended.Add(first), "a")
}

func extendMakesEarlier(s *session, q driver.Queue) {
	s.send(q, "a")
	held := s.receive(q, 1)[0]
	start := time.Now()
	s.extend(q, held, s.tick)
	s.expectArrival(q, start.Add(s.tick), "a")
}

func extensionsDoNotAddUp(s *session, q driver.Queue) {
	s.send(q, "a")
	held := s.receive(q, 1)[0]
	for range 5 {
		s.extend(q, held, s.hold)
	}
	start := time.Now()
	s.extend(q, held, s.tick)
	s.expectArrival(q, start.Add(s.tick), "a")
}

func extendToZeroEndsLease(s *session, q driver.Queue) {
	s.send(q, "a")
	held := s.receive(q, 1)[0]
	s.extend(q, held, 0)
	s.expectStats(q, driver.Stats{Ready: 1})
	s.expectExpired(q, held, "a receipt that was extended to zero")
	if got := s.expectNext(q, "a")[0]; got.Deliveries != 2 {
		s.failf("delivery after extend to zero: got Deliveries %d, want 2", got.Deliveries)
	}
}

func extendKeepsReceipt(s *session, q driver.Queue) {
	s.send(q, "a")
	held := s.receive(q, 1)[0]
	s.extend(q, held, s.hold)
	s.extend(q, held, s.hold)
	s.expectStats(q, driver.Stats{InFlight: 1})
	s.nack(q, held, 0, "")
	if got := s.expectNext(q, "a")[0]; got.Deliveries != 2 {
		s.failf("delivery after extensions and a nack: got Deliveries %d, want 2", got.Deliveries)
	}
}

func longestExtensionIsHonoured(s *session, q driver.Queue) {
	longest := q.Traits().MaxVisibility
	s.send(q, "a")
	held := s.receive(q, 1)[0]
	start := time.Now()
	s.extend(q, held, longest)
	s.expectNothing(q)
	if s.backend.Virtual {
		s.expectArrival(q, start.Add(longest), "a")
	}
}

// holdFor is a config with a MaxHold of so many ticks. The cases receive for half a
// tick, so that MaxHold is the bound from 5 ticks on.
func holdFor(ticks time.Duration) func(*session) driver.Config {
	return func(s *session) driver.Config { return driver.Config{MaxHold: ticks * s.tick} }
}

func maxHoldCapsOneExtension(s *session, q driver.Queue) {
	s.send(q, "a")
	s.expectHoldBound(q, 6*s.tick)
}

func maxHoldHasFloor(s *session, q driver.Queue) {
	s.send(q, "a")
	s.expectHoldBound(q, driver.MinHoldFactor*s.tick/2)
}

// expectHoldBound expects that one extension holds the message that is ready for
// bound and no longer, and says so.
func (s *session) expectHoldBound(q driver.Queue, bound time.Duration) {
	s.t.Helper()
	start := time.Now()
	held := s.receiveFor(q, 1, s.tick/2)[0]
	asked := time.Now()
	granted, err := q.Extend(s.ctx(), []driver.Extension{{Receipt: held.Receipt, Visibility: s.hold}})
	s.expectHeld(err, start, s.tick/2)
	s.expectGranted(granted, bound-time.Since(start)-s.slack, bound-asked.Sub(start)+s.slack)
	s.expectArrival(q, start.Add(bound), "a")
	s.expectExpired(q, held, "a receipt past MaxHold")
}

// expectGranted expects that an extension was granted something from least to most.
// The backend noted the delivery and the extension while it was asked for them.
func (s *session) expectGranted(granted []time.Duration, least, most time.Duration) {
	s.t.Helper()
	if s.backend.Virtual {
		most = least // no time passes
	} else {
		most += s.tick // the delivery may have taken long
	}
	if len(granted) != 1 || granted[0] < least || granted[0] > most {
		s.failf("extension that is cut: granted %v, want from %v to %v", granted, least, most)
	}
}

// expectHeld checks that extending a lease worked that was made or extended
// at since. It gives the case up if a slow machine, and not the backend, let
// the lease end.
func (s *session) expectHeld(err error, since time.Time, visibility time.Duration) {
	s.t.Helper()
	if err == nil {
		return
	}
	if s.backend.Virtual || time.Since(since) < visibility {
		s.failf("extend of a live lease: got %v, want no error", err)
	}
	s.t.Skipf("the machine is too slow: a lease of %v was over before it could be extended", visibility)
}

func maxHoldCapsManyExtensions(s *session, q driver.Queue) {
	s.send(q, "a")
	start := time.Now()
	limit := start.Add(6 * s.tick)
	held := s.receiveFor(q, 1, s.tick/2)[0]
	for extended := start; ; {
		time.Sleep(s.tick / 4)
		now := time.Now()
		err := tryExtend(s, q, held, s.tick/2)
		if err != nil && !time.Now().Before(limit) { // it may have arrived after the limit, if it left before
			s.expectCode(err, driver.ErrReceiptExpired, "extend past MaxHold")
			break
		}
		s.expectHeld(err, extended, s.tick/2)
		if now.After(limit.Add(s.patience)) {
			s.failf("a message with MaxHold %v is held for %v", 6*s.tick, now.Sub(start))
		}
		extended = now
	}
	s.expectArrival(q, limit, "a")
}

func maxHoldStartsAnew(s *session, q driver.Queue) {
	s.send(q, "a")
	s.expire(q, s.receive(q, 1)...)
	s.sleep(s.tick)
	s.expectHoldBound(q, 6*s.tick)
}
