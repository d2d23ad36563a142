package drivertest

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var (
	// fair is a queue that lets quiet groups go first.
	fair      = always(driver.Config{FairGroups: true})
	fairNeeds = []need{needInForce("FairGroups", func(c driver.Config) bool { return c.FairGroups })}
)

var fairCases = []testCase{
	{id: "FAIR-1", title: "a queue with fair groups says so", config: fair, needs: fairNeeds, run: fairQueueSaysSo},
	{id: "FAIR-1", title: "groups cannot be fair and strict", config: fair, needs: fairNeeds, run: fairIsNotStrict},
	{id: "FAIR-1", title: "a quiet group goes before a long backlog", config: fair, needs: fairNeeds, run: quietGoesBeforeBacklog},
	{id: "FAIR-1", title: "the group with the fewest messages in flight goes first", config: fair, needs: fairNeeds, run: fewestInFlightFirst},
	{id: "FAIR-1", title: "what is settled is not in flight", config: fair, needs: fairNeeds, run: settledIsNotInFlight},
	{id: "FAIR-1", title: "a batch is filled group by group", config: fair, needs: fairNeeds, run: batchIsFair},
	{id: "FAIR-1", title: "each message without a group is a group of its own", config: fair, needs: fairNeeds, run: noGroupIsNeverNoisy},
	{id: "FAIR-1", title: "groups are told apart by every byte of their names", config: fair, needs: fairNeeds, run: groupNamesAreExact},

	{id: "FAIR-2", title: "groups that are equally busy take turns", config: fair, needs: fairNeeds, run: groupsTakeTurns},
	{id: "FAIR-2", title: "newcomers do not starve a backlog", config: fair, needs: fairNeeds, run: nothingStarves},
	{id: "FAIR-2", title: "messages without a group go in order, and a group with them", config: fair, needs: append([]need{needFIFO}, fairNeeds...), run: ungroupedGoInOrder},

	{id: "FAIR-3", title: "several of one group are in flight at once", config: fair, needs: fairNeeds, run: fairGroupsHoldNothingBack},
	{id: "FAIR-3", title: "a delayed message holds up nobody", config: fair, needs: fairNeeds, run: delayedHoldsUpNobody},
	{id: "FAIR-3", title: "a group is in order", config: fair, needs: fairNeeds, run: fairGroupIsInOrder},
	{id: "FAIR-3", title: "what comes back has its place in its group", config: fair, needs: fairNeeds, run: placesInFairGroup},
	{id: "FAIR-3", title: "counts are exact", config: fair, needs: append([]need{needExactStats}, fairNeeds...), run: fairCountsAreExact},
	{id: "FAIR-3", title: "any group wakes a receiver", config: fair, needs: fairNeeds, run: anyGroupWakes},
	{id: "FAIR-3", title: "all of many groups is delivered once", config: fair, needs: fairNeeds, run: fairGroupsAreServed},
	{
		id: "FAIR-3", title: "groups stay in order over several shards",
		config: always(driver.Config{FairGroups: true, Shards: 4}), needs: fairNeeds, run: fairGroupIsInOrder,
	},
	{
		id: "FAIR-3", title: "looking shows messages by their places, and moving takes them so",
		config: fair, needs: append(slices.Clone(moveNeeds), append([]need{needPeek}, fairNeeds...)...), run: fairGroupsMoveByPlace,
	},
}

func fairQueueSaysSo(s *session, q driver.Queue) {
	if traits := q.Traits(); !traits.FairGroups || !traits.Groups || traits.StrictGroups {
		s.failf("traits of a queue with fair groups: got Groups %v, FairGroups %v, StrictGroups %v", traits.Groups, traits.FairGroups, traits.StrictGroups)
	}
	if s.open("plain").Traits().FairGroups {
		s.failf("a queue nobody configured claims fair groups")
	}
}

func fairIsNotStrict(s *session, _ driver.Queue) {
	err := s.opener.(driver.Admin).ConfigureQueue(s.ctx(), "both", driver.Config{FairGroups: true, StrictGroups: true})
	s.expectCode(err, driver.ErrInvalid, "configure both fair and strict groups")
	s.expectInvalid(err, driver.ErrInvalid, "FairGroups", "configure both fair and strict groups")
}

// sendMany sends n messages to a group, numbered from 1.
func (s *session) sendMany(q driver.Queue, group string, n int) {
	s.t.Helper()
	most := min(q.Traits().MaxBatch, 250)
	var batch []driver.Outgoing
	for i := range n {
		batch = append(batch, driver.Outgoing{Body: fmt.Append(nil, group, i+1), Group: group})
		if len(batch) == most || i == n-1 {
			_, err := q.Send(s.ctx(), batch)
			s.ok(err, "send to group %s", group)
			batch = nil
		}
	}
}

