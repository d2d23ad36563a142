package drivertest

import (
	"fmt"
	"slices"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// What is promised of a queue is promised of all its shards together.
var shardCases = []testCase{
	{
		id: "DUP-1", title: "a key is found whatever shard its message went to",
		config: always(driver.Config{Shards: 8}), needs: []need{needDedup, needGroups}, run: keysSpanShards,
	},
	{
		id: "ORD-3", title: "the bound on bytes is exact over all shards",
		config: always(driver.Config{Shards: 8, MaxBytes: 40}), run: bytesOverShards,
	},
	{
		id: "ORD-3", title: "the in-flight ceiling holds over all shards",
		config: always(driver.Config{Shards: 8, MaxInFlight: 20}), run: ceilingOverShards,
	},
	{
		id: "ORD-3", title: "the bound on dead letters holds over all shards",
		config: always(driver.Config{Shards: 8, MaxDead: 16}), needs: []need{needDeadLetters}, run: deadOverShards,
	},
	{
		id: "ORD-3", title: "a purge empties all shards",
		config: always(driver.Config{Shards: 8}), run: purgeOverShards,
	},
	{
		id: "ORD-3", title: "dead letters of all shards are listed and redriven oldest death first",
		config: always(driver.Config{Shards: 8}), needs: []need{needDeadLetters}, run: deathsOverShards,
	},
	{
		id: "ORD-3", title: "a delivery says which shard it is from",
		config: always(driver.Config{Shards: 8}), needs: []need{needGroups, needUsage}, run: deliveriesNameTheirShard,
	},
	{
		id: "OBS-1", title: "usage says how much of each bound is used",
		config: always(driver.Config{RetainReady: driver.Retention{Age: time.Hour}}),
		needs:  []need{needDeadLetters, needDedup, needUsage}, run: usageIsWhatIsThere,
	},
}

// spread sends n messages that end up in many shards.
func (s *session) spread(q driver.Queue, n int) []string {
	s.t.Helper()
	bodies := numbered("m", n)
	for i, body := range bodies {
		msg := driver.Outgoing{Body: []byte(body)}
		if q.Traits().Groups {
			msg.Group = fmt.Sprint("group-", i)
		}
		s.sendOne(q, msg)
	}
	return bodies
}

func keysSpanShards(s *session, q driver.Queue) {
	msg := keyed("key", "body")
	msg.Group = "group-0"
	id := s.expectFresh(q, msg, "for the first time")
	for i := range 30 {
		msg.Group = fmt.Sprint("group-", i)
		s.expectDuplicate(q, msg, id, "in "+msg.Group)
	}
	s.expectStats(q, driver.Stats{Ready: 1})
}

func bytesOverShards(s *session, q driver.Queue) {
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
	if accepted != 40 {
		s.failf("400 sends of a byte to 8 shards bounded at 40 bytes: %d were accepted, want 40", accepted)
	}
}

func ceilingOverShards(s *session, q driver.Queue) {
	s.spread(q, 200)
	held := 0
	for range 100 { // several looks: a receive need not visit every shard
		got, err := q.Receive(s.ctx(), driver.ReceiveRequest{Max: 10, Visibility: s.hold})
		if err != nil {
			s.expectFull(err, "receive at the in-flight ceiling")
		}
		held += len(got)
	}
	if held != 20 {
		s.failf("200 messages in 8 shards with a ceiling of 20 in flight: %d were handed out, want 20", held)
	}
	s.expectStats(q, driver.Stats{Ready: 180, InFlight: 20})
}

func deadOverShards(s *session, q driver.Queue) {
	s.spread(q, 200)
	buried := 0
	for _, d := range s.receive(q, 200) {
		err := q.DeadLetter(s.ctx(), []driver.DeadLetterRequest{{Receipt: d.Receipt, Reason: driver.ReasonFatal}})
		if err == nil {
			buried++
		} else {
			s.expectCode(driver.At(err, 0), driver.ErrFull, "dead-letter into a full store")
		}
	}
	if buried != 16 {
		s.failf("200 burials in 8 shards bounded at 16 dead letters: %d were accepted, want 16", buried)
	}
}

func purgeOverShards(s *session, q driver.Queue) {
	s.spread(q, 100)
	s.receive(q, 30)
	s.purge(q, 100)
	s.expectEmpty(q)
}

func deathsOverShards(s *session, q driver.Queue) {
	bodies := s.spread(q, 24)
	held := make(map[string]driver.Delivery)
	for _, d := range s.receive(q, 24) {
		held[string(d.Body)] = d
	}
	slices.Reverse(bodies) // an order that has nothing to do with shards
	for _, body := range bodies {
		s.bury(q, held[body], driver.ReasonFatal)
		s.sleep(2 * time.Millisecond)
	}
	s.expectDead(q, bodies...)
	s.redrive(q, nil, 5, 5)
	s.expectDead(q, bodies[5:]...)
	s.redrive(q, nil, 0, 19)
	s.expectStats(q, driver.Stats{Ready: 24})
}

// deliveriesNameTheirShard compares what deliveries say with what the queue counts.
func deliveriesNameTheirShard(s *session, q driver.Queue) {
	const n = 40
	for i := range n {
		s.sendOne(q, driver.Outgoing{Body: fmt.Appendf(nil, "%d", i), Group: fmt.Sprint("group-", i%10)})
	}
	usage, err := q.Usage(s.ctx())
	s.ok(err, "measure")
	if len(usage.Shards) != 8 {
		s.failf("measure: got %d shards, want 8", len(usage.Shards))
	}
	byShard, byGroup := make([]int, 8), make(map[string]int)
	for range n {
		d := s.receive(q, 1)[0]
		if known, ok := byGroup[d.Group]; ok && known != d.Shard {
			s.failf("messages of %s say that they are in shards %d and %d", d.Group, known, d.Shard)
		}
		byGroup[d.Group] = d.Shard
		byShard[d.Shard]++
	}
	for i, shard := range usage.Shards {
		if shard.Ready != byShard[i] {
			s.failf("shard %d had %d messages, and %d deliveries say that they are of it", i, shard.Ready, byShard[i])
		}
	}
}

// usageIsWhatIsThere fills two bounds and compares.
func usageIsWhatIsThere(s *session, q driver.Queue) {
	measure := func() driver.Usage {
		usage, err := q.Usage(s.ctx())
		s.ok(err, "measure")
		return usage
	}
	if usage := measure(); len(usage.Shards) != 1 || usage.Shards[0] != (driver.ShardUsage{}) || usage.DedupKeys != 0 {
		s.failf("an empty queue: got %+v", usage)
	}
	s.sendOne(q, keyed("key", "abc"))
	s.sendOne(q, keyed("other key", "de"))
	s.bury(q, s.receive(q, 1)[0], driver.ReasonFatal)
	s.sleep(s.tick)
	usage := measure()
	shard := usage.Shards[0]
	if shard.Stats != (driver.Stats{Ready: 1, Dead: 1}) || shard.Bytes != 2 || usage.DedupKeys != 2 {
		s.failf("got %+v, want one ready message of 2 bytes, one dead letter and 2 keys", usage)
	}
	for name, age := range map[string]time.Duration{"waiting message": shard.OldestReady, "dead letter": shard.OldestDead} {
		if age < s.tick || age > s.tick+time.Minute {
			s.failf("the oldest %s is said to be %v old, want about %v", name, age, s.tick)
		}
	}
}
