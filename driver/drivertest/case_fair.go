package drivertest

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var (
	// fair is a queue that serves quiet groups first.
	fair      = always(driver.Config{FairGroups: true})
	fairNeeds = []need{needInForce("FairGroups", func(c driver.Config) bool { return c.FairGroups })}
)

var fairCases = []testCase{
	{id: "FAIR-1", title: "a queue with fair groups says so", config: fair, needs: fairNeeds, run: fairQueueSaysSo},
	{id: "FAIR-1", title: "groups cannot be fair and strict", config: fair, needs: fairNeeds, run: fairIsNotStrict},
	{id: "FAIR-1", title: "a quiet group goes before a long backlog", config: fair, needs: fairNeeds, run: quietGoesBeforeBacklog},
	{id: "FAIR-1", title: "what is settled is not in flight", config: fair, needs: fairNeeds, run: settledIsNotInFlight},

	{id: "FAIR-2", title: "newcomers do not starve a backlog", config: fair, needs: fairNeeds, run: nothingStarves},

	{id: "FAIR-3", title: "a group is in order", config: fair, needs: fairNeeds, run: fairGroupIsInOrder},
	{id: "FAIR-3", title: "all of many groups is delivered once", config: fair, needs: fairNeeds, run: fairGroupsAreServed},
	{
		id: "FAIR-3", title: "groups stay in order over several shards",
		config: always(driver.Config{FairGroups: true, Shards: 4}), needs: fairNeeds, run: fairGroupIsInOrder,
	},
	{
		id: "FAIR-3", title: "a peek shows messages by their places, and a move takes them in that order",
		config: fair, needs: append(slices.Clone(moveNeeds), append([]need{needPeek}, fairNeeds...)...), run: fairGroupsMoveByPlace,
	},
}

func fairQueueSaysSo(e *env, q driver.Queue) {
	if traits := q.Traits(); !traits.FairGroups || !traits.Groups || traits.StrictGroups {
		e.failf("traits of a queue with fair groups: got Groups %v, FairGroups %v, StrictGroups %v", traits.Groups, traits.FairGroups, traits.StrictGroups)
	}
	if e.open("plain").Traits().FairGroups {
		e.failf("a queue without a configuration claims fair groups")
	}
}

func fairIsNotStrict(e *env, _ driver.Queue) {
	err := e.opener.(driver.Admin).ConfigureQueue(e.ctx(), "both", driver.Config{FairGroups: true, StrictGroups: true})
	e.expectCode(err, driver.ErrInvalid, "configure both fair and strict groups")
	e.expectInvalid(err, driver.ErrInvalid, "FairGroups", "configure both fair and strict groups")
}

// sendMany sends n messages to a group, numbered from 1.
func (e *env) sendMany(q driver.Queue, group string, n int) {
	e.t.Helper()
	most := min(q.Traits().MaxBatch, 250)
	var batch []driver.Outgoing
	for i := range n {
		batch = append(batch, driver.Outgoing{Body: fmt.Append(nil, group, i+1), Group: group})
		if len(batch) == most || i == n-1 {
			_, err := q.Send(e.ctx(), batch)
			e.ok(err, "send to group %s", group)
			batch = nil
		}
	}
}

func quietGoesBeforeBacklog(e *env, q driver.Queue) {
	backlog := e.rounds(10_000, 2_000)
	e.sendMany(q, "n", backlog)
	e.sendTo(q, "q", "q1")
	e.expectAlone(q, "n1")
	e.expectAlone(q, "q1")
	e.expectBodies(q, e.receive(q, 3), "n2", "n3", "n4") // no other group has ready messages
	e.sendTo(q, "q", "q2", "q3")
	e.sendTo(q, "r", "r1")
	e.expectAlone(q, "r1")
	e.expectAlone(q, "q2")
	e.expectAlone(q, "q3")
	e.expectStats(q, driver.Stats{Ready: backlog - 4, InFlight: 8})
}

func settledIsNotInFlight(e *env, q driver.Queue) {
	type way struct {
		settle func(d driver.Delivery)
		next   string
	}
	ways := map[string]way{
		"ack":    {func(d driver.Delivery) { e.ack(q, d) }, "3"},
		"nack":   {func(d driver.Delivery) { e.nack(q, d, e.hold, "") }, "3"},
		"expiry": {func(d driver.Delivery) { e.expire(q, d) }, "1"},
	}
	if q.Traits().DeadLetters {
		ways["death"] = way{func(d driver.Delivery) { e.deadLetter(q, d, driver.ReasonFatal) }, "3"}
	}
	for name, way := range ways {
		busy, other := name+" busy ", name+" other "
		e.sendMany(q, busy, 3)
		e.sendMany(q, other, 2)
		first := e.expectAlone(q, busy+"1")
		e.expectAlone(q, other+"1")
		second := e.expectAlone(q, busy+"2")
		way.settle(first)
		way.settle(second)
		e.expectAlone(q, busy+way.next)
		_, err := q.Purge(e.ctx())
		e.ok(err, "purge")
	}
}