func quietGoesBeforeBacklog(s *session, q driver.Queue) {
	backlog := s.rounds(10_000, 2_000)
	s.sendMany(q, "n", backlog)
	s.sendTo(q, "q", "q1")
	s.expectAlone(q, "n1")
	s.expectAlone(q, "q1")
	s.expectBodies(q, s.receive(q, 3), "n2", "n3", "n4") // nobody else wants them
	s.sendTo(q, "q", "q2", "q3")
	s.sendTo(q, "r", "r1")
	s.expectAlone(q, "r1")
	s.expectAlone(q, "q2")
	s.expectAlone(q, "q3")
	s.expectStats(q, driver.Stats{Ready: backlog - 4, InFlight: 8})
}

func fewestInFlightFirst(s *session, q driver.Queue) {
	for _, group := range []string{"a", "b", "c"} {
		s.sendMany(q, group, 3)
	}
	s.expectBodies(q, s.receive(q, 3), "a1", "b1", "c1")
	held := s.expectBodies(q, s.receive(q, 3), "a2", "b2", "c2")
	s.ack(q, held[2])
	s.expectAlone(q, "c3") // one of c was out, and two of the others
	s.sendTo(q, "c", "c4")
	s.sendTo(q, "d", "d1", "d2")
	s.expectAlone(q, "d1")
	s.expectAlone(q, "d2")
	s.ack(q, held[1])
	s.expectAlone(q, "b3")
	s.expectAlone(q, "a3")
	s.expectAlone(q, "c4")
	s.expectNothing(q)
}

func settledIsNotInFlight(s *session, q driver.Queue) {
	type way struct {
		settle func(d driver.Delivery)
		next   string
	}
	ways := map[string]way{
		"ack":    {func(d driver.Delivery) { s.ack(q, d) }, "3"},
		"nack":   {func(d driver.Delivery) { s.nack(q, d, s.hold, "") }, "3"},
		"expiry": {func(d driver.Delivery) { s.expire(q, d) }, "1"},
	}
	if q.Traits().DeadLetters {
		ways["death"] = way{func(d driver.Delivery) { s.bury(q, d, driver.ReasonFatal) }, "3"}
	}
	for name, way := range ways {
		busy, other := name+" busy ", name+" other "
		s.sendMany(q, busy, 3)
		s.sendMany(q, other, 2)
		first := s.expectAlone(q, busy+"1")
		s.expectAlone(q, other+"1")
		second := s.expectAlone(q, busy+"2")
		way.settle(first)
		way.settle(second)
		s.expectAlone(q, busy+way.next)
		_, err := q.Purge(s.ctx())
		s.ok(err, "purge")
	}
}

func batchIsFair(s *session, q driver.Queue) {
	s.sendMany(q, "a", 6)
	s.sendMany(q, "b", 2)
	s.sendTo(q, "c", "c1")
	got := s.receiveOnce(q, driver.ReceiveRequest{Max: 5, Visibility: s.hold})
	s.expectBodies(q, got, "a1", "b1", "c1", "a2", "b2")
	s.expectNext(q, "a3", "a4", "a5", "a6")
}

func noGroupIsNeverNoisy(s *session, q driver.Queue) {
	s.sendMany(q, "g", 3)
	s.send(q, "1", "2", "3")
	s.expectAlone(q, "g1")
	s.expectAlone(q, "1")
	s.expectAlone(q, "2")
	s.expectAlone(q, "3")
	s.send(q, "4")
	s.expectAlone(q, "4")
	s.expectAlone(q, "g2")
	s.expectAlone(q, "g3")
}

func groupNamesAreExact(s *session, q driver.Queue) {
	s.sendTo(q, "tenant", "t1", "t2")
	s.sendTo(q, "Tenant", "T1")
	s.sendTo(q, "tenant ", "s1")
	s.expectAlone(q, "t1")
	s.expectAlone(q, "T1")
	s.expectAlone(q, "s1")
	s.expectAlone(q, "t2")
}

func groupsTakeTurns(s *session, q driver.Queue) {
	s.sendMany(q, "a", 5)
	s.sendMany(q, "b", 3)
	s.sendTo(q, "c", "c1")
	for _, want := range []string{"a1", "b1", "c1", "a2", "b2", "a3", "b3", "a4", "a5"} {
		s.ack(q, s.expectAlone(q, want))
	}
	s.expectEmpty(q)
}

