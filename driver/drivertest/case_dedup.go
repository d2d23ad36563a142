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
		config: shortWindow, needs: []need{needDedup}, run: manyKeysComeAndGo,
	},
	{id: "DUP-3", title: "forgetting frees all keys and touches no message", needs: []need{needDedup, needForget}, run: forgettingFreesKeys},
	{
		id: "DUP-3", title: "forgetting frees the keys of every shard", config: always(driver.Config{Shards: 4}),
		needs: []need{needDedup, needForget}, run: forgettingFreesKeys,
	},
	{id: "DUP-3", title: "forgetting makes room for other keys", config: smallTable, needs: []need{needDedup, needForget}, run: forgettingMakesRoom},
}

func (s *session) forgetDedup(q driver.Queue) {
	s.t.Helper()
	s.ok(q.ForgetDedup(s.ctx()), "forget dedup keys")
}

func forgettingFreesKeys(s *session, q driver.Queue) {
	const keys = 9
	for i := range keys {
		s.expectFresh(q, keyed(fmt.Sprint(i), "body"), "for the first time")
	}
	s.forgetDedup(q)
	s.expectStats(q, driver.Stats{Ready: keys})
	for i := range keys {
		again := s.expectFresh(q, keyed(fmt.Sprint(i), "other body"), "after forgetting")
		s.expectDuplicate(q, keyed(fmt.Sprint(i), "other body"), again, "for the second time after forgetting")
	}
	s.expectStats(q, driver.Stats{Ready: 2 * keys})
}

func forgettingMakesRoom(s *session, q driver.Queue) {
	for range 3 {
		s.expectFresh(q, keyed("a", "body"), "in a table of two")
		s.expectFresh(q, keyed("b", "body"), "in a table of two")
		s.forgetDedup(q)
	}
}

// smallTable remembers two keys for a while.
func smallTable(s *session) driver.Config {
	return driver.Config{DedupMax: 2, DedupWindow: s.longWindow()}
}

// tinyTable remembers one key for two ticks.
func tinyTable(s *session) driver.Config {
	return driver.Config{DedupMax: 1, DedupWindow: 2 * s.tick}
}

func shortWindow(s *session) driver.Config { return driver.Config{DedupWindow: 2 * s.tick} }

// longWindow is a dedup window that can be waited for in virtual time, and
// does not end by itself in real time.
func (s *session) longWindow() time.Duration {
	if s.backend.Virtual {
		return 2 * s.tick
	}
	return s.hold
}

func keyed(key, body string) driver.Outgoing {
	return driver.Outgoing{Body: []byte(body), DedupKey: key}
}

// expectDuplicate sends what was sent before.
func (s *session) expectDuplicate(q driver.Queue, msg driver.Outgoing, id, when string) {
	s.t.Helper()
	if sent := s.sendOne(q, msg); !sent.Duplicate || sent.ID != id {
		s.failf("send with a used key %s: got %+v, want Duplicate and id %s", when, sent, id)
	}
}

// expectFresh sends with a key that must be free.
func (s *session) expectFresh(q driver.Queue, msg driver.Outgoing, when string) string {
	s.t.Helper()
	sent := s.sendOne(q, msg)
	if sent.Duplicate {
		s.failf("send with a free key %s: got Duplicate", when)
	}
	return sent.ID
}

func duplicateIsOneMessage(s *session, q driver.Queue) {
	id := s.expectFresh(q, keyed("key", "body"), "for the first time")
	s.expectDuplicate(q, keyed("key", "body"), id, "again")
	s.expectDuplicate(s.open(queueName), keyed("key", "body"), id, "through another handle")
	s.expectStats(q, driver.Stats{Ready: 1})
	s.expectNext(q, "body")
	s.expectDuplicate(q, keyed("key", "body"), id, "while it is in flight")
	s.expectStats(q, driver.Stats{InFlight: 1})
	s.expectNothing(q)
}

func duplicateIgnoresTheRest(s *session, q driver.Queue) {
	id := s.expectFresh(q, keyed("key", "body"), "for the first time")
	other := keyed("key", "body")
	other.Attributes = map[string]string{"attempt": "2"}
	other.Delay = s.tick
	other.CorrelationID = "other"
	s.expectDuplicate(q, other, id, "with other attributes and a delay")
	s.expectStats(q, driver.Stats{Ready: 1})
	if got := s.expectNext(q, "body"); len(got[0].Attributes) != 0 || got[0].CorrelationID != "" {
		s.failf("a duplicate changed the message: attributes %q, correlation id %q", got[0].Attributes, got[0].CorrelationID)
	}
}

func duplicateWithinBatch(s *session, q driver.Queue) {
	sent, err := q.Send(s.ctx(), []driver.Outgoing{keyed("key", "body"), keyed("other", "body"), keyed("key", "body")})
	s.ok(err, "send")
	if len(sent) != 3 {
		s.failf("send of three messages: got %d results", len(sent))
	}
	if sent[0].Duplicate || sent[1].Duplicate || !sent[2].Duplicate || sent[2].ID != sent[0].ID || sent[1].ID == sent[0].ID {
		s.failf("send of key, other, key in one batch: got %+v, want the third to be a duplicate of the first", sent)
	}
	s.expectStats(q, driver.Stats{Ready: 2})
}