func nothingStarves(e *env, q driver.Queue) {
	const backlog, newcomers = 5, 40
	e.sendMany(q, "n", backlog)
	served := 0
	for i := range newcomers {
		if i%2 == 0 {
			e.send(q, fmt.Sprint("alone ", i))
		} else {
			e.sendTo(q, fmt.Sprint("group ", i), fmt.Sprint("new ", i))
		}
		got := e.receive(q, 1)[0]
		if got.Group == "n" {
			served++
		}
		e.ack(q, got)
	}
	if served < backlog {
		e.failf("of a backlog of %d messages %d were delivered while %d others came and went", backlog, served, newcomers)
	}
}

func fairGroupIsInOrder(e *env, q driver.Queue) {
	const groups, each = 20, 15
	for i := range each {
		for g := range groups {
			e.sendTo(q, fmt.Sprint("group-", g), fmt.Sprint(i))
		}
	}
	next := make(map[string]int)
	for left := groups * each; left > 0; {
		got := e.take(q, min(7, left), e.hold, time.Now())
		if len(got) == 0 {
			e.failf("%d messages are missing", left)
		}
		for _, d := range got {
			if want := fmt.Sprint(next[d.Group]); string(d.Body) != want {
				e.failf("%s: got message %s, want %s", d.Group, d.Body, want)
			}
			next[d.Group]++
		}
		left -= len(got)
		if left%2 == 0 { // some stay in flight
			e.ack(q, got...)
		}
	}
	e.expectNothing(q)
}

func fairGroupsAreServed(e *env, q driver.Queue) {
	const groups, each, workers = 40, 10, 8
	for i := range each {
		for g := range groups {
			e.sendTo(q, fmt.Sprint("group-", g), fmt.Sprint(g, " ", i))
		}
	}
	var mu sync.Mutex
	seen := make(map[string]int)
	deadline := time.Now().Add(4 * e.patience)
	e.parallel(workers, func(int) error {
		for {
			mu.Lock()
			done := len(seen) == groups*each
			mu.Unlock()
			if done || time.Now().After(deadline) {
				return nil
			}
			got, err := e.poll(q, driver.ReceiveRequest{Max: 3, Visibility: e.hold, Wait: e.unit})
			if err != nil {
				return err
			}
			for _, d := range got {
				mu.Lock()
				seen[string(d.Body)]++
				mu.Unlock()
				if err := tryAck(e, q, d); err != nil {
					return err
				}
			}
		}
	})
	for body, times := range seen {
		if times != 1 {
			e.failf("message %s was delivered %d times", body, times)
		}
	}
	if len(seen) != groups*each {
		e.failf("%d messages were delivered, want %d", len(seen), groups*each)
	}
	e.expectEmpty(q)
}

func fairGroupsMoveByPlace(e *env, q driver.Queue) {
	target := e.configure(targetQueue, driver.Config{})
	want := []string{"a1", "a2", "b1", "1", "a3", "b2"}
	for _, body := range want {
		e.sendTo(q, map[byte]string{'a': "a", 'b': "b"}[body[0]], body)
	}
	e.ack(q, e.expectAlone(q, "a1"))
	var looked []string
	for seen, err := range q.Peek(e.ctx(), driver.Query{States: []driver.State{driver.StateReady}}) {
		e.ok(err, "peek")
		looked = append(looked, string(seen.Body))
	}
	if want = want[1:]; !slices.Equal(looked, want) {
		e.failf("peek: got %q, want %q", looked, want)
	}
	for range 2 {
		moved, err := q.Move(e.ctx(), targetQueue, 3)
		e.ok(err, "move")
		if moved == 0 {
			e.failf("nothing was moved")
		}
	}
	e.expectNext(target, want...)
	e.expectEmpty(q)
}

func fairnessSurvives(e *env, q driver.Queue, how Crash) {
	e.sendMany(q, "n", 300)
	e.sendTo(q, "q", "q1", "q2")
	q = e.restart(how)
	quiet := 0
	for range 20 { // the backend may have to search its backlog
		if got := e.receive(q, 1)[0]; got.Group == "q" {
			if want := fmt.Sprint("q", quiet+1); string(got.Body) != want {
				e.failf("got %s of the quiet group, want %s", got.Body, want)
			}
			quiet++
		}
	}
	if quiet != 2 {
		e.failf("of 20 messages %d were of the quiet group, want 2", quiet)
	}
	e.expectStats(q, driver.Stats{Ready: 282, InFlight: 20})
}

func fairOrderSurvives(e *env, q driver.Queue, how Crash) {
	e.sendMany(q, "a", 6)
	e.sendMany(q, "b", 3)
	e.ack(q, e.expectAlone(q, "a1"))
	e.nack(q, e.receive(q, 1)[0], 0, "") // b1
	e.nack(q, e.expectAlone(q, "a2"), 0, "")
	q = e.restart(how)
	next := map[string][]string{"a": {"a3", "a4", "a5", "a6", "a2"}, "b": {"b2", "b3", "b1"}}
	for range 8 {
		got := e.receive(q, 1)[0]
		left := next[got.Group]
		if len(left) == 0 || left[0] != string(got.Body) {
			e.failf("got %s, want the first of %q", got.Body, left)
		}
		next[got.Group] = left[1:]
	}
	e.expectNothing(q)
}