func nothingStarves(s *session, q driver.Queue) {
	const backlog, newcomers = 5, 40
	s.sendMany(q, "n", backlog)
	served := 0
	for i := range newcomers {
		if i%2 == 0 {
			s.send(q, fmt.Sprint("alone ", i))
		} else {
			s.sendTo(q, fmt.Sprint("group ", i), fmt.Sprint("new ", i))
		}
		got := s.receive(q, 1)[0]
		if got.Group == "n" {
			served++
		}
		s.ack(q, got)
	}
	if served < backlog {
		s.failf("of a backlog of %d messages %d were delivered while %d others came and went", backlog, served, newcomers)
	}
}

func ungroupedGoInOrder(s *session, q driver.Queue) {
	s.send(q, "1", "2")
	s.sendMany(q, "g", 2)
	s.send(q, "3", "4")
	first := s.expectAlone(q, "1")
	s.ack(q, s.expectAlone(q, "2"))
	s.expire(q, first)
	s.ack(q, s.expectAlone(q, "1"))
	s.ack(q, s.expectAlone(q, "g1"))
	s.nack(q, s.expectAlone(q, "3"), 0, "")
	for _, want := range []string{"4", "g2", "3"} {
		s.ack(q, s.expectAlone(q, want))
	}
	s.expectEmpty(q)
}

func fairGroupsHoldNothingBack(s *session, q driver.Queue) {
	s.sendMany(q, "g", 6)
	s.expectAlone(q, "g1")
	s.expectAlone(q, "g2")
	got := s.receiveOnce(q, driver.ReceiveRequest{Max: 3, Visibility: s.hold})
	s.expectBodies(q, got, "g3", "g4", "g5")
	s.expectAlone(q, "g6")
	s.expectNothing(q)
}

func delayedHoldsUpNobody(s *session, q driver.Queue) {
	start := time.Now()
	s.sendOne(q, driver.Outgoing{Body: []byte("g1"), Group: "g", Delay: s.tick})
	s.sendTo(q, "g", "g2")
	s.sendTo(q, "h", "h1")
	s.nack(q, s.expectAlone(q, "g2"), s.hold, "")
	s.expectAlone(q, "h1")
	s.expectNothing(q)
	s.expectArrival(q, start.Add(s.tick), "g1")
	s.expectStats(q, driver.Stats{Delayed: 1, InFlight: 2})
}

func fairGroupIsInOrder(s *session, q driver.Queue) {
	const groups, each = 20, 15
	for i := range each {
		for g := range groups {
			s.sendTo(q, fmt.Sprint("group-", g), fmt.Sprint(i))
		}
	}
	next := make(map[string]int)
	for left := groups * each; left > 0; {
		got := s.take(q, min(7, left), s.hold, time.Now().Add(s.patience))
		if len(got) == 0 {
			s.failf("%d messages are missing", left)
		}
		for _, d := range got {
			if want := fmt.Sprint(next[d.Group]); string(d.Body) != want {
				s.failf("%s: got message %s, want %s", d.Group, d.Body, want)
			}
			next[d.Group]++
		}
		left -= len(got)
		if left%2 == 0 { // some stay in flight
			s.ack(q, got...)
		}
	}
	s.expectNothing(q)
}

func placesInFairGroup(s *session, q driver.Queue) {
	s.sendMany(q, "g", 5)
	s.sendMany(q, "h", 1)
	held := s.receive(q, 3)
	s.expectBodies(q, held, "g1", "h1", "g2")
	s.expire(q, held[0])
	held[0] = s.expectAlone(q, "g1")
	s.nack(q, held[0], 0, "")
	s.ack(q, held[1], held[2])
	s.expectNext(q, "g3", "g4", "g5", "g1")
}

func fairCountsAreExact(s *session, q driver.Queue) {
	s.sendMany(q, "a", 4)
	s.sendMany(q, "b", 2)
	s.send(q, "1")
	s.sendOne(q, driver.Outgoing{Body: []byte("later"), Group: "b", Delay: s.hold})
	s.expectStats(q, driver.Stats{Ready: 7, Delayed: 1})
	held := s.expectNext(q, "a1", "b1", "1", "a2")
	s.expectStats(q, driver.Stats{Ready: 3, Delayed: 1, InFlight: 4})
	s.ack(q, held[0])
	s.nack(q, held[1], 0, "")
	s.expire(q, held[2])
	s.nack(q, held[3], s.hold, "")
	s.expectStats(q, driver.Stats{Ready: 5, Delayed: 2})
	removed, err := q.Purge(s.ctx())
	s.ok(err, "purge")
	if removed != 7 {
		s.failf("purge: got %d, want 7", removed)
	}
	s.expectStats(q, driver.Stats{})
	s.sendTo(q, "a", "a9")
	s.expectAlone(q, "a9")
}

