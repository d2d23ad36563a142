package drivertest

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var dedupCases = []testCase{
	{id: "DUP-1", title: "of many sends at once with one key, one counts", needs: []need{needDedup}, run: parallelDuplicates},
	{id: "DUP-1", title: "the longest key is kept apart from its prefix", needs: []need{needDedup}, run: longKeysAreExact},

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
		id: "DUP-3", title: "a full table takes a new key when the oldest has ended",
		config: tinyTable, needs: []need{needDedup}, run: fullTableMakesRoom,
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

// smallTable remembers two keys for a while.
func smallTable(e *env) driver.Config {
	return driver.Config{DedupMax: 2, DedupWindow: e.longWindow()}
}

// tinyTable remembers one key for two ticks.
func tinyTable(e *env) driver.Config {
	return driver.Config{DedupMax: 1, DedupWindow: 2 * e.tick()}
}

func shortWindow(e *env) driver.Config { return driver.Config{DedupWindow: 2 * e.tick()} }

// longWindow is a dedup window that virtual time can pass, and that does not end in real time.
func (e *env) longWindow() time.Duration {
	if e.backend.Virtual {
		return 2 * e.tick()
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
	if window != 2*e.tick() {
		e.failf("Traits.DedupWindow: got %v, want %v as configured", window, 2*e.tick())
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
		e.sleep(e.tick() / 2)
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

func fullTableMakesRoom(e *env, q driver.Queue) {
	start := time.Now()
	e.sendOne(q, keyed("a", "1"))
	for {
		_, err := q.Send(e.ctx(), []driver.Outgoing{keyed("b", "2")})
		now := time.Now()
		if err == nil {
			e.expectTime(now, start.Add(2*e.tick()), "the table took a new key")
			break
		}
		e.expectFull(err, "send with a second key to a table for one")
		if now.After(start.Add(2*e.tick() + e.patience)) {
			e.failf("the table is still full %v after its only entry was made; the window is %v", now.Sub(start), 2*e.tick())
		}
		e.nap(start.Add(2 * e.tick()))
	}
	e.expectNext(q, "1", "2")
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
		e.sleep(e.tick() * 3 / 4)
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
