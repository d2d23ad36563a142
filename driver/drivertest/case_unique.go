package drivertest

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var uniqueNeeds = []need{needUniqueKeys}

// uniqueCases are the cases about unique keys that stories cannot express. The others are in
// stories/unique.txt.
var uniqueCases = []testCase{
	{id: "FLOW-5", title: "a unique key has a limit, and is text", needs: uniqueNeeds, run: uniqueKeysHaveALimit},
	{id: "FLOW-5", title: "usage counts the unique keys that messages hold", needs: []need{needUniqueKeys, needUsage, needDeadLetters}, run: usageCountsUniqueKeys},
	{id: "FLOW-5", title: "replacing needs a unique key", needs: uniqueNeeds, run: replacingNeedsAKey},
	{id: "FLOW-5", title: "of many sends at once with one key, one counts", needs: uniqueNeeds, run: parallelUniqueSends},
	{id: "FLOW-5", title: "the last of many that replace at once is delivered", needs: uniqueNeeds, run: parallelReplaces},
	{id: "FLOW-5", title: "the longest key is kept apart from its prefix", needs: uniqueNeeds, run: longUniqueKeysAreExact},
	{id: "FLOW-5", title: "many keys come and go, and none is mistaken for another", needs: uniqueNeeds, run: manyUniqueKeys},
	{id: "FLOW-5", title: "a replaced message keeps its id and the time it was sent", needs: uniqueNeeds, run: replacingKeepsTheMessage},
	{id: "FLOW-5", title: "a replaced message has the seal of the last send", needs: []need{needUniqueKeys, needSeals}, run: replacingReplacesTheSeal},
	{id: "FLOW-5", title: "a receiver that waits gets a message that is replaced", needs: uniqueNeeds, run: replacingWakes},
	{id: "FLOW-5", title: "a refused redrive names the message that holds the key", needs: []need{needUniqueKeys, needDeadLetters}, run: redriveNamesHolder},
	{id: "FLOW-5", title: "a refused move names the message that holds the key", needs: []need{needUniqueKeys, needMove}, run: moveNamesHolder},
	{
		id: "FLOW-5", title: "a key is unique in all shards of a queue", config: always(driver.Config{Shards: 4}),
		needs: uniqueNeeds, run: keysAreUniqueInAllShards,
	},
	{
		id: "FLOW-5", title: "a queue with several shards takes a group or a unique key", config: always(driver.Config{Shards: 4}),
		needs: []need{needUniqueKeys, needGroups}, run: shardsTakeGroupOrKey,
	},
	{id: "FLOW-5", title: "a message of a schedule has no unique key", needs: []need{needUniqueKeys, needSchedules}, run: schedulesHaveNoKeys},
}

func unique(key, body string) driver.Outgoing {
	return driver.Outgoing{Body: []byte(body), UniqueKey: key}
}

func replacing(key, body string) driver.Outgoing {
	return driver.Outgoing{Body: []byte(body), UniqueKey: key, Replace: true}
}

func (e *env) expectReplaced(q driver.Queue, msg driver.Outgoing, want string) {
	e.t.Helper()
	if sent := e.sendOne(q, msg); sent.ID != want || !sent.Duplicate || !sent.Replaced {
		e.failf("replace %s: got %+v", want, sent)
	}
}

func uniqueKeysHaveALimit(e *env, q driver.Queue) {
	e.expectBadSend(q, unique(strings.Repeat("k", driver.MaxDedupKeyBytes+1), "a"), driver.ErrInvalid, driver.MaxDedupKeyBytes, "unique key")
	_, err := q.Send(e.ctx(), []driver.Outgoing{unique("\xff", "a")})
	e.expectInvalid(err, driver.ErrInvalid, "", "send with a unique key that is not UTF-8")
	e.expectEmpty(q)
}

func replacingNeedsAKey(e *env, q driver.Queue) {
	_, err := q.Send(e.ctx(), []driver.Outgoing{{Body: []byte("a"), Replace: true}})
	e.expectInvalid(err, driver.ErrInvalid, "", "replace without a unique key")
	e.expectEmpty(q)
}

