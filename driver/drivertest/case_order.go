package drivertest

import (
	"fmt"
	"slices"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var orderCases = []testCase{
	{id: "ORD-1", title: "messages are delivered in the order they were sent", needs: []need{needFIFO}, run: fifoOfSingles},
	{id: "ORD-1", title: "batches keep their order, inside and between", needs: []need{needFIFO}, run: fifoOfBatches},
	{id: "ORD-1", title: "order holds over handles and over sizes of receives", needs: []need{needFIFO}, run: fifoOverHandles},
	{id: "ORD-1", title: "messages of each of many senders stay in order", needs: []need{needFIFO}, run: fifoPerSender},
	{id: "ORD-1", title: "a queue has one shard by default and says so", needs: []need{needAdmin}, run: defaultQueueIsFIFO},

	{id: "ORD-2", title: "an expired message comes back at its place, ahead of later ones", needs: []need{needFIFO}, run: expiredKeepsPlace},
	{id: "ORD-2", title: "messages that expire together come back in order", needs: []need{needFIFO}, run: expiredTogetherKeepOrder},
	{id: "ORD-2", title: "extending to zero gives a message back at its place", needs: []need{needFIFO}, run: extendToZeroKeepsPlace},
	{id: "ORD-2", title: "a nack goes to the tail", needs: []need{needFIFO}, run: nackGoesToTail},
	{id: "ORD-2", title: "a nack with a delay has its place at the tail from the time of the nack", needs: []need{needFIFO}, run: delayedNackHasItsPlace},
	{id: "ORD-2", title: "a nacked message that expires keeps the place the nack gave it", needs: []need{needFIFO}, run: nackedPlaceIsKept},
	{id: "ORD-2", title: "giving back what is not mine reaches every message", needs: []need{needFIFO}, run: notMineReachesAll},

	{
		id: "ORD-3", title: "messages of a group stay in order with several shards",
		config: always(driver.Config{Shards: 8}), needs: []need{needGroups}, run: groupsKeepOrderOverShards,
	},
	{id: "ORD-3", title: "messages of a group stay in order with one shard", needs: []need{needGroups}, run: groupsKeepOrderOverShards},
	{
		id: "ORD-3", title: "everything sent over several shards arrives once",
		config: always(driver.Config{Shards: 8}), run: shardsLoseNothing,
	},
	{
		id: "ORD-3", title: "a waiting receiver is woken whatever the shard",
		config: always(driver.Config{Shards: 8}), run: everyShardWakes,
	},
	{
		id: "ORD-3", title: "the bound on messages is exact over all shards",
		config: always(driver.Config{Shards: 8, MaxMessages: 20}), run: capacityOverShards,
	},
}

func numbered(prefix string, n int) []string {
	texts := make([]string, n)
	for i := range texts {
		texts[i] = fmt.Sprintf("%s%04d", prefix, i)
	}
	return texts
}

func fifoOfSingles(s *session, q driver.Queue) {
	want := numbered("m", 100)
	for _, body := range want {
		s.send(q, body)
	}
	s.expectNext(q, want...)
}

func fifoOfBatches(s *session, q driver.Queue) {
	want := numbered("m", 120)
	for rest, size := want, 1; len(rest) > 0; size++ {
		n := min(size, len(rest), q.Traits().MaxBatch)
		s.send(q, rest[:n]...)
		rest = rest[n:]
	}
	s.expectNext(q, want...)
}

func fifoOverHandles(s *session, q driver.Queue) {
	handles := []driver.Queue{q, s.open(queueName), s.open(queueName)}
	want := numbered("m", 90)
	for i, body := range want {
		s.send(handles[i%len(handles)], body)
	}
	for rest, turn := want, 0; len(rest) > 0; turn++ {
		n := min(1+turn%7, len(rest))
		s.expectNext(handles[turn%len(handles)], rest[:n]...)
		rest = rest[n:]
	}
}

func fifoPerSender(s *session, q driver.Queue) {
	const senders, each = 8, 25
	s.parallel(senders, func(sender int) error {
		for _, body := range numbered(fmt.Sprint(sender, ":"), each) {
			if err := trySend(s, q, body); err != nil {
				return fmt.Errorf("sender %d: %w", sender, err)
			}
		}
		return nil
	})
	bySender := make(map[string][]string)
	for _, d := range s.receive(q, senders*each) {
		bySender[string(d.Body[:2])] = append(bySender[string(d.Body[:2])], string(d.Body))
	}
	for sender, got := range bySender {
		if !slices.Equal(got, numbered(sender, each)) {
			s.failf("messages of sender %s arrived as %q", sender, got)
		}
	}
}

func defaultQueueIsFIFO(s *session, q driver.Queue) {
	config, err := s.opener.(driver.Admin).QueueConfig(s.ctx(), queueName)
	s.ok(err, "read the configuration of a queue that was opened")
	if config.Shards > 1 {
		s.failf("a queue nobody configured has %d shards, want one", config.Shards)
	}
	if ordering := q.Traits().Ordering; ordering != driver.OrderingFIFO && ordering != driver.OrderingNone {
		s.failf("a queue of one shard: got ordering %q, want %q", ordering, driver.OrderingFIFO)
	}
}

func expiredKeepsPlace(s *session, q driver.Queue) {
	s.send(q, "a", "b", "c")
	s.receiveFor(q, 1, s.tick)
	s.send(q, "d")
	s.sleep(s.tick)
	s.expectNext(q, "a", "b", "c", "d")
}

func expiredTogetherKeepOrder(s *session, q driver.Queue) {
	want := numbered("m", 30)
	s.send(q, want...)
	for range want[:20] {
		s.receiveFor(q, 1, s.tick)
	}
	s.sleep(s.tick)
	s.expectNext(q, want...)
}

func extendToZeroKeepsPlace(s *session, q driver.Queue) {
	s.send(q, "a", "b", "c", "d")
	held := s.receive(q, 3)
	s.expire(q, held[2], held[0]) // the order of giving back does not matter
	s.expectNext(q, "a", "c", "d")
}

func nackGoesToTail(s *session, q driver.Queue) {
	s.send(q, "a", "b", "c")
	held := s.receive(q, 2)
	s.nack(q, held[1], 0, "")
	s.nack(q, held[0], 0, "")
	s.send(q, "d")
	s.expectNext(q, "c", "b", "a", "d")
}

func delayedNackHasItsPlace(s *session, q driver.Queue) {
	s.send(q, "a", "b")
	s.nack(q, s.receive(q, 1)[0], s.tick, "")
	s.send(q, "c")
	s.sleep(s.tick)
	s.expectNext(q, "b", "a", "c")
}

func nackedPlaceIsKept(s *session, q driver.Queue) {
	s.send(q, "a", "b")
	s.nack(q, s.receive(q, 1)[0], 0, "")
	s.send(q, "c")
	s.expire(q, s.expectNext(q, "b", "a")...)
	s.expectNext(q, "b", "a", "c")
}

// notMineReachesAll is the client that looks for its own message and puts the
// others back: it must get round, not stay at the head.
func notMineReachesAll(s *session, q driver.Queue) {
	s.send(q, numbered("m", 10)...)
	for range 9 {
		got := s.receive(q, 1)[0]
		if string(got.Body) == "m0009" {
			s.failf("the last message came before all others were seen")
		}
		s.nack(q, got, 0, "not mine")
	}
	s.expectNext(q, "m0009")
}

func groupsKeepOrderOverShards(s *session, q driver.Queue) {
	if q.Traits().Ordering == driver.OrderingNone {
		s.t.Log("the queue promises no order, in groups neither")
	}
	const groups, each = 20, 12
	for i := range each {
		for g := range groups {
			s.sendTo(q, fmt.Sprintf("group-%d", g), fmt.Sprintf("%03d", i))
		}
	}
	next := make(map[string]int)
	for _, d := range s.receive(q, groups*each) {
		if want := fmt.Sprintf("%03d", next[d.Group]); string(d.Body) != want && q.Traits().Ordering != driver.OrderingNone {
			s.failf("%s: got message %s, want %s", d.Group, d.Body, want)
		}
		next[d.Group]++
	}
	for group, n := range next {
		if n != each {
			s.failf("%s: got %d messages, want %d", group, n, each)
		}
	}
}

func shardsLoseNothing(s *session, q driver.Queue) {
	if traits := q.Traits(); traits.Ordering == driver.OrderingFIFO {
		s.failf("a queue of 8 shards claims ordering %q", traits.Ordering)
	}
	want := numbered("m", 100)
	s.send(q, want...)
	s.expectStats(q, driver.Stats{Ready: 100})
	held := s.receive(q, 100)
	got := slices.Sorted(slices.Values(bodies(held)))
	if !slices.Equal(got, want) {
		s.failf("100 messages over 8 shards arrived as %q", got)
	}
	s.expectStats(q, driver.Stats{InFlight: 100})
	s.ack(q, held[:50]...)
	for _, d := range held[50:] {
		s.nack(q, d, 0, "")
	}
	s.expectStats(q, driver.Stats{Ready: 50})
	s.ack(q, s.receive(q, 50)...)
	s.expectEmpty(q)
}

func everyShardWakes(s *session, q driver.Queue) {
	for i := range 32 {
		waiting := s.receiveInBackground(s.ctx(), q, 1)
		body := fmt.Sprint(i)
		msg := driver.Outgoing{Body: []byte(body)}
		if q.Traits().Groups {
			msg.Group = "group-" + body
		}
		s.sendOne(q, msg)
		s.ack(q, s.expectHandedTo(waiting, body, "send to one of 8 shards"))
		if !s.backend.Virtual && i == 8 {
			break
		}
	}
	start := time.Now()
	waiting := s.receiveInBackground(s.ctx(), q, 1)
	s.sendLater(q, s.tick, "later")
	s.expectWokenAt(waiting, start.Add(s.tick), "later", "a delay in one of 8 shards")
}

func capacityOverShards(s *session, q driver.Queue) {
	accepted := 0
	for i := range 400 {
		msg := driver.Outgoing{Body: []byte("x")}
		if q.Traits().Groups {
			msg.Group = fmt.Sprint("group-", i)
		}
		if _, err := q.Send(s.ctx(), []driver.Outgoing{msg}); err == nil {
			accepted++
		} else {
			s.expectFull(err, "send to a full shard")
		}
	}
	if accepted != 20 {
		s.failf("400 sends in many groups to 8 shards bounded at 20 messages: %d were accepted, want 20", accepted)
	}
	s.expectStats(q, driver.Stats{Ready: 20})
}
