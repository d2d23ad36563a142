package drivertest

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var dedupCases = []testCase{
	{id: "DUP-1", title: "the same key and body is the same message", needs: []need{needDedup}, run: duplicateIsOneMessage},
	{id: "DUP-1", title: "only key and body count, not attributes, delay or group", needs: []need{needDedup}, run: duplicateIgnoresTheRest},
	{id: "DUP-1", title: "the same key twice in one batch is one message", needs: []need{needDedup}, run: duplicateWithinBatch},
	{id: "DUP-1", title: "keys of one queue mean nothing to another", needs: []need{needDedup}, run: keysBelongToTheQueue},
	{id: "DUP-1", title: "messages without a key are never duplicates", run: noKeyNoDuplicate},
	{
		id: "DUP-1", title: "a duplicate needs no room",
		config: always(driver.Config{MaxMessages: 1}), needs: []need{needDedup}, run: duplicateNeedsNoRoom,
	},
	{id: "DUP-1", title: "of many sends at once with one key, one counts", needs: []need{needDedup}, run: parallelDuplicates},
	{id: "DUP-1", title: "the longest key is kept apart from its prefix", needs: []need{needDedup}, run: longKeysAreExact},

	{id: "DUP-2", title: "the same key with another body is a conflict", needs: []need{needDedup}, run: otherBodyConflicts},
	{id: "DUP-2", title: "a conflict keeps its position in a batch", needs: []need{needDedup}, run: conflictKeepsPosition},
	{id: "DUP-2", title: "a conflict stays one after the message is acked", needs: []need{needDedup}, run: conflictOutlivesMessage},

	{id: "DUP-3", title: "ack, nack, purge, death and redrive do not free a key", needs: []need{needDedup}, run: keyOutlivesMessage},
	{
		id: "DUP-3", title: "a key is free when the window is over, not before, and repeats do not extend it",
		config: shortWindow, needs: []need{needDedup}, run: keyIsFreeAfterWindow,
	},
	{
		id: "DUP-3", title: "a full table refuses new keys and tells when the oldest ends",
		config: smallTable, needs: []need{needDedup}, run: fullTableRefuses,
	},
	{
		id: "DUP-3", title: "a full table forgets no live key",
		config: smallTable, needs: []need{needDedup}, run: fullTableForgetsNothing,
	},
	{
		id: "DUP-3", title: "a full table takes a new key when the oldest has ended",
		config: tinyTable, needs: []need{needDedup}, run: fullTableMakesRoom,
	},
	{
		id: "DUP-3", title: "a window that is made shorter holds for keys from then on",
		config: always(driver.Config{DedupWindow: time.Hour}), needs: []need{needDedup}, run: shorterWindowHolds,
	},
	{
		id: "DUP-3", title: "many keys come and go, and none is mistaken for another",
		config: shortWindow, needs: []need{needDedup}, run: manyKeysComeAndGo, repeats: true,
	},
	{id: "DUP-3", title: "forgetting frees all keys and touches no message", needs: []need{needDedup, needForget}, run: forgettingFreesKeys},
	{
		id: "DUP-3", title: "forgetting frees the keys of every shard", config: always(driver.Config{Shards: 4}),
		needs: []need{needDedup, needForget}, run: forgettingFreesKeys,
	},
	{id: "DUP-3", title: "forgetting makes room for other keys", config: smallTable, needs: []need{needDedup, needForget}, run: forgettingMakesRoom},
}

func (e *env) forgetDedup(q driver.Queue) {
	e.t.Helper()
	e.ok(q.ForgetDedup(e.ctx()), "forget dedup keys")
}

func forgettingFreesKeys(e *env, q driver.Queue) {
	const keys = 9
	for i := range keys {
		e.expectFresh(q, keyed(fmt.Sprint(i), "body"), "for the first time")
	}
	e.forgetDedup(q)
	e.expectStats(q, driver.Stats{Ready: keys})
	for i := range keys {
		again := e.expectFresh(q, keyed(fmt.Sprint(i), "other body"), "after forgetting")
		e.expectDuplicate(q, keyed(fmt.Sprint(i), "other body"), again, "for the second time after forgetting")
	}
	e.expectStats(q, driver.Stats{Ready: 2 * keys})
}

func forgettingMakesRoom(e *env, q driver.Queue) {
	for range 3 {
		e.expectFresh(q, keyed("a", "body"), "in a table of two")
		e.expectFresh(q, keyed("b", "body"), "in a table of two")
		e.forgetDedup(q)
	}
}

// smallTable remembers two keys for a while.
func smallTable(e *env) driver.Config {
	return driver.Config{DedupMax: 2, DedupWindow: e.longWindow()}
}

