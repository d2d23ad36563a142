package drivertest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// strict is a queue that delivers each group in order.
var strict = always(driver.Config{StrictGroups: true})

var groupCases = []testCase{
	{id: "ORD-4", title: "a queue with strict groups says so", config: strict, run: strictQueueSaysSo},
	{
		id: "ORD-4", title: "a plain queue delivers a group's next message while another is in flight",
		needs: []need{needGroups}, run: plainQueueDoesNotBlockGroups,
	},
	{id: "ORD-4", title: "a message joins its group when its send delay is over", config: strict, run: delayedJoinsWhenDue},
	{id: "ORD-4", title: "settling a group's delivery wakes a receiver that waits for the next", config: strict, run: settlingWakesGroup},
	{id: "ORD-4", title: "many groups are all served", config: strict, run: manyGroupsAreServed},
	{id: "ORD-4", title: "of the groups that may go, the one that was served longest ago goes first", config: strict, needs: []need{needFIFO}, run: strictGroupsTakeTurns},
	{
		id: "ORD-4", title: "groups stay in order over several shards",
		config: always(driver.Config{StrictGroups: true, Shards: 4}), run: manyGroupsAreServed,
	},
	{id: "ORD-4", title: "many workers never hold one group twice, and see it in order", config: strict, run: workersSeeGroupsInOrder},
}

// expectAlone receives one message in a call of its own, so that a batch cannot bring the
// group's next message.
func (e *env) expectAlone(q driver.Queue, want string) driver.Delivery {
	e.t.Helper()
	return e.expectBodies(q, e.receive(q, 1), want)[0]
}

func strictQueueSaysSo(e *env, q driver.Queue) {
	if traits := q.Traits(); !traits.StrictGroups || !traits.Groups {
		e.failf("traits of a queue with strict groups: got Groups %v, StrictGroups %v", traits.Groups, traits.StrictGroups)
	}
	if e.open("plain").Traits().StrictGroups {
		e.failf("a queue without a configuration claims strict groups")
	}
}

func plainQueueDoesNotBlockGroups(e *env, q driver.Queue) {
	if q.Traits().StrictGroups {
		e.t.Log("this backend's queues have strict groups by default")
		return
	}
	e.sendTo(q, "g", "g1", "g2")
	e.expectAlone(q, "g1")
	e.expectAlone(q, "g2")
}

func delayedJoinsWhenDue(e *env, q driver.Queue) {
	start := time.Now()
	e.sendOne(q, driver.Outgoing{Body: []byte("g1"), Group: "g", Delay: e.tick()})
	e.sendTo(q, "g", "g2", "g3")
	g2 := e.expectAlone(q, "g2")
	e.nack(q, g2, e.hold, "")
	g1 := e.expectArrival(q, start.Add(e.tick()), "g1") // its place is ahead of g2
	e.expectNothing(q)
	e.ack(q, g1[0])
	e.expectNothing(q)

	e.sendTo(q, "h", "h1")
	e.sendOne(q, driver.Outgoing{Body: []byte("h2"), Group: "h", Delay: e.tick()})
	start = time.Now() // h2 is due at most a tick later
	e.sendTo(q, "h", "h3", "h4")
	held := e.expectBodies(q, e.receiveOnce(q, driver.ReceiveRequest{Max: 2, Visibility: e.hold}), "h1", "h3")
	e.ack(q, held[1])
	e.sleep(time.Until(start.Add(e.tick())))
	e.expectNothing(q) // h1 is in flight
	e.ack(q, held[0])
	got := e.receiveOnce(q, driver.ReceiveRequest{Max: 10, Visibility: e.hold})
	e.expectBodies(q, got, "h2", "h4")
}