func parallelUniqueSends(e *env, q driver.Queue) {
	for round := range e.rounds(20, 3) {
		var fresh atomic.Int32
		var ids [8]string
		e.parallel(len(ids), func(i int) error {
			sent, err := q.Send(e.ctx(), []driver.Outgoing{unique(fmt.Sprint(round), fmt.Sprint("body ", i))})
			if err != nil {
				return err
			}
			if ids[i] = sent[0].ID; !sent[0].Duplicate {
				fresh.Add(1)
			}
			return nil
		})
		for _, id := range ids {
			if id != ids[0] {
				e.failf("sends with one unique key have the ids %q", ids)
			}
		}
		if fresh.Load() != 1 {
			e.failf("%d of %d sends with one unique key added a message", fresh.Load(), len(ids))
		}
		e.expectStats(q, driver.Stats{Ready: 1})
		e.ack(q, e.receive(q, 1)...)
	}
}

func parallelReplaces(e *env, q driver.Queue) {
	for round := range e.rounds(20, 3) {
		key := fmt.Sprint(round)
		first := e.sendOne(q, unique(key, "first")).ID
		e.parallel(8, func(i int) error {
			sent, err := q.Send(e.ctx(), []driver.Outgoing{replacing(key, fmt.Sprint("body ", i))})
			if err == nil && (!sent[0].Replaced || sent[0].ID != first) {
				err = fmt.Errorf("got %+v", sent[0])
			}
			return err
		})
		e.expectReplaced(q, replacing(key, "last"), first)
		e.expectStats(q, driver.Stats{Ready: 1})
		e.ack(q, e.expectNext(q, "last")...)
	}
}

func longUniqueKeysAreExact(e *env, q driver.Queue) {
	long := strings.Repeat("k", driver.MaxDedupKeyBytes)
	a, b := e.sendOne(q, unique(long, "a")), e.sendOne(q, unique(long[1:], "b"))
	if a.Duplicate || b.Duplicate {
		e.failf("a key was mistaken for another: %+v, %+v", a, b)
	}
	if again := e.sendOne(q, unique(long, "c")); !again.Duplicate || again.ID != a.ID {
		e.failf("the longest key again: got %+v, want a duplicate of %s", again, a.ID)
	}
}

func manyUniqueKeys(e *env, q driver.Queue) {
	const keys = 50
	var ids [keys]string
	for round := range 3 {
		for i := range keys {
			sent := e.sendOne(q, unique(fmt.Sprint("key ", i), fmt.Sprint(round)))
			if sent.Duplicate {
				e.failf("round %d: key %d is held by %s", round, i, sent.ID)
			}
			ids[i] = sent.ID
		}
		for i := range keys {
			if sent := e.sendOne(q, unique(fmt.Sprint("key ", i), "again")); !sent.Duplicate || sent.ID != ids[i] {
				e.failf("round %d: key %d: got %+v, want a duplicate of %s", round, i, sent, ids[i])
			}
		}
		e.expectStats(q, driver.Stats{Ready: keys})
		for received := 0; received < keys; {
			batch := e.receive(q, min(10, keys-received))
			received += len(batch)
			e.ack(q, batch...)
		}
	}
}

func replacingKeepsTheMessage(e *env, q driver.Queue) {
	before := time.Now()
	first := e.sendOne(q, unique("k", "first"))
	after := time.Now()
	e.sleep(10 * time.Millisecond)
	e.expectReplaced(q, replacing("k", "second"), first.ID)
	d := e.expectNext(q, "second")[0]
	if d.ID != first.ID || d.Deliveries != 1 {
		e.failf("got id %s and %d deliveries, want %s and 1", d.ID, d.Deliveries, first.ID)
	}
	if skew := time.Second; d.EnqueuedAt.Before(before.Add(-skew)) || d.EnqueuedAt.After(after.Add(skew)) {
		e.failf("enqueued at %v, want between %v and %v", d.EnqueuedAt, before, after)
	}
}

func replacingReplacesTheSeal(e *env, q driver.Queue) {
	first, second := unique("k", "first"), replacing("k", "second")
	first.Seal, second.Seal = []byte("one"), []byte("another")
	id := e.sendOne(q, first).ID
	e.expectReplaced(q, second, id)
	if d := e.expectNext(q, "second")[0]; !bytes.Equal(d.Seal, second.Seal) {
		e.failf("got seal %q, want %q", d.Seal, second.Seal)
	}
}

func replacingWakes(e *env, q driver.Queue) {
	later := unique("k", "first")
	later.Delay = q.Traits().MaxDelay
	id := e.sendOne(q, later).ID
	waiting := e.receiveInBackground(e.ctx(), q, 1)
	e.settle()
	e.expectReplaced(q, replacing("k", "second"), id)
	e.expectHandedTo(waiting, "second", "the message that it waited for was replaced by one that is ready")
}

