package drivertest

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var receiveCases = []testCase{
	{id: "RCV-1", title: "a receive takes at most Max messages, and all that are ready if there are fewer", run: receiveTakesAtMostMax},
	{id: "RCV-1", title: "a Max above the largest batch is clamped", run: receiveClampsMax},
	{id: "RCV-1", title: "a receive takes one message even if it is over MaxBytes", run: receiveTakesOneOverMaxBytes},
	{
		id: "RCV-1", title: "no more than MaxInFlight messages are in flight at once",
		config: always(driver.Config{MaxInFlight: 2}), run: inFlightCeilingHolds,
	},

	{id: "RCV-2", title: "a receive that does not wait gets what is ready", run: receiveWithoutWaiting},
	{id: "RCV-2", title: "a receive on an empty queue is empty after its wait, not before, and not an error", run: emptyReceiveWaits},
	{id: "RCV-2", title: "a receive that does not wait is empty at once", run: emptyReceiveReturnsAtOnce},
	{id: "RCV-2", title: "a receive does not wait for a full batch", run: receiveDoesNotWaitForMore},

	{id: "RCV-2", title: "a wait ends when it was asked to, to the fraction of a second", run: waitIsNotRounded},
	{id: "FLOW-2", title: "a receive of a paused queue waits for as long as it may", needs: []need{needPause}, run: pausedReceiveWaits},

	{id: "RCV-3", title: "a seal of any bytes comes back as it was sent", needs: []need{needSeals}, run: sealIsKept},
	{id: "RCV-3", title: "enqueue and first delivery have their true times, in UTC", run: deliveryTimesAreTrue},
}

func receiveTakesAtMostMax(e *env, q driver.Queue) {
	e.send(q, "a", "b", "c", "d", "e")
	got := e.receiveOnce(q, driver.ReceiveRequest{Max: 3, Visibility: e.hold})
	if len(got) > 3 || q.Traits().ExactStats && len(got) != 3 {
		e.failf("receive of 5 ready messages with Max 3: got %d", len(got))
	}
	more := e.receiveOnce(q, driver.ReceiveRequest{Max: 10, Visibility: e.hold})
	if q.Traits().ExactStats && len(more) != 2 {
		e.failf("receive of 2 ready messages with Max 10: got %d", len(more))
	}
}

func receiveClampsMax(e *env, q driver.Queue) {
	const affordable = 5000
	largest := q.Traits().MaxBatch
	if largest > affordable {
		e.t.Logf("not tried with a batch of %d", largest)
		return
	}
	texts := make([]string, largest+5)
	for i := range texts {
		texts[i] = "x"
	}
	e.send(q, texts...)
	got := e.receiveOnce(q, driver.ReceiveRequest{Max: largest + 100, Visibility: e.hold})
	if len(got) > largest || q.Traits().ExactStats && len(got) != largest {
		e.failf("receive of %d ready messages with Max %d: got %d, want %d", len(texts), largest+100, len(got), largest)
	}
	e.receive(q, len(texts)-len(got))
}

func receiveTakesOneOverMaxBytes(e *env, q driver.Queue) {
	e.send(q, "much too long", "much too long")
	for range 2 {
		got := e.receiveOnce(q, driver.ReceiveRequest{Max: 10, MaxBytes: 1, Visibility: e.hold})
		if len(got) != 1 {
			e.failf("receive with MaxBytes 1: got %d messages, want 1", len(got))
		}
	}
}

func inFlightCeilingHolds(e *env, q driver.Queue) {
	e.send(q, "a", "b", "c")
	got := e.receiveOnce(q, driver.ReceiveRequest{Max: 10, Visibility: e.hold})
	if len(got) != 2 {
		e.failf("receive of 3 ready messages with MaxInFlight 2: got %d, want 2", len(got))
	}
	start := time.Now()
	_, err := q.Receive(e.ctx(), driver.ReceiveRequest{Max: 10, Visibility: e.hold, Wait: e.tick()})
	e.expectFull(err, "receive with the in-flight ceiling reached")
	e.expectTime(time.Now(), start.Add(e.tick()), "the refusal, after the wait")
	e.expectStats(q, driver.Stats{Ready: 1, InFlight: 2})
	e.ack(q, got[0])
	e.receive(q, 1)
}

func receiveWithoutWaiting(e *env, q driver.Queue) {
	e.send(q, "a", "b")
	got := e.receiveOnce(q, driver.ReceiveRequest{Max: 10, Visibility: e.hold})
	if len(got) == 0 || q.Traits().ExactStats && len(got) != 2 {
		e.failf("receive without waiting: got %d messages of 2 that are ready", len(got))
	}
}

func emptyReceiveWaits(e *env, q driver.Queue) {
	wait := e.waitUpTo(q, e.tick())
	start := time.Now()
	got, err := q.Receive(e.ctx(), driver.ReceiveRequest{Max: 1, Visibility: e.hold, Wait: wait})
	e.ok(err, "receive on an empty queue")
	if len(got) != 0 {
		e.failf("receive on an empty queue: got %q", bodies(got))
	}
	e.expectTime(time.Now(), start.Add(wait), "the empty answer")
}