func settlingWakesGroup(e *env, q driver.Queue) {
	for how, settle := range map[string]func(d driver.Delivery){
		"ack":    func(d driver.Delivery) { e.ack(q, d) },
		"nack":   func(d driver.Delivery) { e.nack(q, d, 0, "") },
		"expiry": func(d driver.Delivery) { e.expire(q, d) },
		"death": func(d driver.Delivery) {
			if q.Traits().DeadLetters {
				e.deadLetter(q, d, driver.ReasonFatal)
			} else {
				e.ack(q, d)
			}
		},
	} {
		e.sendTo(q, how, "1", "2")
		held := e.expectAlone(q, "1")
		waiting := e.receiveInBackground(e.ctx(), q, 1)
		settle(held)
		want := "1"
		if how == "ack" || how == "death" {
			want = "2"
		}
		e.expectHandedTo(waiting, want, how+" of the group's head")
	}
}

func manyGroupsAreServed(e *env, q driver.Queue) {
	const groups, each = 50, 3
	for i := range each {
		for g := range groups {
			e.sendTo(q, fmt.Sprint("group-", g), fmt.Sprint(i))
		}
	}
	next := make(map[string]int)
	for range groups * each {
		d := e.receive(q, 1)[0]
		if want := fmt.Sprint(next[d.Group]); string(d.Body) != want {
			e.failf("%s: got message %s, want %s", d.Group, d.Body, want)
		}
		next[d.Group]++
		e.ack(q, d)
	}
	e.expectEmpty(q)
}

func strictGroupsTakeTurns(e *env, q driver.Queue) {
	const groups = 40
	name := func(round, g int) string { return fmt.Sprintf("%d of group %d", round, g) }
	for round := range 3 {
		for g := range groups {
			e.sendTo(q, fmt.Sprint("group-", g), name(round, g))
		}
	}
	heads := func(round int) []driver.Delivery {
		var held []driver.Delivery
		for g := range groups {
			held = append(held, e.expectAlone(q, name(round, g)))
		}
		e.expectNothing(q)
		rand.Shuffle(groups, func(i, j int) { held[i], held[j] = held[j], held[i] })
		return held
	}
	for i, d := range heads(0) { // released in any order, they keep their turns
		if i%2 == 0 {
			e.nack(q, d, 0, "")
		} else {
			e.expire(q, d)
		}
	}
	e.ack(q, heads(0)...)
	e.ack(q, heads(1)...)
	e.ack(q, heads(2)...)
	e.expectEmpty(q)
}

func workersSeeGroupsInOrder(e *env, q driver.Queue) {
	const groups, each, workers = 10, 20, 16
	for i := range each {
		for g := range groups {
			e.sendTo(q, fmt.Sprint("group-", g), fmt.Sprint(i))
		}
	}
	var mu sync.Mutex
	next, held, left := make(map[string]int), make(map[string]bool), groups*each

	begin := func(d driver.Delivery) error {
		mu.Lock()
		defer mu.Unlock()
		if held[d.Group] {
			return fmt.Errorf("%s is held by two workers", d.Group)
		}
		if want := fmt.Sprint(next[d.Group]); string(d.Body) != want {
			return fmt.Errorf("%s: got message %s, want %s", d.Group, d.Body, want)
		}
		held[d.Group] = true
		return nil
	}
	end := func(d driver.Delivery, acked bool) {
		mu.Lock()
		defer mu.Unlock()
		held[d.Group] = false
		if acked {
			next[d.Group]++
			left--
		}
	}
	remaining := func() int { mu.Lock(); defer mu.Unlock(); return left }

	deadline := time.Now().Add(4 * e.patience)
	e.parallel(workers, func(worker int) error {
		for turn := worker; remaining() > 0; turn++ {
			if time.Now().After(deadline) {
				return errors.New("the workers are stuck")
			}
			got, err := e.poll(q, driver.ReceiveRequest{Max: 1, Visibility: e.hold, Wait: e.unit})
			if err != nil {
				return err
			}
			for _, d := range got {
				if err := begin(d); err != nil {
					return err
				}
				nacked := turn%5 == 0
				end(d, !nacked) // before settling: afterwards the next may already be in flight
				if nacked {
					err = tryNack(e, q, d, 0, "again")
				} else {
					err = tryAck(e, q, d)
				}
				if err != nil {
					return err
				}
			}
		}
		return nil
	})
	e.expectEmpty(q)
}
