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
		id: "ORD-4", title: "a plain queue delivers a group's next message while another is out",
		needs: []need{needGroups}, run: plainQueueDoesNotBlockGroups,
	},
	{id: "ORD-4", title: "nothing of a group is delivered while an earlier message is in flight", config: strict, run: groupWaitsForItsHead},
	{id: "ORD-4", title: "other groups go on", config: strict, run: otherGroupsGoOn},
	{id: "ORD-4", title: "one batch may hold several of a group, in order", config: strict, run: batchHoldsSeveral},
	{id: "ORD-4", title: "a group goes on when all before the next is settled, not earlier", config: strict, run: groupGoesOnWhenAllIsSettled},
	{id: "ORD-4", title: "a released head is deliverable while later ones of its batch are in flight", config: strict, run: releasedHeadComesBack},
	{id: "ORD-4", title: "an expired head is deliverable while later ones of its batch are in flight", config: strict, run: expiredHeadComesBack},
	{id: "ORD-4", title: "a nacked message keeps its place in its group", config: strict, run: nackedKeepsItsPlace},
	{id: "ORD-4", title: "a message nacked out of a batch comes back before what was behind it", config: strict, run: nackedOutOfBatch},
	{id: "ORD-4", title: "an expired message keeps its place in its group", config: strict, run: expiredKeepsItsPlace},
	{id: "ORD-4", title: "a nack delay blocks later messages of the group", config: strict, run: delayedNackBlocksLater},
	{id: "ORD-4", title: "a nack delay does not block earlier messages of the group", config: strict, run: delayedNackLetsEarlierGo},
	{id: "ORD-4", title: "a send delay does not hold a group", config: strict, run: sendDelayHoldsNothing},
	{id: "ORD-4", title: "a message joins its group when its send delay is over", config: strict, run: delayedJoinsWhenDue},
	{id: "ORD-4", title: "a receive takes what it may of one group and then of the next", config: strict, needs: []need{needFIFO}, run: batchGoesGroupByGroup},
	{id: "ORD-4", title: "a group that was received from goes behind the others", config: strict, needs: []need{needFIFO}, run: servedGroupGoesBehind},
	{id: "ORD-4", title: "messages without a group are one group", config: strict, run: emptyGroupIsOneGroup},
	{id: "ORD-4", title: "a dead letter frees its group", config: strict, needs: []need{needDeadLetters}, run: deadLetterFreesGroup},
	{id: "ORD-4", title: "a purge frees all groups", config: strict, run: purgeFreesGroups},
	{id: "ORD-4", title: "messages behind their group count as ready", config: strict, run: blockedCountAsReady},
	{id: "ORD-4", title: "settling a group's delivery wakes a receiver that waits for the next", config: strict, run: settlingWakesGroup},
	{id: "ORD-4", title: "a stale receipt does not free a group", config: strict, run: staleReceiptFreesNoGroup},
	{id: "ORD-4", title: "many groups are all served", config: strict, run: manyGroupsAreServed},
	{id: "ORD-4", title: "of the groups that may go, the one that was served longest ago goes first", config: strict, needs: []need{needFIFO}, run: strictGroupsTakeTurns},
	{
		id: "ORD-4", title: "groups stay in order over several shards",
		config: always(driver.Config{StrictGroups: true, Shards: 4}), run: manyGroupsAreServed,
	},
	{id: "ORD-4", title: "many workers never hold one group twice, and see it in order", config: strict, run: workersSeeGroupsInOrder},
}

// expectAlone receives one message with its own call, so that no batch lets a
// group's next message out.
func (s *session) expectAlone(q driver.Queue, want string) driver.Delivery {
	s.t.Helper()
	return s.expectBodies(q, s.receive(q, 1), want)[0]
}

func strictQueueSaysSo(s *session, q driver.Queue) {
	if traits := q.Traits(); !traits.StrictGroups || !traits.Groups {
		s.failf("traits of a queue with strict groups: got Groups %v, StrictGroups %v", traits.Groups, traits.StrictGroups)
	}
	if s.open("plain").Traits().StrictGroups {
		s.failf("a queue nobody configured claims strict groups")
	}
}

func plainQueueDoesNotBlockGroups(s *session, q driver.Queue) {
	if q.Traits().StrictGroups {
		s.t.Log("this backend's queues have strict groups by default")
		return
	}
	s.sendTo(q, "g", "g1", "g2")
	s.expectAlone(q, "g1")
	s.expectAlone(q, "g2")
}

func groupWaitsForItsHead(s *session, q driver.Queue) {
	s.sendTo(q, "g", "g1", "g2", "g3")
	for _, want := range []string{"g1", "g2", "g3"} {
		held := s.expectAlone(q, want)
		s.expectNothing(q)
		s.ack(q, held)
	}
	s.expectEmpty(q)
}