// tinyTable remembers one key for two ticks.
func tinyTable(e *env) driver.Config {
	return driver.Config{DedupMax: 1, DedupWindow: 2 * e.tick}
}

func shortWindow(e *env) driver.Config { return driver.Config{DedupWindow: 2 * e.tick} }

// longWindow is a dedup window that virtual time can pass, and that does not end in real time.
func (e *env) longWindow() time.Duration {
	if e.backend.Virtual {
		return 2 * e.tick
	}
	return e.hold
}

func keyed(key, body string) driver.Outgoing {
	return driver.Outgoing{Body: []byte(body), DedupKey: key}
}

// expectDuplicate sends a message that was sent before.
func (e *env) expectDuplicate(q driver.Queue, msg driver.Outgoing, id, when string) {
	e.t.Helper()
	if sent := e.sendOne(q, msg); !sent.Duplicate || sent.ID != id {
		e.failf("send with a used key %s: got %+v, want Duplicate and id %s", when, sent, id)
	}
}

// expectFresh sends a message whose dedup key must be free.
func (e *env) expectFresh(q driver.Queue, msg driver.Outgoing, when string) string {
	e.t.Helper()
	sent := e.sendOne(q, msg)
	if sent.Duplicate {
		e.failf("send with a free key %s: got Duplicate", when)
	}
	return sent.ID
}

func duplicateIsOneMessage(e *env, q driver.Queue) {
	id := e.expectFresh(q, keyed("key", "body"), "for the first time")
	e.expectDuplicate(q, keyed("key", "body"), id, "again")
	e.expectDuplicate(e.open(queueName), keyed("key", "body"), id, "through another handle")
	e.expectStats(q, driver.Stats{Ready: 1})
	e.expectNext(q, "body")
	e.expectDuplicate(q, keyed("key", "body"), id, "while it is in flight")
	e.expectStats(q, driver.Stats{InFlight: 1})
	e.expectNothing(q)
}

func duplicateIgnoresTheRest(e *env, q driver.Queue) {
	id := e.expectFresh(q, keyed("key", "body"), "for the first time")
	other := keyed("key", "body")
	other.Attributes = map[string]string{"attempt": "2"}
	other.Delay = e.tick
	other.CorrelationID = "other"
	e.expectDuplicate(q, other, id, "with other attributes and a delay")
	e.expectStats(q, driver.Stats{Ready: 1})
	if got := e.expectNext(q, "body"); len(got[0].Attributes) != 0 || got[0].CorrelationID != "" {
		e.failf("a duplicate changed the message: attributes %q, correlation id %q", got[0].Attributes, got[0].CorrelationID)
	}
}

func duplicateWithinBatch(e *env, q driver.Queue) {
	sent, err := q.Send(e.ctx(), []driver.Outgoing{keyed("key", "body"), keyed("other", "body"), keyed("key", "body")})
	e.ok(err, "send")
	if len(sent) != 3 {
		e.failf("send of three messages: got %d results", len(sent))
	}
	if sent[0].Duplicate || sent[1].Duplicate || !sent[2].Duplicate || sent[2].ID != sent[0].ID || sent[1].ID == sent[0].ID {
		e.failf("send of key, other, key in one batch: got %+v, want the third to be a duplicate of the first", sent)
	}
	e.expectStats(q, driver.Stats{Ready: 2})
}

func keysBelongToTheQueue(e *env, q driver.Queue) {
	other := e.open("invoices")
	id := e.expectFresh(q, keyed("key", "body"), "for the first time")
	if otherID := e.expectFresh(other, keyed("key", "body"), "in another queue"); otherID == id {
		e.failf("two messages in two queues have one id %s", id)
	}
	e.expectFresh(e.open("receipts"), keyed("key", "other body"), "in a third queue, with another body")
}

func noKeyNoDuplicate(e *env, q driver.Queue) {
	first := e.sendOne(q, driver.Outgoing{Body: []byte("same")})
	second := e.sendOne(q, driver.Outgoing{Body: []byte("same")})
	if first.Duplicate || second.Duplicate || first.ID == second.ID {
		e.failf("two sends of one body without a key: got %+v and %+v, want two messages", first, second)
	}
	e.expectStats(q, driver.Stats{Ready: 2})
}

func duplicateNeedsNoRoom(e *env, q driver.Queue) {
	id := e.expectFresh(q, keyed("key", "body"), "for the first time")
	e.expectFull(trySend(e, q, "other"), "send to a full queue")
	e.expectDuplicate(q, keyed("key", "body"), id, "in a full queue")
	e.expectStats(q, driver.Stats{Ready: 1})
}