func anyGroupWakes(s *session, q driver.Queue) {
	s.sendTo(q, "a", "a1", "a2")
	s.expectBodies(q, s.receive(q, 2), "a1", "a2")
	for _, group := range []string{"b", "", "a"} {
		waiting := s.receiveInBackground(s.ctx(), q, 1)
		s.sendTo(q, group, "new")
		s.expectHandedTo(waiting, "new", "send to group "+group)
	}
}

func fairGroupsAreServed(s *session, q driver.Queue) {
	const groups, each, workers = 40, 10, 8
	for i := range each {
		for g := range groups {
			s.sendTo(q, fmt.Sprint("group-", g), fmt.Sprint(g, " ", i))
		}
	}
	var mu sync.Mutex
	seen := make(map[string]int)
	deadline := time.Now().Add(4 * s.patience)
	s.parallel(workers, func(int) error {
		for {
			mu.Lock()
			done := len(seen) == groups*each
			mu.Unlock()
			if done || time.Now().After(deadline) {
				return nil
			}
			got, err := s.poll(q, driver.ReceiveRequest{Max: 3, Visibility: s.hold, Wait: s.tick})
			if err != nil {
				return err
			}
			for _, d := range got {
				mu.Lock()
				seen[string(d.Body)]++
				mu.Unlock()
				if err := tryAck(s, q, d); err != nil {
					return err
				}
			}
		}
	})
	for body, times := range seen {
		if times != 1 {
			s.failf("message %s was delivered %d times", body, times)
		}
	}
	if len(seen) != groups*each {
		s.failf("%d messages were delivered, want %d", len(seen), groups*each)
	}
	s.expectEmpty(q)
}

func fairGroupsMoveByPlace(s *session, q driver.Queue) {
	shelter := s.configure(shelterQueue, driver.Config{})
	want := []string{"a1", "a2", "b1", "1", "a3", "b2"}
	for _, body := range want {
		s.sendTo(q, map[byte]string{'a': "a", 'b': "b"}[body[0]], body)
	}
	s.ack(q, s.expectAlone(q, "a1"))
	var looked []string
	for seen, err := range q.Peek(s.ctx(), driver.Query{States: []driver.State{driver.StateReady}}) {
		s.ok(err, "peek")
		looked = append(looked, string(seen.Body))
	}
	if want = want[1:]; !slices.Equal(looked, want) {
		s.failf("peek: got %q, want %q", looked, want)
	}
	for range 2 {
		moved, err := q.Move(s.ctx(), shelterQueue, 3)
		s.ok(err, "move")
		if moved == 0 {
			s.failf("nothing was moved")
		}
	}
	s.expectNext(shelter, want...)
	s.expectEmpty(q)
}

func fairnessSurvives(s *session, q driver.Queue, how Crash) {
	s.sendMany(q, "n", 300)
	s.sendTo(q, "q", "q1", "q2")
	q = s.restart(how)
	quiet := 0
	for range 20 { // a backlog may have to be looked through
		if got := s.receive(q, 1)[0]; got.Group == "q" {
			if want := fmt.Sprint("q", quiet+1); string(got.Body) != want {
				s.failf("got %s of the quiet group, want %s", got.Body, want)
			}
			quiet++
		}
	}
	if quiet != 2 {
		s.failf("of 20 messages %d were of the quiet group, want 2", quiet)
	}
	s.expectStats(q, driver.Stats{Ready: 282, InFlight: 20})
}

func loadSurvives(s *session, q driver.Queue, how Crash) {
	s.sendMany(q, "a", 3)
	s.sendMany(q, "b", 2)
	held := s.expectNext(q, "a1", "b1", "a2")
	s.ack(q, held[1])
	q = s.restart(how)
	s.expectAlone(q, "b2") // two of a are out
	s.expectAlone(q, "a3")
}

func fairOrderSurvives(s *session, q driver.Queue, how Crash) {
	s.sendMany(q, "a", 6)
	s.sendMany(q, "b", 3)
	s.ack(q, s.expectAlone(q, "a1"))
	s.nack(q, s.receive(q, 1)[0], 0, "") // b1
	s.nack(q, s.expectAlone(q, "a2"), 0, "")
	q = s.restart(how)
	next := map[string][]string{"a": {"a3", "a4", "a5", "a6", "a2"}, "b": {"b2", "b3", "b1"}}
	for range 8 {
		got := s.receive(q, 1)[0]
		left := next[got.Group]
		if len(left) == 0 || left[0] != string(got.Body) {
			s.failf("got %s, want the first of %q", got.Body, left)
		}
		next[got.Group] = left[1:]
	}
	s.expectNothing(q)
}