func otherGroupsGoOn(s *session, q driver.Queue) {
	s.sendTo(q, "g", "g1", "g2")
	s.sendTo(q, "h", "h1", "h2")
	s.send(q, "none")
	g1 := s.expectAlone(q, "g1")
	h1 := s.expectAlone(q, "h1")
	s.expectAlone(q, "none")
	s.expectNothing(q)
	s.ack(q, h1)
	s.expectAlone(q, "h2")
	s.expectNothing(q)
	s.ack(q, g1)
	s.expectAlone(q, "g2")
}

func batchHoldsSeveral(s *session, q driver.Queue) {
	s.sendTo(q, "g", "g1", "g2", "g3", "g4")
	got := s.receiveOnce(q, driver.ReceiveRequest{Max: 3, Visibility: s.hold})
	s.expectBodies(q, got, "g1", "g2", "g3")
	s.expectNothing(q)
}

func groupGoesOnWhenAllIsSettled(s *session, q driver.Queue) {
	s.sendTo(q, "g", "g1", "g2", "g3")
	held := s.expectBodies(q, s.receive(q, 2), "g1", "g2")
	s.ack(q, held[0])
	s.expectNothing(q)
	s.ack(q, held[1])
	s.expectAlone(q, "g3")
}

func releasedHeadComesBack(s *session, q driver.Queue) {
	s.sendTo(q, "g", "g1", "g2", "g3", "g4")
	held := s.expectBodies(q, s.receive(q, 3), "g1", "g2", "g3")
	s.nack(q, held[0], 0, "")
	again := s.expectAlone(q, "g1")
	s.expectNothing(q) // g2 and g3 are in flight, and g4 is behind them
	s.ack(q, again, held[1], held[2])
	s.expectAlone(q, "g4")

	s.sendTo(q, "h", "h1", "h2", "h3")
	held = s.expectBodies(q, s.receive(q, 3), "h1", "h2", "h3")
	s.nack(q, held[0], 0, "")
	s.nack(q, held[1], 0, "")
	got := s.receiveOnce(q, driver.ReceiveRequest{Max: 10, Visibility: s.hold})
	s.expectBodies(q, got, "h1", "h2")
}

func expiredHeadComesBack(s *session, q driver.Queue) {
	s.sendTo(q, "g", "g1", "g2", "g3")
	start := time.Now()
	held := s.expectBodies(q, s.receiveFor(q, 2, s.tick), "g1", "g2")
	s.ok(extended(q.Extend(s.ctx(), []driver.Extension{{Receipt: held[1].Receipt, Visibility: s.hold}})), "extend")
	again := s.expectArrival(q, start.Add(s.tick), "g1")
	s.expectNothing(q)
	s.ack(q, again[0])
	s.expectNothing(q)
	s.ack(q, held[1])
	s.expectAlone(q, "g3")
}

func nackedKeepsItsPlace(s *session, q driver.Queue) {
	s.sendTo(q, "g", "g1", "g2")
	s.nack(q, s.expectAlone(q, "g1"), 0, "again")
	again := s.expectAlone(q, "g1")
	if again.Deliveries != 2 || again.LastError != "again" {
		s.failf("a nacked message of a group: got Deliveries %d, LastError %q", again.Deliveries, again.LastError)
	}
	s.ack(q, again)
	s.expectAlone(q, "g2")
}

func nackedOutOfBatch(s *session, q driver.Queue) {
	s.sendTo(q, "g", "g1", "g2", "g3", "g4")
	held := s.expectBodies(q, s.receive(q, 3), "g1", "g2", "g3")
	s.nack(q, held[1], 0, "")
	s.expectNothing(q) // g1 is in flight
	s.ack(q, held[2])
	s.expectNothing(q)
	s.ack(q, held[0])
	again := s.expectAlone(q, "g2")
	s.expectNothing(q)
	s.ack(q, again)
	s.expectAlone(q, "g4")
}

func expiredKeepsItsPlace(s *session, q driver.Queue) {
	s.sendTo(q, "g", "g1", "g2", "g3")
	start := time.Now()
	s.receiveFor(q, 2, s.tick)
	s.expectArrival(q, start.Add(s.tick), "g1", "g2")
}

func delayedNackBlocksLater(s *session, q driver.Queue) {
	s.sendTo(q, "g", "g1", "g2")
	s.sendTo(q, "h", "h1")
	s.nack(q, s.expectAlone(q, "g1"), s.hold, "")
	s.expectAlone(q, "h1")
	s.expectNothing(q)

	s.sendTo(q, "i", "i1", "i2")
	i1 := s.expectAlone(q, "i1")
	start := time.Now()
	s.nack(q, i1, s.tick, "")
	s.expectArrival(q, start.Add(s.tick), "i1")
	s.expectNothing(q)
}

