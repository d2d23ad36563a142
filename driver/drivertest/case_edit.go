package drivertest

import (
	"fmt"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// editCases are those in which receives wait, and those with arguments that a story cannot
// express. The others are in stories/edit.txt.
var editCases = []testCase{
	{id: "FLOW-3", title: "a message is found in any shard", config: always(driver.Config{Shards: 4}),
		needs: []need{needEdit}, run: editsSpanShards},
	{id: "FLOW-3", title: "a peek shows the new due time", needs: []need{needEdit, needPeek}, run: peekShowsNewDueTime},
	{id: "FLOW-3", title: "one of many waiting messages is found", needs: []need{needEdit}, run: oneOfManyIsFound},
	{id: "FLOW-3", title: "exactly one change must be given, and a due time that is not too far ahead",
		needs: []need{needEdit}, run: badEditsAreRefused},
	{id: "FLOW-3", title: "many changes of many messages leave the counts right", needs: []need{needEdit, needExactStats}, run: manyEditsCount, repeats: true},
}

// edit changes a message that must be in this state.
func (e *env) edit(q driver.Queue, id string, edit driver.Edit, want driver.State) {
	e.t.Helper()
	was, err := q.Edit(e.ctx(), id, edit)
	e.ok(err, "edit %+v", edit)
	if was != want {
		e.failf("edit %+v: got state %q, want %q", edit, was, want)
	}
}

func editsSpanShards(e *env, q driver.Queue) {
	for i := range 12 {
		msg := driver.Outgoing{Body: fmt.Append(nil, i), Delay: e.hold}
		if q.Traits().Groups {
			msg.Group = fmt.Sprint("group-", i)
		}
		id := e.sendOne(q, msg).ID
		e.edit(q, id, driver.Edit{Ready: true}, driver.StateDelayed)
		if i%2 == 0 {
			e.edit(q, id, driver.Edit{Remove: true}, driver.StateReady)
		}
	}
	e.expectStats(q, driver.Stats{Ready: 6})
	e.receive(q, 6)
	e.expectNothing(q)
}

func peekShowsNewDueTime(e *env, q driver.Queue) {
	id := e.sendLater(q, e.hold, "a")
	due := time.Now().Add(2 * e.hold)
	e.edit(q, id, driver.Edit{DeliverAt: due}, driver.StateDelayed)
	seen := e.peekOne(q, id)
	if off := seen.DueAt.Sub(due).Abs(); seen.State != driver.StateDelayed || off > e.tick() {
		e.failf("peek: got state %q, due %v; want delayed, due %v", seen.State, seen.DueAt, due)
	}
	e.edit(q, id, driver.Edit{Ready: true}, driver.StateDelayed)
	if seen = e.peekOne(q, id); seen.State != driver.StateReady || !seen.DueAt.IsZero() {
		e.failf("peek: got state %q, due %v; want ready, and no due time", seen.State, seen.DueAt)
	}
}

func oneOfManyIsFound(e *env, q driver.Queue) {
	bodies := numbered("m", e.rounds(3000, 300))
	ids := e.send(q, bodies...)
	last := len(ids) - 1
	for _, i := range []int{last, last / 2, 1} {
		e.edit(q, ids[i], driver.Edit{Remove: true}, driver.StateReady)
		_, err := q.Edit(e.ctx(), ids[i], driver.Edit{Ready: true})
		e.expectCode(err, driver.ErrNotFound, "edit of a message that was removed")
	}
	e.expectStats(q, driver.Stats{Ready: len(ids) - 3})
	e.expectNext(q, bodies[0])
}

func badEditsAreRefused(e *env, q driver.Queue) {
	longest := q.Traits().MaxDelay
	id := e.send(q, "a")[0]
	for what, bad := range map[string]struct {
		edit  driver.Edit
		limit string
	}{
		"no change":                      {driver.Edit{}, "one of"},
		"two changes":                    {driver.Edit{Remove: true, Ready: true}, "one of"},
		"a removal with a due time":      {driver.Edit{Remove: true, DeliverAt: time.Now()}, "one of"},
		"a due time that is too far off": {driver.Edit{DeliverAt: time.Now().Add(longest + time.Minute)}, longest.String()},
	} {
		_, err := q.Edit(e.ctx(), id, bad.edit)
		e.expectInvalid(err, driver.ErrInvalid, bad.limit, what)
	}
	e.expectStats(q, driver.Stats{Ready: 1})
	e.expectNext(q, "a")
}

func manyEditsCount(e *env, q driver.Queue) {
	ids := e.send(q, numbered("m", e.rounds(200, 40))...)
	for i, id := range ids {
		switch i % 4 {
		case 0:
			e.edit(q, id, driver.Edit{Remove: true}, driver.StateReady)
		case 1:
			e.edit(q, id, driver.Edit{DeliverAt: time.Now().Add(e.hold)}, driver.StateReady)
		case 2:
			e.edit(q, id, driver.Edit{DeliverAt: time.Now().Add(e.hold)}, driver.StateReady)
			e.edit(q, id, driver.Edit{Ready: true}, driver.StateDelayed)
		}
	}
	n := len(ids) / 4
	e.expectStats(q, driver.Stats{Ready: 2 * n, Delayed: n})
	e.purge(q, 3*n)
}
