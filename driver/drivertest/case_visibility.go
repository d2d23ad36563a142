package drivertest

import (
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var visibilityCases = []testCase{
	{id: "VIS-1", title: "a message in flight is not delivered again", run: leasedMessageIsHidden},
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
		config: holdFor(6), run: maxHoldRestarts,
	},
}

func leasedMessageIsHidden(e *env, q driver.Queue) {
	e.send(q, "a")
	e.receive(q, 1)
	e.expectNothing(q)
	e.expectNothing(e.open(queueName))
	e.expectStats(q, driver.Stats{InFlight: 1})
	if e.backend.Virtual {
		e.sleep(e.hold - time.Millisecond)
		e.expectNothing(q)
		e.expectStats(q, driver.Stats{InFlight: 1})
	}
}

func expiredMessageComesBack(e *env, q driver.Queue) {
	id := e.send(q, "a")[0]
	start := time.Now()
	first := e.receiveFor(q, 1, e.tick)[0]
	second := e.expectArrival(q, start.Add(e.tick), "a")[0]
	if second.ID != id || second.Deliveries != 2 {
		e.failf("second delivery: got id %s, Deliveries %d, want %s and 2", second.ID, second.Deliveries, id)
	}
	if second.Receipt == first.Receipt {
		e.failf("second delivery: got the receipt of the first")
	}
}

func expiredBatchComesBack(e *env, q driver.Queue) {
	e.send(q, "a", "b", "c")
	start := time.Now()
	e.receiveFor(q, 3, e.tick)
	e.expectArrival(q, start.Add(e.tick), "a", "b", "c")
}

func leasesAreIndependent(e *env, q driver.Queue) {
	e.send(q, "long", "short")
	start := time.Now()
	got := e.expectBodies(q, e.receive(q, 2), "long", "short")
	e.extend(q, got[0], 3*e.tick)
	e.extend(q, got[1], e.tick)
	e.expectArrivals(q, map[string]time.Time{"short": start.Add(e.tick), "long": start.Add(3 * e.tick)})
}

func visibilityZero(e *env, q driver.Queue) {
	e.send(q, "a", "b")
	got := e.receiveOnce(q, driver.ReceiveRequest{Max: 10})
	e.expectBodies(q, got, "a", "b") // each once, although each is ready again
	e.expectStats(q, driver.Stats{Ready: 2})
	for _, d := range got {
		e.expectExpired(q, d, "the receipt of a delivery with visibility 0")
	}
	for _, d := range e.expectNext(q, "a", "b") {
		if d.Deliveries != 2 {
			e.failf("delivery after one with visibility 0: got Deliveries %d, want 2", d.Deliveries)
		}
	}
}

func longestVisibilityIsHonoured(e *env, q driver.Queue) {
	longest := q.Traits().MaxVisibility
	e.send(q, "a")
	start := time.Now()
	e.receiveFor(q, 1, longest)
	e.expectNothing(q)
	if e.backend.Virtual {
		e.sleep(longest - time.Millisecond)
		e.expectNothing(q)
		e.expectArrival(q, start.Add(longest), "a")
	}
}

func extendMakesLater(e *env, q driver.Queue) {
	e.send(q, "a")
	first := e.tick
	if !e.backend.Virtual {
		first = 5 * e.tick // enough time to extend on a busy machine
	}
	received := time.Now()
	held := e.receiveFor(q, 1, first)[0]
	time.Sleep(first / 2)
	extended := time.Now()
	e.expectHeld(tryExtend(e, q, held, first), received, first)
	e.expectArrival(q, extended.Add(first), "a")
}

func extendMakesEarlier(e *env, q driver.Queue) {
	e.send(q, "a")
	held := e.receive(q, 1)[0]
	start := time.Now()
	e.extend(q, held, e.tick)
	e.expectArrival(q, start.Add(e.tick), "a")
}

func extensionsDoNotAddUp(e *env, q driver.Queue) {
	e.send(q, "a")
	held := e.receive(q, 1)[0]
	for range 5 {
		e.extend(q, held, e.hold)
	}
	start := time.Now()
	e.extend(q, held, e.tick)
	e.expectArrival(q, start.Add(e.tick), "a")
}

func extendToZeroEndsLease(e *env, q driver.Queue) {
	e.send(q, "a")
	held := e.receive(q, 1)[0]
	e.extend(q, held, 0)
	e.expectStats(q, driver.Stats{Ready: 1})
	e.expectExpired(q, held, "a receipt that was extended to zero")
	if got := e.expectNext(q, "a")[0]; got.Deliveries != 2 {
		e.failf("delivery after extend to zero: got Deliveries %d, want 2", got.Deliveries)
	}
}

