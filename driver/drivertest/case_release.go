package drivertest

import (
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// releaseCases are those with many releases, and with receives that wait. The others are in
// stories/release.txt.
var releaseCases = []testCase{
	{id: "FLOW-4", title: "a message is given back uncounted 16 times, and then it counts",
		config: always(driver.Config{}), needs: []need{needRelease}, run: seventeenthReleaseCounts},
	{id: "FLOW-4", title: "a delivery that counts allows 16 releases again",
		config: always(driver.Config{}), needs: []need{needRelease}, run: countedDeliveryAllowsReleases},
	{id: "FLOW-4", title: "a message that is released without end dies after 16 releases for each delivery it may have",
		config: mortal, needs: []need{needRelease, needDeadLetters}, run: endlessReleaseKills},
	{id: "FLOW-4", title: "a redriven message can be released as often as a new one",
		needs: []need{needRelease, needDeadLetters}, run: redriveForgetsReleases},
	{id: "FLOW-4", title: "a message that was moved can be released as often as a new one",
		needs: []need{needRelease, needMove}, run: moveForgetsReleases},
	{id: "FLOW-4", title: "the first delivery is the first that was not given back",
		needs: []need{needRelease}, run: firstDeliveryWasNotGivenBack},
	{id: "FLOW-4", title: "a released message shows no delivery",
		needs: []need{needRelease, needPeek}, run: releasedShowsNoDelivery},
	{id: "FLOW-4", title: "each message of a batch is given back in its own way", needs: []need{needRelease, needFIFO}, run: batchOfModes},
	{id: "FLOW-4", title: "a message that is given back wakes a receive that waits", needs: []need{needRelease}, run: releaseWakes},
	{id: "FLOW-4", title: "an unknown mode is refused", run: unknownModeIsRefused},
}

// giveBackOne gives a delivery back.
func (e *env) giveBackOne(q driver.Queue, d driver.Delivery, how driver.Nack) {
	e.t.Helper()
	how.Receipt = d.Receipt
	e.ok(q.Nack(e.ctx(), []driver.Nack{how}), "%s %q", nackVerbs[how.Mode], brief(d.Body))
}

// giveBack receives a message and gives it back so many times. Its deliveries must be those
// given.
func (e *env) giveBack(q driver.Queue, body string, deliveries, times int, mode driver.NackMode) {
	e.t.Helper()
	for i := range times {
		d := e.expectNext(q, body)[0]
		if d.Deliveries != deliveries {
			e.failf("after %d times %s: got Deliveries %d, want %d", i, nackVerbs[mode], d.Deliveries, deliveries)
		}
		e.giveBackOne(q, d, driver.Nack{Mode: mode})
	}
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

func seventeenthReleaseCounts(e *env, q driver.Queue) {
	for _, mode := range []driver.NackMode{driver.NackRelease, driver.NackPutBack} {
		e.send(q, "a")
		for counted := 1; counted <= 2; counted++ {
			e.giveBack(q, "a", counted, driver.MaxReleases+1, mode)
		}
		e.ack(q, e.expectDelivery(q, "a", 3, "after twice 17 times "+nackVerbs[mode]))
	}
	e.expectEmpty(q)
}

func countedDeliveryAllowsReleases(e *env, q driver.Queue) {
	e.send(q, "a")
	e.giveBack(q, "a", 1, 10, driver.NackRelease)
	e.nack(q, e.expectDelivery(q, "a", 1, "after 10 releases"), 0, "")
	e.giveBack(q, "a", 2, 10, driver.NackPutBack)
	e.expire(q, e.expectDelivery(q, "a", 2, "after a nack and 10 times put-back"))
	e.giveBack(q, "a", 3, driver.MaxReleases, driver.NackRelease)
	e.expectDelivery(q, "a", 3, "after a lease that ended and 16 releases")
}

func endlessReleaseKills(e *env, q driver.Queue) {
	const limit = 2 // of mortal
	e.send(q, "a")
	for counted := 1; counted <= limit; counted++ {
		e.giveBack(q, "a", counted, driver.MaxReleases+1, driver.NackRelease)
	}
	e.expectNothing(q)
	letter := e.expectDead(q, "a")[0]
	if letter.Reason != driver.ReasonMaxDeliveries || letter.Deliveries != limit {
		e.failf("dead letter: got reason %q, Deliveries %d; want %q and %d", letter.Reason, letter.Deliveries, driver.ReasonMaxDeliveries, limit)
	}
}

func redriveForgetsReleases(e *env, q driver.Queue) {
	e.send(q, "a")
	e.giveBack(q, "a", 1, 10, driver.NackRelease)
	e.deadLetter(q, e.expectNext(q, "a")[0], driver.ReasonFatal)
	e.redrive(q, nil, 0, 1)
	e.giveBack(q, "a", 1, driver.MaxReleases, driver.NackRelease)
	e.expectDelivery(q, "a", 1, "after a redrive and 16 releases")
}

func moveForgetsReleases(e *env, q driver.Queue) {
	other := e.open("other")
	e.send(q, "a")
	e.giveBack(q, "a", 1, 10, driver.NackRelease)
	moved, err := q.Move(e.ctx(), "other", 0)
	e.ok(err, "move")
	if moved != 1 {
		e.failf("moved %d messages, want 1", moved)
	}
	e.giveBack(other, "a", 1, driver.MaxReleases, driver.NackRelease)
	e.expectDelivery(other, "a", 1, "after a move and 16 releases")
}

func firstDeliveryWasNotGivenBack(e *env, q driver.Queue) {
	e.send(q, "a")
	for _, mode := range []driver.NackMode{driver.NackRelease, driver.NackPutBack} {
		given := e.expectNext(q, "a")[0]
		e.sleep(e.tick)
		e.giveBackOne(q, given, driver.Nack{Mode: mode})
		e.sleep(e.tick)
		first := e.expectNext(q, "a")[0]
		if waited := first.FirstReceivedAt.Sub(given.FirstReceivedAt); waited < e.tick {
			e.failf("%s: FirstReceivedAt is %v after that of the delivery that was given back, want at least %v", nackVerbs[mode], waited, e.tick)
		}
		e.giveBackOne(q, first, driver.Nack{Mode: mode})
	}
	first := e.expectNext(q, "a")[0]
	e.nack(q, first, 0, "")
	e.giveBackOne(q, e.expectDelivery(q, "a", 2, "after a nack"), driver.Nack{Mode: driver.NackRelease})
	e.sleep(e.tick)
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

func releaseWakes(e *env, q driver.Queue) {
	for _, mode := range []driver.NackMode{driver.NackRelease, driver.NackPutBack} {
		e.send(q, "a")
		held := e.expectNext(q, "a")[0]
		waiting := e.receiveInBackground(e.ctx(), q, 10)
		e.giveBackOne(q, held, driver.Nack{Mode: mode})
		e.ack(q, e.expectHandedTo(waiting, "a", nackVerbs[mode]))
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
