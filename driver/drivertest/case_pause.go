package drivertest

import (
	"bytes"
	"slices"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// pauseCases are those in which receives wait. The others are in stories/pause.txt.
var pauseCases = []testCase{
	{id: "FLOW-2", title: "a receive that waits is not served while the queue is paused, and at once when it is resumed",
		needs: []need{needPause}, run: waiterIsServedAfterPause},
	{id: "FLOW-2", title: "resuming wakes a receive that began while the queue was paused", needs: []need{needPause}, run: resumeWakes},
	{id: "FLOW-2", title: "a receive of a paused queue waits for as long as it may", needs: []need{needPause}, run: pausedReceiveWaits},
	{id: "FLOW-2", title: "a lease that runs out during a pause is delivered when the queue is resumed",
		needs: []need{needPause}, run: leaseEndsDuringPause},
	{id: "FLOW-2", title: "a pause holds for all handles", needs: []need{needPause}, run: pauseHoldsForAllHandles},
	{id: "FLOW-2", title: "a pause holds in all shards", config: always(driver.Config{Shards: 4}),
		needs: []need{needPause}, run: pauseHoldsInAllShards},
	{id: "FLOW-2", title: "a deleted queue comes back unpaused", needs: []need{needPause, needAdmin}, run: deletingEndsPause},
}

func (e *env) pause(q driver.Queue) {
	e.t.Helper()
	e.ok(q.Pause(e.ctx()), "pause")
}

func (e *env) resume(q driver.Queue) {
	e.t.Helper()
	e.ok(q.Resume(e.ctx()), "resume")
}

// expectPaused checks whether Stats says that the queue is paused.
func (e *env) expectPaused(q driver.Queue, want bool) {
	e.t.Helper()
	stats, err := q.Stats(e.ctx())
	e.ok(err, "stats")
	if stats.Paused != want {
		e.failf("stats say paused: %v, want %v", stats.Paused, want)
	}
}

func waiterIsServedAfterPause(e *env, q driver.Queue) {
	waiting := e.receiveInBackground(e.ctx(), q, 10)
	e.pause(q)
	e.send(q, "a")
	select {
	case got := <-waiting:
		e.failf("a receive of a paused queue got %q, error %v", bodies(got.deliveries), got.err)
		return
	case <-time.After(e.tick):
	}
	e.resume(q)
	e.expectHandedTo(waiting, "a", "resume")
}

func resumeWakes(e *env, q driver.Queue) {
	e.send(q, "a", "b")
	e.pause(q)
	first := e.receiveInBackground(e.ctx(), q, 1)
	second := e.receiveInBackground(e.ctx(), e.open(queueName), 1)
	e.sleep(e.tick)
	e.resume(e.open(queueName))
	got := append(e.await(first, "resume").deliveries, e.await(second, "resume").deliveries...)
	slices.SortFunc(got, func(a, b driver.Delivery) int { return bytes.Compare(a.Body, b.Body) }) // either may be first
	e.expectBodies(q, got, "a", "b")
}

func pausedReceiveWaits(e *env, q driver.Queue) {
	e.send(q, "a")
	e.pause(q)
	start := time.Now()
	wait := e.waitUpTo(q, e.tick)
	got, err := q.Receive(e.ctx(), driver.ReceiveRequest{Max: 1, Visibility: e.hold, Wait: wait})
	e.ok(err, "receive from a paused queue")
	if len(got) > 0 || time.Since(start) < wait-e.slack {
		e.failf("a receive of a paused queue got %q after %v, want nothing after %v", bodies(got), time.Since(start), wait)
	}
}

func leaseEndsDuringPause(e *env, q driver.Queue) {
	e.send(q, "a")
	held := e.receiveFor(q, 1, e.tick)[0]
	e.pause(q)
	e.sleep(2 * e.tick)
	e.expectExpired(q, held, "a delivery whose lease ran out during a pause")
	e.resume(q)
	if again := e.expectNext(q, "a")[0]; again.Deliveries != 2 {
		e.failf("delivery %d, want 2", again.Deliveries)
	}
}

func pauseHoldsForAllHandles(e *env, q driver.Queue) {
	e.send(q, "a")
	other := e.open(queueName)
	e.pause(other)
	e.expectNothing(q)
	e.expectPaused(q, true)
	e.resume(q)
	e.expectPaused(other, false)
	e.expectNext(other, "a")
}

func pauseHoldsInAllShards(e *env, q driver.Queue) {
	sent := numbered("m", 8)
	e.pause(q)
	e.send(q, sent...)
	e.expectNothing(q)
	e.expectStats(q, driver.Stats{Ready: len(sent), Paused: true})
	e.resume(q)
	e.receive(q, len(sent))
}

func deletingEndsPause(e *env, q driver.Queue) {
	e.pause(q)
	e.ok(e.opener.(driver.Admin).DeleteQueue(e.ctx(), queueName), "delete")
	q = e.open(queueName)
	e.send(q, "a")
	e.expectPaused(q, false)
	e.expectNext(q, "a")
}

func pauseSurvives(e *env, q driver.Queue, how Crash) {
	e.send(q, "a")
	e.pause(q)
	q = e.restart(how)
	e.expectPaused(q, true)
	e.expectNothing(q)
	e.send(q, "b")
	e.resume(q)
	q = e.restart(how)
	e.expectPaused(q, false)
	e.expectNext(q, "a", "b")
}