func parallelDuplicates(e *env, q driver.Queue) {
	ids := make([]string, 64)
	var fresh atomic.Int32
	e.parallel(len(ids), func(i int) error {
		sent, err := q.Send(e.ctx(), []driver.Outgoing{keyed("key", "body")})
		if err != nil {
			return fmt.Errorf("send %d: %w", i, err)
		}
		if len(sent) != 1 {
			return fmt.Errorf("send of one message: got %d results", len(sent))
		}
		if !sent[0].Duplicate {
			fresh.Add(1)
		}
		ids[i] = sent[0].ID
		return nil
	})
	if n := fresh.Load(); n != 1 {
		e.failf("%d sends at once with one key: %d were not duplicates, want 1", len(ids), n)
	}
	for _, id := range ids {
		if id != ids[0] {
			e.failf("%d sends at once with one key: got ids %s and %s, want one id", len(ids), ids[0], id)
		}
	}
	e.expectStats(q, driver.Stats{Ready: 1})
}

func longKeysAreExact(e *env, q driver.Queue) {
	long := fmt.Sprintf("%0*d", driver.MaxDedupKeyBytes, 7)
	id := e.expectFresh(q, keyed(long, "body"), "of the longest kind")
	e.expectFresh(q, keyed(long[:len(long)-1], "body"), "that is a prefix")
	e.expectFresh(q, keyed(long[1:], "body"), "that is a suffix")
	e.expectDuplicate(q, keyed(long, "body"), id, "of the longest kind")
}

func otherBodyConflicts(e *env, q driver.Queue) {
	id := e.expectFresh(q, keyed("key", "body"), "for the first time")
	for _, body := range []string{"other", "", "bodY", "body "} {
		_, err := q.Send(e.ctx(), []driver.Outgoing{keyed("key", body)})
		e.expectCode(err, driver.ErrConflict, "send with a used key and body %q", body)
	}
	e.expectStats(q, driver.Stats{Ready: 1})
	e.expectDuplicate(q, keyed("key", "body"), id, "after conflicts")
	e.expectNext(q, "body")
}

func conflictKeepsPosition(e *env, q driver.Queue) {
	e.sendOne(q, keyed("key", "body"))
	_, err := q.Send(e.ctx(), []driver.Outgoing{
		keyed("a", "one"), keyed("key", "other"), keyed("a", "two"), {Body: []byte("three")},
	})
	e.expectPositions(err, "send of a batch with two conflicts", fine, driver.ErrConflict, driver.ErrConflict, fine)
	e.expectNext(q, "body", "one", "three")
}

func conflictOutlivesMessage(e *env, q driver.Queue) {
	e.sendOne(q, keyed("key", "body"))
	e.ack(q, e.expectNext(q, "body")...)
	_, err := q.Send(e.ctx(), []driver.Outgoing{keyed("key", "other")})
	e.expectCode(err, driver.ErrConflict, "send with the key of an acked message and another body")
	e.expectEmpty(q)
}

func keyOutlivesMessage(e *env, q driver.Queue) {
	acked := e.expectFresh(q, keyed("acked", "body"), "for the first time")
	e.ack(q, e.expectNext(q, "body")...)
	e.expectDuplicate(q, keyed("acked", "body"), acked, "after an ack")
	e.expectEmpty(q)

	nacked := e.expectFresh(q, keyed("nacked", "body"), "for the first time")
	e.nack(q, e.expectNext(q, "body")[0], 0, "")
	e.expectDuplicate(q, keyed("nacked", "body"), nacked, "after a nack")

	_, err := q.Purge(e.ctx())
	e.ok(err, "purge")
	e.expectDuplicate(q, keyed("nacked", "body"), nacked, "after a purge")
	e.expectEmpty(q)

	if q.Traits().DeadLetters {
		dead := e.expectFresh(q, keyed("dead", "body"), "for the first time")
		e.deadLetter(q, e.expectNext(q, "body")[0], driver.ReasonFatal)
		e.expectDuplicate(q, keyed("dead", "body"), dead, "after its message died")
		_, err := q.Redrive(e.ctx(), nil, 0)
		e.ok(err, "redrive")
		e.expectDuplicate(q, keyed("dead", "body"), dead, "after a redrive")
		e.expectNext(q, "body")
	}
}