func emptyReceiveReturnsAtOnce(e *env, q driver.Queue) {
	start := time.Now()
	e.expectNothing(q)
	e.expectPrompt(start, "receive on an empty queue without waiting")
}

func receiveDoesNotWaitForMore(e *env, q driver.Queue) {
	e.send(q, "alone")
	start := time.Now()
	got, err := q.Receive(e.ctx(), driver.ReceiveRequest{Max: 10, Visibility: e.hold, Wait: e.waitUpTo(q, 2*e.patience)})
	e.ok(err, "receive")
	e.expectBodies(q, got, "alone")
	e.expectPrompt(start, "receive of one message with Max 10 and a long wait")
}

func sealIsKept(e *env, q driver.Queue) {
	longest := make([]byte, driver.MaxSealBytes)
	for i := range longest {
		longest[i] = byte(i)
	}
	e.expectBadSend(q, driver.Outgoing{Seal: append(longest, 0)}, driver.ErrInvalid, "Seal", "a seal that is too long")
	for _, body := range []string{"", "body"} {
		msg := driver.Outgoing{Body: []byte(body), Seal: slices.Clone(longest)}
		id := e.sendOne(q, msg).ID
		clear(msg.Seal) // the caller owns it
		msg.Seal = longest
		got := e.receive(q, 1)[0]
		e.expectMessage(got.Message, msg, id, 1)
		e.ack(q, got)
	}
}

// expectMessage checks that a message equals the sent one.
func (e *env) expectMessage(got driver.Message, sent driver.Outgoing, id string, deliveries int) {
	e.t.Helper()
	if got.ID != id || string(got.Body) != string(sent.Body) || !maps.Equal(got.Attributes, sent.Attributes) ||
		got.Group != sent.Group || got.ReplyTo != sent.ReplyTo || got.CorrelationID != sent.CorrelationID ||
		string(got.Seal) != string(sent.Seal) || got.Priority != sent.Priority || got.Deliveries != deliveries {
		e.failf("got message %+v, want id %s, %d deliveries, and what was sent: %+v", got, id, deliveries, sent)
	}
}

func deliveryTimesAreTrue(e *env, q driver.Queue) {
	sent := time.Now()
	e.send(q, "a")
	e.sleep(e.tick())
	first := e.receive(q, 1)[0]
	received := time.Now()
	e.expire(q, first)
	e.sleep(e.tick())
	second := e.receive(q, 1)[0]

	// Wall clocks of two machines may be two minutes apart.
	tolerance := 2 * time.Minute
	if e.backend.Virtual {
		tolerance = promptness
	}
	if off := first.EnqueuedAt.Sub(sent).Abs(); off > tolerance {
		e.failf("EnqueuedAt: got %v, %v off", first.EnqueuedAt, off)
	}
	if off := first.FirstReceivedAt.Sub(received).Abs(); off > tolerance {
		e.failf("FirstReceivedAt: got %v, %v off", first.FirstReceivedAt, off)
	}
	if waited := first.FirstReceivedAt.Sub(first.EnqueuedAt); waited < e.tick()-e.slack {
		e.failf("FirstReceivedAt is %v after EnqueuedAt, want at least %v", waited, e.tick())
	}
	if !second.EnqueuedAt.Equal(first.EnqueuedAt) || !second.FirstReceivedAt.Equal(first.FirstReceivedAt) {
		e.failf("second delivery: got enqueued %v, first received %v; the first delivery said %v and %v",
			second.EnqueuedAt, second.FirstReceivedAt, first.EnqueuedAt, first.FirstReceivedAt)
	}
	for _, at := range []time.Time{first.EnqueuedAt, first.FirstReceivedAt, second.EnqueuedAt, second.FirstReceivedAt} {
		if _, offset := at.Zone(); offset != 0 {
			e.failf("times are UTC: got %v", at)
		}
	}
}

// cancellable returns a context that ends with the case at the latest.
func (e *env) cancellable() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(e.ctx())
	e.t.Cleanup(cancel)
	return ctx, cancel
}

func waitIsNotRounded(e *env, q driver.Queue) {
	if !e.backend.Virtual {
		e.t.Log("to the fraction of a second, and so checked in virtual time only")
		return
	}
	const wait = 2345678 * time.Microsecond
	start := time.Now()
	if got := e.receiveOnce(q, driver.ReceiveRequest{Max: 1, Visibility: e.hold, Wait: wait}); len(got) > 0 {
		e.failf("an empty queue handed out %d messages", len(got))
	}
	e.expectTime(time.Now(), start.Add(wait), "the end of a wait")
}

func pausedReceiveWaits(e *env, q driver.Queue) {
	e.send(q, "a")
	e.ok(q.Pause(e.ctx()), "pause")
	emptyReceiveWaits(e, q)
}