func extendKeepsReceipt(e *env, q driver.Queue) {
	e.send(q, "a")
	held := e.receive(q, 1)[0]
	e.extend(q, held, e.hold)
	e.extend(q, held, e.hold)
	e.expectStats(q, driver.Stats{InFlight: 1})
	e.nack(q, held, 0, "")
	if got := e.expectNext(q, "a")[0]; got.Deliveries != 2 {
		e.failf("delivery after extensions and a nack: got Deliveries %d, want 2", got.Deliveries)
	}
}

func longestExtensionIsHonoured(e *env, q driver.Queue) {
	longest := q.Traits().MaxVisibility
	e.send(q, "a")
	held := e.receive(q, 1)[0]
	start := time.Now()
	e.extend(q, held, longest)
	e.expectNothing(q)
	if e.backend.Virtual {
		e.expectArrival(q, start.Add(longest), "a")
	}
}

// holdFor is a config with a MaxHold in ticks. The cases receive for half a tick, so MaxHold is
// the bound from 5 ticks on.
func holdFor(ticks time.Duration) func(*env) driver.Config {
	return func(e *env) driver.Config { return driver.Config{MaxHold: ticks * e.tick} }
}

func maxHoldCapsOneExtension(e *env, q driver.Queue) {
	e.send(q, "a")
	e.expectHoldBound(q, 6*e.tick)
}

func maxHoldHasFloor(e *env, q driver.Queue) {
	e.send(q, "a")
	e.expectHoldBound(q, driver.MinHoldFactor*e.tick/2)
}

// expectHoldBound checks that an extension holds the ready message for bound and no longer, and
// reports that.
func (e *env) expectHoldBound(q driver.Queue, bound time.Duration) {
	e.t.Helper()
	start := time.Now()
	held := e.receiveFor(q, 1, e.tick/2)[0]
	asked := time.Now()
	granted, err := q.Extend(e.ctx(), []driver.Extension{{Receipt: held.Receipt, Visibility: e.hold}})
	e.expectHeld(err, start, e.tick/2)
	e.expectGranted(granted, bound-time.Since(start)-e.slack, bound-asked.Sub(start)+e.slack)
	e.expectArrival(q, start.Add(bound), "a")
	e.expectExpired(q, held, "a receipt past MaxHold")
}

// expectGranted checks that an extension was granted between least and most. The backend
// records the delivery and the extension at some time during the calls.
func (e *env) expectGranted(granted []time.Duration, least, most time.Duration) {
	e.t.Helper()
	if e.backend.Virtual {
		most = least // no time passes
	} else {
		most += e.tick // the delivery may have taken long
	}
	if len(granted) != 1 || granted[0] < least || granted[0] > most {
		e.failf("extension that is cut: granted %v, want from %v to %v", granted, least, most)
	}
}

// expectHeld checks that a lease made or extended at since could be extended. It skips the case
// if a slow machine, not the backend, let the lease end.
func (e *env) expectHeld(err error, since time.Time, visibility time.Duration) {
	e.t.Helper()
	if err == nil {
		return
	}
	if e.backend.Virtual || time.Since(since) < visibility {
		e.failf("extend of a live lease: got %v, want no error", err)
	}
	e.t.Skipf("the machine is too slow: a lease of %v was over before it could be extended", visibility)
}

func maxHoldCapsManyExtensions(e *env, q driver.Queue) {
	e.send(q, "a")
	start := time.Now()
	limit := start.Add(6 * e.tick)
	held := e.receiveFor(q, 1, e.tick/2)[0]
	for extended := start; ; {
		time.Sleep(e.tick / 4)
		now := time.Now()
		err := tryExtend(e, q, held, e.tick/2)
		if err != nil && !time.Now().Before(limit) { // it may arrive after the limit, although it was sent before
			e.expectCode(err, driver.ErrReceiptExpired, "extend past MaxHold")
			break
		}
		e.expectHeld(err, extended, e.tick/2)
		if now.After(limit.Add(e.patience)) {
			e.failf("a message with MaxHold %v is held for %v", 6*e.tick, now.Sub(start))
		}
		extended = now
	}
	e.expectArrival(q, limit, "a")
}

func maxHoldRestarts(e *env, q driver.Queue) {
	e.send(q, "a")
	e.expire(q, e.receive(q, 1)...)
	e.sleep(e.tick)
	e.expectHoldBound(q, 6*e.tick)
}