func delayedNackLetsEarlierGo(s *session, q driver.Queue) {
	s.sendTo(q, "g", "g1", "g2", "g3", "g4")
	held := s.expectBodies(q, s.receive(q, 3), "g1", "g2", "g3")
	s.nack(q, held[1], s.hold, "")
	s.nack(q, held[0], 0, "")
	s.ack(q, held[2])
	again := s.expectAlone(q, "g1")
	s.expectNothing(q)
	s.ack(q, again)
	s.expectNothing(q) // g2 waits for its delay, and g4 for g2
}

func sendDelayHoldsNothing(s *session, q driver.Queue) {
	s.sendOne(q, driver.Outgoing{Body: []byte("g1"), Group: "g", Delay: s.hold})
	s.sendTo(q, "g", "g2", "g3")
	held := s.expectAlone(q, "g2")
	s.expectNothing(q)
	s.ack(q, held)
	s.expectAlone(q, "g3")

	s.sendTo(q, "i", "i1")
	s.sendOne(q, driver.Outgoing{Body: []byte("i2"), Group: "i", Delay: s.hold})
	s.sendTo(q, "i", "i3")
	got := s.receiveOnce(q, driver.ReceiveRequest{Max: 10, Visibility: s.hold})
	s.expectBodies(q, got, "i1", "i3")
}

func delayedJoinsWhenDue(s *session, q driver.Queue) {
	start := time.Now()
	s.sendOne(q, driver.Outgoing{Body: []byte("g1"), Group: "g", Delay: s.tick})
	s.sendTo(q, "g", "g2", "g3")
	g2 := s.expectAlone(q, "g2")
	s.nack(q, g2, s.hold, "")
	g1 := s.expectArrival(q, start.Add(s.tick), "g1") // its place is before g2
	s.expectNothing(q)
	s.ack(q, g1[0])
	s.expectNothing(q)

	s.sendTo(q, "h", "h1")
	s.sendOne(q, driver.Outgoing{Body: []byte("h2"), Group: "h", Delay: s.tick})
	start = time.Now() // h2 is due a tick later at the latest
	s.sendTo(q, "h", "h3", "h4")
	held := s.expectBodies(q, s.receiveOnce(q, driver.ReceiveRequest{Max: 2, Visibility: s.hold}), "h1", "h3")
	s.ack(q, held[1])
	s.sleep(time.Until(start.Add(s.tick)))
	s.expectNothing(q) // h1 is in flight
	s.ack(q, held[0])
	got := s.receiveOnce(q, driver.ReceiveRequest{Max: 10, Visibility: s.hold})
	s.expectBodies(q, got, "h2", "h4")
}

func batchGoesGroupByGroup(s *session, q driver.Queue) {
	for i := range 3 {
		for _, group := range []string{"g", "h", "i"} {
			s.sendTo(q, group, fmt.Sprint(group, i+1))
		}
	}
	got := s.receiveOnce(q, driver.ReceiveRequest{Max: 2, Visibility: s.hold})
	s.expectBodies(q, got, "g1", "g2")
	got = s.receiveOnce(q, driver.ReceiveRequest{Max: 5, Visibility: s.hold})
	s.expectBodies(q, got, "h1", "h2", "h3", "i1", "i2")
	s.expectNothing(q)
}

func servedGroupGoesBehind(s *session, q driver.Queue) {
	for _, group := range []string{"g", "h", "i"} {
		s.sendTo(q, group, group+"1", group+"2", group+"3")
	}
	for _, want := range []string{"g1", "h1", "i1", "g2"} {
		s.ack(q, s.expectAlone(q, want))
	}
	s.sendTo(q, "j", "j1")
	s.nack(q, s.expectAlone(q, "h2"), 0, "")
	for _, want := range []string{"i2", "g3", "j1", "h2", "i3", "h3"} {
		s.ack(q, s.expectAlone(q, want))
	}
	s.expectEmpty(q)
}

func emptyGroupIsOneGroup(s *session, q driver.Queue) {
	s.send(q, "1", "2")
	first := s.expectAlone(q, "1")
	s.expectNothing(q)
	s.ack(q, first)
	s.expectAlone(q, "2")
}

func deadLetterFreesGroup(s *session, q driver.Queue) {
	s.sendTo(q, "g", "g1", "g2")
	s.bury(q, s.expectAlone(q, "g1"), driver.ReasonFatal)
	s.expectAlone(q, "g2")
}

func purgeFreesGroups(s *session, q driver.Queue) {
	s.sendTo(q, "g", "g1", "g2")
	s.expectAlone(q, "g1")
	_, err := q.Purge(s.ctx())
	s.ok(err, "purge")
	s.sendTo(q, "g", "g3")
	s.expectAlone(q, "g3")
}

