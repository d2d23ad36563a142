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

	{id: "ORD-2", title: "messages that expire together come back in order", needs: []need{needFIFO}, run: expiredTogetherKeepOrder},
	{id: "ORD-2", title: "nacking unwanted messages reaches every message", needs: []need{needFIFO}, run: notMineReachesAll},

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

func fifoOfSingles(e *env, q driver.Queue) {
	want := numbered("m", 100)
	for _, body := range want {
		e.send(q, body)
	}
	e.expectNext(q, want...)
}

func fifoOfBatches(e *env, q driver.Queue) {
	want := numbered("m", 120)
	for rest, size := want, 1; len(rest) > 0; size++ {
		n := min(size, len(rest), q.Traits().MaxBatch)
		e.send(q, rest[:n]...)
		rest = rest[n:]
	}
	e.expectNext(q, want...)
}

func fifoOverHandles(e *env, q driver.Queue) {
	handles := []driver.Queue{q, e.open(queueName), e.open(queueName)}
	want := numbered("m", 90)
	for i, body := range want {
		e.send(handles[i%len(handles)], body)
	}
	for rest, turn := want, 0; len(rest) > 0; turn++ {
		n := min(1+turn%7, len(rest))
		e.expectNext(handles[turn%len(handles)], rest[:n]...)
		rest = rest[n:]
	}
}

func fifoPerSender(e *env, q driver.Queue) {
	const senders, each = 8, 25
	e.parallel(senders, func(sender int) error {
		for _, body := range numbered(fmt.Sprint(sender, ":"), each) {
			if err := trySend(e, q, body); err != nil {
				return fmt.Errorf("sender %d: %w", sender, err)
			}
		}
		return nil
	})
	bySender := make(map[string][]string)
	for _, d := range e.receive(q, senders*each) {
		bySender[string(d.Body[:2])] = append(bySender[string(d.Body[:2])], string(d.Body))
	}
	for sender, got := range bySender {
		if !slices.Equal(got, numbered(sender, each)) {
			e.failf("messages of sender %s arrived as %q", sender, got)
		}
	}
}

func defaultQueueIsFIFO(e *env, q driver.Queue) {
	config, err := e.opener.(driver.Admin).QueueConfig(e.ctx(), queueName)
	e.ok(err, "read the configuration of a queue that was opened")
	if config.Shards > 1 {
		e.failf("a queue without a configuration has %d shards, want one", config.Shards)
	}
	if ordering := q.Traits().Ordering; ordering != driver.OrderingFIFO && ordering != driver.OrderingNone {
		e.failf("a queue of one shard: got ordering %q, want %q", ordering, driver.OrderingFIFO)
	}
}

func expiredTogetherKeepOrder(e *env, q driver.Queue) {
	want := numbered("m", 30)
	e.send(q, want...)
	for range want[:20] {
		e.receiveFor(q, 1, e.tick())
	}
	e.sleep(e.tick())
	e.expectNext(q, want...)
}

// notMineReachesAll is a client that looks for its own message and nacks the others: it must
// see every message, not the head again and again.
func notMineReachesAll(e *env, q driver.Queue) {
	e.send(q, numbered("m", 10)...)
	for range 9 {
		got := e.receive(q, 1)[0]
		if string(got.Body) == "m0009" {
			e.failf("the last message came before all others were seen")
		}
		e.nack(q, got, 0, "not mine")
	}
	e.expectNext(q, "m0009")
}

func groupsKeepOrderOverShards(e *env, q driver.Queue) {
	if q.Traits().Ordering == driver.OrderingNone {
		e.t.Log("the queue promises no order, in groups neither")
	}
	const groups, each = 20, 12
	for i := range each {
		for g := range groups {
			e.sendTo(q, fmt.Sprintf("group-%d", g), fmt.Sprintf("%03d", i))
		}
	}
	next := make(map[string]int)
	for _, d := range e.receive(q, groups*each) {
		if want := fmt.Sprintf("%03d", next[d.Group]); string(d.Body) != want && q.Traits().Ordering != driver.OrderingNone {
			e.failf("%s: got message %s, want %s", d.Group, d.Body, want)
		}
		next[d.Group]++
	}
	for group, n := range next {
		if n != each {
			e.failf("%s: got %d messages, want %d", group, n, each)
		}
	}
}

func shardsLoseNothing(e *env, q driver.Queue) {
	if traits := q.Traits(); traits.Ordering == driver.OrderingFIFO {
		e.failf("a queue of 8 shards claims ordering %q", traits.Ordering)
	}
	want := numbered("m", 100)
	e.send(q, want...)
	e.expectStats(q, driver.Stats{Ready: 100})
	held := e.receive(q, 100)
	got := slices.Sorted(slices.Values(bodies(held)))
	if !slices.Equal(got, want) {
		e.failf("100 messages over 8 shards arrived as %q", got)
	}
	e.expectStats(q, driver.Stats{InFlight: 100})
	e.ack(q, held[:50]...)
	for _, d := range held[50:] {
		e.nack(q, d, 0, "")
	}
	e.expectStats(q, driver.Stats{Ready: 50})
	e.ack(q, e.receive(q, 50)...)
	e.expectEmpty(q)
}

func everyShardWakes(e *env, q driver.Queue) {
	for i := range 32 {
		waiting := e.receiveInBackground(e.ctx(), q, 1)
		body := fmt.Sprint(i)
		msg := driver.Outgoing{Body: []byte(body)}
		if q.Traits().Groups {
			msg.Group = "group-" + body
		}
		e.sendOne(q, msg)
		e.ack(q, e.expectHandedTo(waiting, body, "send to one of 8 shards"))
		if !e.backend.Virtual && i == 8 {
			break
		}
	}
	start := time.Now()
	waiting := e.receiveInBackground(e.ctx(), q, 1)
	e.sendLater(q, e.tick(), "later")
	e.expectWokenAt(waiting, start.Add(e.tick()), "later", "a delay in one of 8 shards")
}

func capacityOverShards(e *env, q driver.Queue) {
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
	if accepted != 20 {
		e.failf("400 sends in many groups to 8 shards bounded at 20 messages: %d were accepted, want 20", accepted)
	}
	e.expectStats(q, driver.Stats{Ready: 20})
}