func keysBelongToTheQueue(s *session, q driver.Queue) {
	other := s.open("invoices")
	id := s.expectFresh(q, keyed("key", "body"), "for the first time")
	if otherID := s.expectFresh(other, keyed("key", "body"), "in another queue"); otherID == id {
		s.failf("two messages in two queues have one id %s", id)
	}
	s.expectFresh(s.open("receipts"), keyed("key", "other body"), "in a third queue, with another body")
}

func noKeyNoDuplicate(s *session, q driver.Queue) {
	first := s.sendOne(q, driver.Outgoing{Body: []byte("same")})
	second := s.sendOne(q, driver.Outgoing{Body: []byte("same")})
	if first.Duplicate || second.Duplicate || first.ID == second.ID {
		s.failf("two sends of one body without a key: got %+v and %+v, want two messages", first, second)
	}
	s.expectStats(q, driver.Stats{Ready: 2})
}

func duplicateNeedsNoRoom(s *session, q driver.Queue) {
	id := s.expectFresh(q, keyed("key", "body"), "for the first time")
	s.expectFull(trySend(s, q, "other"), "send to a full queue")
	s.expectDuplicate(q, keyed("key", "body"), id, "in a full queue")
	s.expectStats(q, driver.Stats{Ready: 1})
}

func parallelDuplicates(s *session, q driver.Queue) {
	ids := make([]string, 64)
	var fresh atomic.Int32
	s.parallel(len(ids), func(i int) error {
		sent, err := q.Send(s.ctx(), []driver.Outgoing{keyed("key", "body")})
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
		s.failf("%d sends at once with one key: %d were not duplicates, want 1", len(ids), n)
	}
	for _, id := range ids {
		if id != ids[0] {
			s.failf("%d sends at once with one key: got ids %s and %s, want one id", len(ids), ids[0], id)
		}
	}
	s.expectStats(q, driver.Stats{Ready: 1})
}

func longKeysAreExact(s *session, q driver.Queue) {
	long := fmt.Sprintf("%0*d", driver.MaxDedupKeyBytes, 7)
	id := s.expectFresh(q, keyed(long, "body"), "of the longest kind")
	s.expectFresh(q, keyed(long[:len(long)-1], "body"), "that is a prefix")
	s.expectFresh(q, keyed(long[1:], "body"), "that is a suffix")
	s.expectDuplicate(q, keyed(long, "body"), id, "of the longest kind")
}

func otherBodyConflicts(s *session, q driver.Queue) {
	id := s.expectFresh(q, keyed("key", "body"), "for the first time")
	for _, body := range []string{"other", "", "bodY", "body "} {
		_, err := q.Send(s.ctx(), []driver.Outgoing{keyed("key", body)})
		s.expectCode(err, driver.ErrConflict, "send with a used key and body %q", body)
	}
	s.expectStats(q, driver.Stats{Ready: 1})
	s.expectDuplicate(q, keyed("key", "body"), id, "after conflicts")
	s.expectNext(q, "body")
}

func conflictKeepsPosition(s *session, q driver.Queue) {
	s.sendOne(q, keyed("key", "body"))
	_, err := q.Send(s.ctx(), []driver.Outgoing{
		keyed("a", "one"), keyed("key", "other"), keyed("a", "two"), {Body: []byte("three")},
	})
	s.expectPositions(err, "send of a batch with two conflicts", fine, driver.ErrConflict, driver.ErrConflict, fine)
	s.expectNext(q, "body", "one", "three")
}

func conflictOutlivesMessage(s *session, q driver.Queue) {
	s.sendOne(q, keyed("key", "body"))
	s.ack(q, s.expectNext(q, "body")...)
	_, err := q.Send(s.ctx(), []driver.Outgoing{keyed("key", "other")})
	s.expectCode(err, driver.ErrConflict, "send with the key of an acked message and another body")
	s.expectEmpty(q)
}

func keyOutlivesMessage(s *session, q driver.Queue) {
	acked := s.expectFresh(q, keyed("acked", "body"), "for the first time")
	s.ack(q, s.expectNext(q, "body")...)
	s.expectDuplicate(q, keyed("acked", "body"), acked, "after an ack")
	s.expectEmpty(q)

	nacked := s.expectFresh(q, keyed("nacked", "body"), "for the first time")
	s.nack(q, s.expectNext(q, "body")[0], 0, "")
	s.expectDuplicate(q, keyed("nacked", "body"), nacked, "after a nack")

	_, err := q.Purge(s.ctx())
	s.ok(err, "purge")
	s.expectDuplicate(q, keyed("nacked", "body"), nacked, "after a purge")
	s.expectEmpty(q)

	if q.Traits().DeadLetters {
		dead := s.expectFresh(q, keyed("dead", "body"), "for the first time")
		s.bury(q, s.expectNext(q, "body")[0], driver.ReasonFatal)
		s.expectDuplicate(q, keyed("dead", "body"), dead, "after its message died")
		_, err := q.Redrive(s.ctx(), nil, 0)
		s.ok(err, "redrive")
		s.expectDuplicate(q, keyed("dead", "body"), dead, "after a redrive")
		s.expectNext(q, "body")
	}
}

func keyIsFreeAfterWindow(s *session, q driver.Queue) {
	window := q.Traits().DedupWindow
	if window != 2*s.tick {
		s.failf("Traits.DedupWindow: got %v, want %v as configured", window, 2*s.tick)
	}
	start := time.Now()
	first := s.expectFresh(q, keyed("key", "body"), "for the first time")
	if s.backend.Virtual {
		s.sleep(window - time.Millisecond)
		s.expectDuplicate(q, keyed("key", "body"), first, "just before the window ends")
	}
	for {
		sent := s.sendOne(q, keyed("key", "body"))
		now := time.Now()
		if !sent.Duplicate {
			s.expectTime(now, start.Add(window), "the key became free")
			break
		}
		if now.After(start.Add(window + s.patience)) {
			s.failf("the key is still taken %v after the first send; the window is %v", now.Sub(start), window)
		}
		s.nap(start.Add(window))
	}
	s.expectNext(q, "body", "body")
}

func fullTableRefuses(s *session, q driver.Queue) {
	window := s.longWindow()
	first := time.Now()
	s.sendOne(q, keyed("a", "1"))
	if s.backend.Virtual {
		s.sleep(s.tick / 2)
	}
	s.sendOne(q, keyed("b", "2"))
	_, err := q.Send(s.ctx(), []driver.Outgoing{keyed("c", "3")})
	s.expectFull(err, "send with a third key to a table for two")
	remaining := time.Until(first.Add(window))
	latest := window
	if s.backend.Virtual {
		latest = remaining
	}
	// A wire may carry the hint in whole seconds, rounded up.
	if got := driver.RetryAfter(err); got < remaining || got > latest+time.Second {
		s.failf("a full dedup table: got RetryAfter %v, want %v until the oldest entry ends", got, remaining)
	}
	s.expectStats(q, driver.Stats{Ready: 2})
	s.send(q, "without a key")
}

func fullTableForgetsNothing(s *session, q driver.Queue) {
	a := s.expectFresh(q, keyed("a", "1"), "for the first time")
	b := s.expectFresh(q, keyed("b", "2"), "for the first time")
	for i := range 10 {
		_, err := q.Send(s.ctx(), []driver.Outgoing{keyed(fmt.Sprint("new", i), "3")})
		s.expectFull(err, "send with a new key to a full table")
	}
	s.expectDuplicate(q, keyed("a", "1"), a, "in a full table")
	s.expectDuplicate(q, keyed("b", "2"), b, "in a full table")
	_, err := q.Send(s.ctx(), []driver.Outgoing{keyed("a", "other")})
	s.expectCode(err, driver.ErrConflict, "send with a used key and another body to a full table")
}

func fullTableMakesRoom(s *session, q driver.Queue) {
	start := time.Now()
	s.sendOne(q, keyed("a", "1"))
	for {
		_, err := q.Send(s.ctx(), []driver.Outgoing{keyed("b", "2")})
		now := time.Now()
		if err == nil {
			s.expectTime(now, start.Add(2*s.tick), "the table took a new key")
			break
		}
		s.expectFull(err, "send with a second key to a table for one")
		if now.After(start.Add(2*s.tick + s.patience)) {
			s.failf("the table is still full %v after its only entry was made; the window is %v", now.Sub(start), 2*s.tick)
		}
		s.nap(start.Add(2 * s.tick))
	}
	s.expectNext(q, "1", "2")
}

func shorterWindowHolds(s *session, q driver.Queue) {
	s.sendOne(q, keyed("before", "1"))
	if !s.reconfigure(shortWindow(s)) {
		return
	}
	s.sendOne(q, keyed("after", "2"))
	s.sleep(2 * s.tick)
	s.expectFresh(q, keyed("after", "2"), "when its short window is over")
}

// manyKeysComeAndGo fills the table in three generations. When the first has
// ended, its keys must be free and those of the others taken.
func manyKeysComeAndGo(s *session, q driver.Queue) {
	if !s.backend.Virtual {
		s.t.Log("needs thousands of sends within a window, and so is checked in virtual time only")
		return
	}
	const each = 1500
	key := func(generation, i int) driver.Outgoing {
		return keyed(fmt.Sprint("key-", generation, "-", i), fmt.Sprint(generation, i))
	}
	var ids [3][each]string
	for generation := range ids {
		for i := range each {
			ids[generation][i] = s.expectFresh(q, key(generation, i), "for the first time")
		}
		s.sleep(s.tick * 3 / 4)
	}
	for i := range each { // 2.25 ticks after the first generation, with a window of 2
		s.expectDuplicate(q, key(1, i), ids[1][i], "that is still live")
		if id := s.expectFresh(q, key(0, i), "after its window"); id == ids[0][i] {
			s.failf("two messages have one id %s", id)
		}
		s.expectDuplicate(q, key(2, i), ids[2][i], "that is still live")
	}
	s.expectStats(q, driver.Stats{Ready: 4 * each})
}