// expectHolder expects the conflict of an operation that a message which holds a unique key
// prevents.
func (e *env) expectHolder(err error, holder, what string) {
	e.t.Helper()
	e.expectCode(err, driver.ErrConflict, what)
	if conflict, ok := errors.AsType[*driver.Error](err); !ok || conflict.MessageID != holder {
		e.failf("%s: got %v, which does not name %s", what, err, holder)
	}
}

func redriveNamesHolder(e *env, q driver.Queue) {
	dead := e.sendOne(q, unique("k", "dead")).ID
	e.deadLetter(q, e.expectNext(q, "dead")[0], driver.ReasonFatal)
	holder := e.sendOne(q, unique("k", "holder")).ID
	for _, ids := range [][]string{{dead}, nil} {
		moved, err := q.Redrive(e.ctx(), ids, 0)
		e.expectHolder(err, holder, "redrive")
		if moved != 0 {
			e.failf("%d messages were redriven, although the key of the only one is held", moved)
		}
	}
}

func moveNamesHolder(e *env, q driver.Queue) {
	target := e.open("target")
	holder := e.sendOne(target, unique("k", "holder")).ID
	e.sendOne(q, unique("k", "stays"))
	moved, err := q.Move(e.ctx(), "target", 0)
	e.expectHolder(err, holder, "move")
	if moved != 0 {
		e.failf("%d messages were moved, although the key of the only one is held", moved)
	}
	e.expectNext(q, "stays")
}

func keysAreUniqueInAllShards(e *env, q driver.Queue) {
	const keys = 12
	for i := range keys {
		id := e.sendOne(q, unique(fmt.Sprint(i), "a")).ID
		for range 5 { // as many as there are shards, and one more
			if sent := e.sendOne(q, unique(fmt.Sprint(i), "b")); !sent.Duplicate || sent.ID != id {
				e.failf("key %d: got %+v, want a duplicate of %s", i, sent, id)
			}
			e.expectReplaced(q, replacing(fmt.Sprint(i), "c"), id)
		}
	}
	e.expectStats(q, driver.Stats{Ready: keys})
}

func shardsTakeGroupOrKey(e *env, q driver.Queue) {
	if q.Traits().Ordering != driver.OrderingPerShard {
		return // it has one shard all the same
	}
	msg := unique("k", "a")
	msg.Group = "g"
	_, err := q.Send(e.ctx(), []driver.Outgoing{msg})
	e.expectInvalid(err, driver.ErrUnsupported, "", "send with a group and a unique key to several shards")
	e.expectEmpty(q)
}

func schedulesHaveNoKeys(e *env, q driver.Queue) {
	_, _, err := q.Fire(e.ctx(), driver.Firing{
		Name: "nightly", Definition: []byte("{}"), Messages: []driver.DueMessage{{Outgoing: unique("k", "a")}},
	})
	e.expectInvalid(err, driver.ErrInvalid, "", "a message of a schedule with a unique key")
	e.expectEmpty(q)
}

// usageCountsUniqueKeys: a message counts until it is acked or dead, and one that is replaced once.
func usageCountsUniqueKeys(e *env, q driver.Queue) {
	expect := func(want int, when string) {
		usage, err := q.Usage(e.ctx())
		e.ok(err, "measure")
		if usage.UniqueKeys != want {
			e.failf("%s: %d unique keys are held, want %d", when, usage.UniqueKeys, want)
		}
	}
	expect(0, "an empty queue")
	e.sendOne(q, driver.Outgoing{Body: []byte("plain")})
	for _, key := range []string{"a", "b", "c"} {
		e.sendOne(q, driver.Outgoing{Body: []byte(key), UniqueKey: key})
	}
	e.sendOne(q, driver.Outgoing{Body: []byte("again"), UniqueKey: "c"})
	e.sendOne(q, driver.Outgoing{Body: []byte("other"), UniqueKey: "c", Replace: true})
	expect(3, "after three keys were sent")
	got := e.receive(q, 3)
	expect(3, "in flight")
	e.ack(q, got[0])
	e.ack(q, got[1])
	expect(2, "after the ack of one")
	e.deadLetter(q, got[2], driver.ReasonFatal)
	expect(1, "after the death of another")
}
