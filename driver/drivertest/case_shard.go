package drivertest

import (
	"fmt"
	"slices"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// The promises of a queue hold for all its shards together.
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

// spread sends n messages that are spread over the shards.
func (e *env) spread(q driver.Queue, n int) []string {
	e.t.Helper()
	bodies := numbered("m", n)
	for i, body := range bodies {
		msg := driver.Outgoing{Body: []byte(body)}
		if q.Traits().Groups {
			msg.Group = fmt.Sprint("group-", i)
		}
		e.sendOne(q, msg)
	}
	return bodies
}

func keysSpanShards(e *env, q driver.Queue) {
	msg := keyed("key", "body")
	msg.Group = "group-0"
	id := e.expectFresh(q, msg, "for the first time")
	for i := range 30 {
		msg.Group = fmt.Sprint("group-", i)
		e.expectDuplicate(q, msg, id, "in "+msg.Group)
	}
	e.expectStats(q, driver.Stats{Ready: 1})
}

func bytesOverShards(e *env, q driver.Queue) {
	accepted := 0
	for i := range 400 {
		msg := driver.Outgoing{Body: []byte("x")}
		if q.Traits().Groups {
			msg.Group = fmt.Sprint("group-", i)
		}
		if _, err := q.Send(e.ctx(), []driver.Outgoing{msg}); err == nil {
			accepted++
		} else {
			e.expectFull(err, "send to a full shard")
		}
	}
	if accepted != 40 {
		e.failf("400 sends of a byte to 8 shards bounded at 40 bytes: %d were accepted, want 40", accepted)
	}
}

func ceilingOverShards(e *env, q driver.Queue) {
	e.spread(q, 200)
	held := 0
	for range 100 { // several calls: a receive need not visit every shard
		got, err := q.Receive(e.ctx(), driver.ReceiveRequest{Max: 10, Visibility: e.hold})
		if err != nil {
			e.expectFull(err, "receive at the in-flight ceiling")
		}
		held += len(got)
	}
	if held != 20 {
		e.failf("200 messages in 8 shards with a ceiling of 20 in flight: %d were handed out, want 20", held)
	}
	e.expectStats(q, driver.Stats{Ready: 180, InFlight: 20})
}

func deadOverShards(e *env, q driver.Queue) {
	e.spread(q, 200)
	accepted := 0
	for _, d := range e.receive(q, 200) {
		err := q.DeadLetter(e.ctx(), []driver.DeadLetterRequest{{Receipt: d.Receipt, Reason: driver.ReasonFatal}})
		if err == nil {
			accepted++
		} else {
			e.expectCode(driver.At(err, 0), driver.ErrFull, "dead-letter into a full store")
		}
	}
	if accepted != 16 {
		e.failf("200 requests in 8 shards bounded at 16 dead letters: %d were accepted, want 16", accepted)
	}
}

func purgeOverShards(e *env, q driver.Queue) {
	e.spread(q, 100)
	e.receive(q, 30)
	e.purge(q, 100)
	e.expectEmpty(q)
}

func deathsOverShards(e *env, q driver.Queue) {
	bodies := e.spread(q, 24)
	held := make(map[string]driver.Delivery)
	for _, d := range e.receive(q, 24) {
		held[string(d.Body)] = d
	}
	slices.Reverse(bodies) // an order that does not depend on shards
	for _, body := range bodies {
		e.deadLetter(q, held[body], driver.ReasonFatal)
		e.sleep(2 * time.Millisecond)
	}
	e.expectDead(q, bodies...)
	e.redrive(q, nil, 5, 5)
	e.expectDead(q, bodies[5:]...)
	e.redrive(q, nil, 0, 19)
	e.expectStats(q, driver.Stats{Ready: 24})
}

// deliveriesNameTheirShard compares the shards of deliveries with the usage of the queue.
func deliveriesNameTheirShard(e *env, q driver.Queue) {
	const n = 40
	for i := range n {
		e.sendOne(q, driver.Outgoing{Body: fmt.Appendf(nil, "%d", i), Group: fmt.Sprint("group-", i%10)})
	}
	usage, err := q.Usage(e.ctx())
	e.ok(err, "measure")
	if len(usage.Shards) != 8 {
		e.failf("measure: got %d shards, want 8", len(usage.Shards))
	}
	byShard, byGroup := make([]int, 8), make(map[string]int)
	for range n {
		d := e.receive(q, 1)[0]
		if known, ok := byGroup[d.Group]; ok && known != d.Shard {
			e.failf("messages of %s have shards %d and %d", d.Group, known, d.Shard)
		}
		byGroup[d.Group] = d.Shard
		byShard[d.Shard]++
	}
	for i, shard := range usage.Shards {
		if shard.Ready != byShard[i] {
			e.failf("shard %d had %d messages, but %d deliveries name it", i, shard.Ready, byShard[i])
		}
	}
}

// usageIsWhatIsThere fills two bounds and compares.
func usageIsWhatIsThere(e *env, q driver.Queue) {
	measure := func() driver.Usage {
		usage, err := q.Usage(e.ctx())
		e.ok(err, "measure")
		return usage
	}
	if usage := measure(); len(usage.Shards) != 1 || usage.Shards[0] != (driver.ShardUsage{}) || usage.DedupKeys != 0 {
		e.failf("an empty queue: got %+v", usage)
	}
	e.sendOne(q, keyed("key", "abc"))
	e.sendOne(q, keyed("other key", "de"))
	e.deadLetter(q, e.receive(q, 1)[0], driver.ReasonFatal)
	e.sleep(e.tick())
	usage := measure()
	shard := usage.Shards[0]
	if shard.Stats != (driver.Stats{Ready: 1, Dead: 1}) || shard.Bytes != 2 || usage.DedupKeys != 2 {
		e.failf("got %+v, want one ready message of 2 bytes, one dead letter and 2 keys", usage)
	}
	for name, age := range map[string]time.Duration{"waiting message": shard.OldestReady, "dead letter": shard.OldestDead} {
		if age < e.tick() || age > e.tick()+time.Minute {
			e.failf("the oldest %s is said to be %v old, want about %v", name, age, e.tick())
		}
	}
}