func blockedCountAsReady(s *session, q driver.Queue) {
	s.sendTo(q, "g", "g1", "g2", "g3")
	held := s.expectAlone(q, "g1")
	s.expectStats(q, driver.Stats{Ready: 2, InFlight: 1})
	s.nack(q, held, s.hold, "")
	s.expectStats(q, driver.Stats{Ready: 2, Delayed: 1})
}

func settlingWakesGroup(s *session, q driver.Queue) {
	for how, settle := range map[string]func(d driver.Delivery){
		"ack":    func(d driver.Delivery) { s.ack(q, d) },
		"nack":   func(d driver.Delivery) { s.nack(q, d, 0, "") },
		"expiry": func(d driver.Delivery) { s.expire(q, d) },
		"death": func(d driver.Delivery) {
			if q.Traits().DeadLetters {
				s.bury(q, d, driver.ReasonFatal)
			} else {
				s.ack(q, d)
			}
		},
	} {
		s.sendTo(q, how, "1", "2")
		held := s.expectAlone(q, "1")
		waiting := s.receiveInBackground(s.ctx(), q, 1)
		settle(held)
		want := "1"
		if how == "ack" || how == "death" {
			want = "2"
		}
		s.expectHandedTo(waiting, want, how+" of the group's head")
	}
}

func staleReceiptFreesNoGroup(s *session, q driver.Queue) {
	s.sendTo(q, "g", "g1", "g2")
	stale := s.expectAlone(q, "g1")
	s.expire(q, stale)
	fresh := s.expectAlone(q, "g1")
	s.expectExpired(q, stale, "a receipt from an earlier delivery")
	s.expectNothing(q)
	s.ack(q, fresh)
	s.expectExpired(q, fresh, "the receipt of an acked message")
	s.expectAlone(q, "g2")
	s.expectExpired(q, fresh, "the receipt of an acked message")
	s.expectNothing(q)
}

func manyGroupsAreServed(s *session, q driver.Queue) {
	const groups, each = 50, 3
	for i := range each {
		for g := range groups {
			s.sendTo(q, fmt.Sprint("group-", g), fmt.Sprint(i))
		}
	}
	next := make(map[string]int)
	for range groups * each {
		d := s.receive(q, 1)[0]
		if want := fmt.Sprint(next[d.Group]); string(d.Body) != want {
			s.failf("%s: got message %s, want %s", d.Group, d.Body, want)
		}
		next[d.Group]++
		s.ack(q, d)
	}
	s.expectEmpty(q)
}

func strictGroupsTakeTurns(s *session, q driver.Queue) {
	const groups = 40
	name := func(round, g int) string { return fmt.Sprintf("%d of group %d", round, g) }
	for round := range 3 {
		for g := range groups {
			s.sendTo(q, fmt.Sprint("group-", g), name(round, g))
		}
	}
	heads := func(round int) []driver.Delivery {
		var held []driver.Delivery
		for g := range groups {
			held = append(held, s.expectAlone(q, name(round, g)))
		}
		s.expectNothing(q)
		rand.Shuffle(groups, func(i, j int) { held[i], held[j] = held[j], held[i] })
		return held
	}
	for i, d := range heads(0) { // given back in any order, they take the turns they had
		if i%2 == 0 {
			s.nack(q, d, 0, "")
		} else {
			s.expire(q, d)
		}
	}
	s.ack(q, heads(0)...)
	s.ack(q, heads(1)...)
	s.ack(q, heads(2)...)
	s.expectEmpty(q)
}

func workersSeeGroupsInOrder(s *session, q driver.Queue) {
	const groups, each, workers = 10, 20, 16
	for i := range each {
		for g := range groups {
			s.sendTo(q, fmt.Sprint("group-", g), fmt.Sprint(i))
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

	deadline := time.Now().Add(4 * s.patience)
	s.parallel(workers, func(worker int) error {
		for turn := worker; remaining() > 0; turn++ {
			if time.Now().After(deadline) {
				return errors.New("the workers are stuck")
			}
			got, err := s.poll(q, driver.ReceiveRequest{Max: 1, Visibility: s.hold, Wait: s.tick})
			if err != nil {
				return err
			}
			for _, d := range got {
				if err := begin(d); err != nil {
					return err
				}
				nacked := turn%5 == 0
				end(d, !nacked) // before settling: afterwards the next may be out already
				if nacked {
					err = tryNack(s, q, d, 0, "again")
				} else {
					err = tryAck(s, q, d)
				}
				if err != nil {
					return err
				}
			}
		}
		return nil
	})
	s.expectEmpty(q)
}