func keyIsFreeAfterWindow(e *env, q driver.Queue) {
	window := q.Traits().DedupWindow
	if window != 2*e.tick {
		e.failf("Traits.DedupWindow: got %v, want %v as configured", window, 2*e.tick)
	}
	start := time.Now()
	first := e.expectFresh(q, keyed("key", "body"), "for the first time")
	if e.backend.Virtual {
		e.sleep(window - time.Millisecond)
		e.expectDuplicate(q, keyed("key", "body"), first, "just before the window ends")
	}
	for {
		sent := e.sendOne(q, keyed("key", "body"))
		now := time.Now()
		if !sent.Duplicate {
			e.expectTime(now, start.Add(window), "the key became free")
			break
		}
		if now.After(start.Add(window + e.patience)) {
			e.failf("the key is still taken %v after the first send; the window is %v", now.Sub(start), window)
		}
		e.nap(start.Add(window))
	}
	e.expectNext(q, "body", "body")
}

func fullTableRefuses(e *env, q driver.Queue) {
	window := e.longWindow()
	first := time.Now()
	e.sendOne(q, keyed("a", "1"))
	if e.backend.Virtual {
		e.sleep(e.tick / 2)
	}
	e.sendOne(q, keyed("b", "2"))
	_, err := q.Send(e.ctx(), []driver.Outgoing{keyed("c", "3")})
	e.expectFull(err, "send with a third key to a table for two")
	remaining := time.Until(first.Add(window))
	latest := window
	if e.backend.Virtual {
		latest = remaining
	}
	// A wire format may carry the hint in whole seconds, rounded up.
	if got := driver.RetryAfter(err); got < remaining || got > latest+time.Second {
		e.failf("a full dedup table: got RetryAfter %v, want %v until the oldest entry ends", got, remaining)
	}
	e.expectStats(q, driver.Stats{Ready: 2})
	e.send(q, "without a key")
}

func fullTableForgetsNothing(e *env, q driver.Queue) {
	a := e.expectFresh(q, keyed("a", "1"), "for the first time")
	b := e.expectFresh(q, keyed("b", "2"), "for the first time")
	for i := range 10 {
		_, err := q.Send(e.ctx(), []driver.Outgoing{keyed(fmt.Sprint("new", i), "3")})
		e.expectFull(err, "send with a new key to a full table")
	}
	e.expectDuplicate(q, keyed("a", "1"), a, "in a full table")
	e.expectDuplicate(q, keyed("b", "2"), b, "in a full table")
	_, err := q.Send(e.ctx(), []driver.Outgoing{keyed("a", "other")})
	e.expectCode(err, driver.ErrConflict, "send with a used key and another body to a full table")
}

func fullTableMakesRoom(e *env, q driver.Queue) {
	start := time.Now()
	e.sendOne(q, keyed("a", "1"))
	for {
		_, err := q.Send(e.ctx(), []driver.Outgoing{keyed("b", "2")})
		now := time.Now()
		if err == nil {
			e.expectTime(now, start.Add(2*e.tick), "the table took a new key")
			break
		}
		e.expectFull(err, "send with a second key to a table for one")
		if now.After(start.Add(2*e.tick + e.patience)) {
			e.failf("the table is still full %v after its only entry was made; the window is %v", now.Sub(start), 2*e.tick)
		}
		e.nap(start.Add(2 * e.tick))
	}
	e.expectNext(q, "1", "2")
}

func shorterWindowHolds(e *env, q driver.Queue) {
	e.sendOne(q, keyed("before", "1"))
	if !e.reconfigure(shortWindow(e)) {
		return
	}
	e.sendOne(q, keyed("after", "2"))
	e.sleep(2 * e.tick)
	e.expectFresh(q, keyed("after", "2"), "when its short window is over")
}

// manyKeysComeAndGo fills the table in three generations. When the first has ended, its keys
// must be free and those of the others in use.
func manyKeysComeAndGo(e *env, q driver.Queue) {
	if !e.backend.Virtual {
		e.t.Log("needs thousands of sends within a window, and so is checked in virtual time only")
		return
	}
	const each = 1500
	key := func(generation, i int) driver.Outgoing {
		return keyed(fmt.Sprint("key-", generation, "-", i), fmt.Sprint(generation, i))
	}
	var ids [3][each]string
	for generation := range ids {
		for i := range each {
			ids[generation][i] = e.expectFresh(q, key(generation, i), "for the first time")
		}
		e.sleep(e.tick * 3 / 4)
	}
	for i := range each { // 2.25 ticks after the first generation, with a window of 2
		e.expectDuplicate(q, key(1, i), ids[1][i], "that is still live")
		if id := e.expectFresh(q, key(0, i), "after its window"); id == ids[0][i] {
			e.failf("two messages have one id %s", id)
		}
		e.expectDuplicate(q, key(2, i), ids[2][i], "that is still live")
	}
	e.expectStats(q, driver.Stats{Ready: 4 * each})
}
