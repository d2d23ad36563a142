package drivertest

import (
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var clockCases = []testCase{
	{
		id: "TIME-0", title: "a receive that waits notices within two seconds that the wall clock was set", setsClock: true,
		needs: []need{needClock, needDeliverAt}, run: waitingReceiveNoticesStep,
	},
	{
		id: "TIME-0", title: "a schedule follows the wall clock", setsClock: true,
		needs: []need{needClock, needSchedules}, run: schedulesFollowClock,
	},
}

// clockNoticed is how long a backend may take to notice that its wall clock was set: it may read
// the clock once a second, and look once a second for what is due.
const clockNoticed = 2 * time.Second

func waitingReceiveNoticesStep(e *env, q driver.Queue) {
	_, err := q.Send(e.ctx(), []driver.Outgoing{{Body: []byte("a"), DeliverAt: e.wall().Add(e.hold)}})
	e.ok(err, "send with a due time")
	waiting := e.receiveInBackground(e.ctx(), q, 1)
	e.sleep(e.tick())
	e.setWall(e.hold)
	e.sleep(clockNoticed)
	got := e.await(waiting, "setting the wall clock")
	e.ok(got.err, "receive")
	if len(got.deliveries) != 1 {
		e.failf("the receive that waited got %d messages, want 1", len(got.deliveries))
	}
}

func schedulesFollowClock(e *env, q driver.Queue) {
	s := e.schedule(q, "nightly")
	f := driver.Firing{Name: "nightly", Revision: s.Revision, Through: s.Now.Add(e.hold), Messages: due(s.Now.Add(e.hold), "a")}
	e.expectUndone(q, f, s, "for a time that has not come")
	e.setWall(2 * e.hold)
	e.sleep(clockNoticed)
	s = e.fired(q, f)
	e.setWall(0)
	e.sleep(clockNoticed)
	f = driver.Firing{Name: "nightly", Revision: s.Revision, Through: s.Now, Messages: due(s.Now, "b")}
	if _, done, err := q.Fire(e.ctx(), f); done || err != nil {
		e.failf("a firing for a time that the wall clock was set back from: done is %v, %v; want it left undone", done, err)
	}
	e.expectNext(q, "a")
	e.expectNothing(q)
}
