package drivertest

import (
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var visibilityCases = []testCase{

	{id: "VIS-3", title: "extend moves the deadline to later, counted from now", run: extendMakesLater},

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

func extendMakesLater(e *env, q driver.Queue) {
	e.send(q, "a")
	first := e.tick()
	if !e.backend.Virtual {
		first = 5 * e.tick() // enough time to extend on a busy machine
	}
	received := time.Now()
	held := e.receiveFor(q, 1, first)[0]
	e.rest(first / 2)
	extended := time.Now()
	e.expectHeld(tryExtend(e, q, held, first), received, first)
	e.expectArrival(q, extended.Add(first), "a")
}

// holdFor is a config with a MaxHold in ticks. The cases receive for half a tick, so MaxHold is
// the bound from 5 ticks on.
func holdFor(ticks time.Duration) func(*env) driver.Config {
	return func(e *env) driver.Config { return driver.Config{MaxHold: ticks * e.tick()} }
}

func maxHoldCapsOneExtension(e *env, q driver.Queue) {
	e.send(q, "a")
	e.expectHoldBound(q, 6*e.tick())
}

func maxHoldHasFloor(e *env, q driver.Queue) {
	e.send(q, "a")
	e.expectHoldBound(q, driver.HoldBound(e.tick(), e.tick()/2))
}

// expectHoldBound checks that an extension holds the ready message for bound and no longer, and
// reports that.
func (e *env) expectHoldBound(q driver.Queue, bound time.Duration) {
	e.t.Helper()
	start := time.Now()
	held := e.receiveFor(q, 1, e.tick()/2)[0]
	granted, err := q.Extend(e.ctx(), []driver.Extension{{Receipt: held.Receipt, Visibility: e.hold}})
	e.expectHeld(err, start, e.tick()/2)
	e.expectGranted(granted, bound-time.Since(start)-e.slack, bound+e.slack)
	e.expectArrival(q, start.Add(bound), "a")
	e.expectExpired(q, held, "a receipt past MaxHold")
}

// expectGranted checks that an extension was granted between least and most. The backend
// records the delivery and the extension at some time during the calls, so that on the real
// clock the time between them is unknown.
func (e *env) expectGranted(granted []time.Duration, least, most time.Duration) {
	e.t.Helper()
	if e.backend.Virtual {
		most = least // no time passes
	}
	if len(granted) != 1 || granted[0] < least || granted[0] > most {
		e.failf("extension that is cut: granted %v, want from %v to %v", granted, least, most)
	}
}

// expectHeld checks that a lease made or extended at since could be extended. If a
// slow machine, not the backend, let the lease end, the case is repeated.
func (e *env) expectHeld(err error, since time.Time, visibility time.Duration) {
	e.t.Helper()
	if err == nil {
		return
	}
	if e.backend.Virtual || time.Since(since) < visibility {
		e.failf("extend of a live lease: got %v, want no error", err)
	}
	e.tooSlow("a lease of %v was over before it could be extended", visibility)
}

func maxHoldCapsManyExtensions(e *env, q driver.Queue) {
	e.send(q, "a")
	start := time.Now()
	limit := start.Add(6 * e.tick())
	held := e.receiveFor(q, 1, e.tick()/2)[0]
	for extended := start; ; {
		e.rest(e.tick() / 4)
		now := time.Now()
		err := tryExtend(e, q, held, e.tick()/2)
		if err != nil && !time.Now().Before(limit) { // it may arrive after the limit, although it was sent before
			e.expectCode(err, driver.ErrReceiptExpired, "extend past MaxHold")
			break
		}
		e.expectHeld(err, extended, e.tick()/2)
		if now.After(limit.Add(e.patience)) {
			e.failf("a message with MaxHold %v is held for %v", 6*e.tick(), now.Sub(start))
		}
		extended = now
	}
	e.expectArrival(q, limit, "a")
}

func maxHoldRestarts(e *env, q driver.Queue) {
	e.send(q, "a")
	e.expire(q, e.receive(q, 1)...)
	e.sleep(e.tick())
	e.expectHoldBound(q, 6*e.tick())
}
