package drivertest

import (
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// releaseCases are those with many releases, and with receives that wait. The others are in
// stories/release.txt.
var releaseCases = []testCase{
	{id: "FLOW-4", title: "the first delivery is the first that was not given back",
		needs: []need{needRelease}, run: firstDeliveryWasNotGivenBack},
	{id: "FLOW-4", title: "a released message shows no delivery",
		needs: []need{needRelease, needPeek}, run: releasedShowsNoDelivery},
	{id: "FLOW-4", title: "each message of a batch is given back in its own way", needs: []need{needRelease, needFIFO}, run: batchOfModes},
	{id: "FLOW-4", title: "an unknown mode is refused", run: unknownModeIsRefused},
}

// giveBackOne gives a delivery back.
func (e *env) giveBackOne(q driver.Queue, d driver.Delivery, how driver.Nack) {
	e.t.Helper()
	how.Receipt = d.Receipt
	e.ok(q.Nack(e.ctx(), []driver.Nack{how}), "%s %q", nackVerbs[how.Mode], brief(d.Body))
}

// expectDelivery receives a message, which must have this number of deliveries.
func (e *env) expectDelivery(q driver.Queue, body string, deliveries int, what string) driver.Delivery {
	e.t.Helper()
	d := e.expectNext(q, body)[0]
	if d.Deliveries != deliveries {
		e.failf("%s: got Deliveries %d, want %d", what, d.Deliveries, deliveries)
	}
	return d
}

func firstDeliveryWasNotGivenBack(e *env, q driver.Queue) {
	e.send(q, "a")
	for _, mode := range []driver.NackMode{driver.NackRelease, driver.NackPutBack} {
		given := e.expectNext(q, "a")[0]
		e.sleep(e.tick())
		e.giveBackOne(q, given, driver.Nack{Mode: mode})
		e.sleep(e.tick())
		first := e.expectNext(q, "a")[0]
		if waited := first.FirstReceivedAt.Sub(given.FirstReceivedAt); waited < e.tick() {
			e.failf("%s: FirstReceivedAt is %v after that of the delivery that was given back, want at least %v", nackVerbs[mode], waited, e.tick())
		}
		e.giveBackOne(q, first, driver.Nack{Mode: mode})
	}
	first := e.expectNext(q, "a")[0]
	e.nack(q, first, 0, "")
	e.giveBackOne(q, e.expectDelivery(q, "a", 2, "after a nack"), driver.Nack{Mode: driver.NackRelease})
	e.sleep(e.tick())
	if again := e.expectNext(q, "a")[0]; !again.FirstReceivedAt.Equal(first.FirstReceivedAt) {
		e.failf("after a nack and a release: got FirstReceivedAt %v, want %v", again.FirstReceivedAt, first.FirstReceivedAt)
	}
}

func releasedShowsNoDelivery(e *env, q driver.Queue) {
	e.send(q, "a")
	e.giveBackOne(q, e.expectNext(q, "a")[0], driver.Nack{Mode: driver.NackRelease, Delay: e.hold, Cause: "not mine"})
	for peeked, err := range q.Peek(e.ctx(), driver.Query{}) {
		e.ok(err, "peek")
		if peeked.State != driver.StateDelayed || peeked.Deliveries != 0 || !peeked.FirstReceivedAt.IsZero() || peeked.LastError != "not mine" {
			e.failf("released message: got state %q, Deliveries %d, FirstReceivedAt %v, LastError %q",
				peeked.State, peeked.Deliveries, peeked.FirstReceivedAt, peeked.LastError)
		}
	}
}

func batchOfModes(e *env, q driver.Queue) {
	e.send(q, "a", "b", "c", "d")
	held := e.expectNext(q, "a", "b", "c")
	err := q.Nack(e.ctx(), []driver.Nack{
		{Receipt: held[0].Receipt, Cause: "failed"},
		{Receipt: held[1].Receipt, Mode: driver.NackRelease},
		{Receipt: held[1].Receipt, Mode: driver.NackRelease},
		{Receipt: held[2].Receipt, Mode: driver.NackPutBack, Cause: "not mine"},
		{Receipt: held[2].Receipt, Mode: driver.NackRelease, Delay: -time.Second},
	})
	e.expectPositions(err, "a batch of all modes", fine, fine, driver.ErrReceiptExpired, fine, driver.ErrInvalid)
	for i, want := range []driver.Message{{Deliveries: 1}, {Deliveries: 1}, {Deliveries: 2, LastError: "failed"}, {Deliveries: 1, LastError: "not mine"}} {
		got := e.expectNext(q, []string{"b", "d", "a", "c"}[i])[0]
		if got.Deliveries != want.Deliveries || got.LastError != want.LastError {
			e.failf("%s: got Deliveries %d, LastError %q; want %d, %q", got.Body, got.Deliveries, got.LastError, want.Deliveries, want.LastError)
		}
	}
}

func unknownModeIsRefused(e *env, q driver.Queue) {
	e.send(q, "a")
	held := e.expectNext(q, "a")[0]
	err := q.Nack(e.ctx(), []driver.Nack{{Receipt: held.Receipt, Mode: 9}})
	e.expectInvalid(driver.At(err, 0), driver.ErrInvalid, "9", "nack with an unknown mode")
	e.ack(q, held)
	e.expectEmpty(q)
}
