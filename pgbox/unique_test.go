package pgbox

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/mailboxmq/mailbox/driver"
)

// unique returns a message with a unique key.
func unique(key, body string) driver.Outgoing {
	return driver.Outgoing{Body: []byte(body), UniqueKey: key}
}

// replacing returns a message that replaces the one that holds its unique key.
func replacing(key, body string) driver.Outgoing {
	return driver.Outgoing{Body: []byte(body), UniqueKey: key, Replace: true}
}

func sendOne(t *testing.T, q driver.Queue, msg driver.Outgoing) driver.Sent {
	t.Helper()
	sent, err := q.Send(t.Context(), []driver.Outgoing{msg})
	ok(t, err)
	return sent[0]
}

func wantSent(t *testing.T, q driver.Queue, msg driver.Outgoing, want driver.Sent) {
	t.Helper()
	if sent := sendOne(t, q, msg); sent != want {
		t.Errorf("send %q: got %+v, want %+v", msg.Body, sent, want)
	}
}

// wantHolder checks that a message stays because another one holds its unique key.
func wantHolder(t *testing.T, err error, holder string) {
	t.Helper()
	if conflict, is := errors.AsType[*driver.Error](err); !is || conflict.Code != driver.ErrConflict || conflict.MessageID != holder {
		t.Errorf("got %v, want a conflict that names %s", err, holder)
	}
}

// deadLetter receives a message and makes it a dead letter.
func deadLetter(t *testing.T, q driver.Queue) {
	t.Helper()
	_, got := receiveBodies(t, q, 1)
	ok(t, q.DeadLetter(t.Context(), []driver.DeadLetterRequest{{Receipt: got[0].Receipt, Reason: driver.ReasonFatal}}))
}

// collect moves what transactions have sent into the queue, and waits for others that do.
func collect(t *testing.T, q driver.Queue) {
	t.Helper()
	_, err := q.(*handle).collect(t.Context(), nil)
	ok(t, err)
}

// TestUniqueKeysOfTransactionsAreJudgedAtTheMove: messages whose key is held are dropped, or
// replace the one that holds it, when they are moved into the queue.
func TestUniqueKeysOfTransactionsAreJudgedAtTheMove(t *testing.T) {
	t.Parallel()
	b, q := txQueue(t, driver.Config{MaxBytes: 1000})
	first := sendOne(t, q, unique("k", "first")).ID
	tx, lost := begin(t, b), begin(t, b)
	keyed := unique("k", "dropped")
	keyed.DedupKey = "d"
	_, err := q.Send(InTx(t.Context(), tx), []driver.Outgoing{keyed, replacing("k", "replaces"), unique("l", "other"), unique("l", "dropped too")})
	ok(t, err)
	_, err = q.Send(InTx(t.Context(), lost), []driver.Outgoing{replacing("k", "lost"), unique("m", "lost")})
	ok(t, err)
	wantSent(t, q, unique("k", "again"), driver.Sent{ID: first, Duplicate: true}) // nothing is judged before the commit
	ok(t, lost.Rollback(t.Context()))
	ok(t, tx.Commit(t.Context()))
	collect(t, q)
	wantSent(t, q, keyed, driver.Sent{ID: first, Duplicate: true}) // its dedup key stands for the message that held the key
	if text, got := receiveBodies(t, q, 2); text != "replacesother" || got[0].ID != first {
		t.Errorf("received %q, the first with id %s; want what replaced %s, and other", text, got[0].ID, first)
	}
	stats, err := q.Stats(t.Context())
	if err != nil || stats.Waiting() != 2 {
		t.Errorf("stats %+v, %v; want 2 messages", stats, err)
	}
	usage, err := q.Usage(t.Context())
	ok(t, err)
	if size := usage.Shards[0].Bytes; size != len("replacesother") {
		t.Errorf("%d bytes are counted, want %d", size, len("replacesother"))
	}
	var bodies int
	ok(t, b.pool.QueryRow(t.Context(), b.sql("SELECT count(*) FROM mailbox.body"), pgx.QueryExecModeExec).Scan(&bodies))
	if bodies != 2 {
		t.Errorf("%d bodies are stored, want those of 2 messages", bodies)
	}
}

// TestAckInTransactionFreesKeyAtCommit: the key is held until the transaction has committed, and
// stays held if it is rolled back.
func TestAckInTransactionFreesKeyAtCommit(t *testing.T) {
	t.Parallel()
	b, q := txQueue(t, driver.Config{})
	first := sendOne(t, q, unique("k", "first")).ID
	_, got := receiveBodies(t, q, 1)
	for _, commits := range []bool{false, true} {
		tx := begin(t, b)
		ok(t, q.Ack(InTx(t.Context(), tx), []driver.Receipt{got[0].Receipt}))
		wantSent(t, q, replacing("k", "again"), driver.Sent{ID: first, Duplicate: true})
		if !commits {
			ok(t, tx.Rollback(t.Context()))
			wantSent(t, q, unique("k", "again"), driver.Sent{ID: first, Duplicate: true})
			continue
		}
		ok(t, tx.Commit(t.Context()))
		if sent := sendOne(t, q, unique("k", "next")); sent.Duplicate {
			t.Errorf("got %+v after the commit, want a new message", sent)
		}
	}
}

// TestUniqueKeysAreInTheirShardWhereverTheyComeFrom: one shard decides about a key, for sends, moves
// and forwarded dead letters.
func TestUniqueKeysAreInTheirShardWhereverTheyComeFrom(t *testing.T) {
	t.Parallel()
	b, q := txQueue(t, driver.Config{})
	ok(t, b.ConfigureQueue(t.Context(), "target", driver.Config{Shards: 4}))
	ok(t, b.ConfigureQueue(t.Context(), "orders", driver.Config{DeadLetterTo: "target"}))
	target, err := b.OpenQueue(t.Context(), "target")
	ok(t, err)
	for i := range 8 {
		key := fmt.Sprint("k", i)
		msg := unique(key, "dies")
		msg.DedupKey = fmt.Sprint("d", i)
		id := sendOne(t, q, msg).ID
		if i%2 == 0 {
			deadLetter(t, q)
		} else if moved, err := q.Move(t.Context(), "target", 0); moved != 1 || err != nil {
			t.Fatalf("moved %d, error %v", moved, err)
		}
		wantSent(t, target, unique(key, "again"), driver.Sent{ID: id, Duplicate: true})
		wantSent(t, target, replacing(key, "replaces"), driver.Sent{ID: id, Duplicate: true, Replaced: true})
	}
	holder := sendOne(t, target, unique("taken", "holds")).ID
	sendOne(t, q, unique("taken", "stays"))
	moved, err := q.Move(t.Context(), "target", 0)
	if moved != 0 {
		t.Errorf("moved %d messages, want none", moved)
	}
	wantHolder(t, err, holder)
	deadLetter(t, q) // must arrive, and has no key
	stats, err := target.Stats(t.Context())
	if err != nil || stats.Ready != 10 {
		t.Errorf("stats %+v, %v; want 10 ready", stats, err)
	}
	wantSent(t, target, unique("taken", "again"), driver.Sent{ID: holder, Duplicate: true})
	grouped := unique("g", "grouped")
	grouped.Group = "group"
	sendOne(t, q, grouped)
	if moved, err := q.Move(t.Context(), "target", 0); moved != 1 || err != nil {
		t.Fatalf("moved %d, error %v", moved, err)
	}
	if sent := sendOne(t, target, unique("g", "another")); sent.Duplicate {
		t.Errorf("got %+v: a group decides about the shard, so the message has no key there", sent)
	}
}

// TestRedrivePassesOverManyHeldKeys: dead letters that stay do not keep those behind them, and do
// not count.
func TestRedrivePassesOverManyHeldKeys(t *testing.T) {
	t.Parallel()
	_, q := txQueue(t, driver.Config{MaxDead: 10 * page})
	const held = page + 10
	keys := make([]driver.Outgoing, held+2)
	for i := range keys {
		keys[i] = unique(fmt.Sprint(i), "dead")
	}
	for n := 0; n < len(keys); n += driver.DefaultMaxBatch {
		_, err := q.Send(t.Context(), keys[n:min(n+driver.DefaultMaxBatch, len(keys))])
		ok(t, err)
	}
	_, got := receiveBodies(t, q, len(keys))
	var dead []driver.DeadLetterRequest
	for _, d := range got {
		dead = append(dead, driver.DeadLetterRequest{Receipt: d.Receipt, Reason: driver.ReasonFatal})
	}
	ok(t, q.DeadLetter(t.Context(), dead))
	var holders []driver.Sent
	for n := 0; n < held; n += driver.DefaultMaxBatch {
		sent, err := q.Send(t.Context(), keys[n:min(n+driver.DefaultMaxBatch, held)])
		ok(t, err)
		holders = append(holders, sent...)
	}
	for _, limit := range []int{1, 0} {
		moved, err := q.Redrive(t.Context(), nil, limit)
		if moved != 1 {
			t.Errorf("limit %d: redrove %d, want 1", limit, moved)
		}
		wantHolder(t, err, holders[0].ID)
	}
	stats, err := q.Stats(t.Context())
	if err != nil || stats.Ready != held+2 || stats.Dead != held {
		t.Errorf("stats %+v, %v; want %d ready and %d dead", stats, err, held+2, held)
	}
}

// TestReplacedMessageIsFoundBelowMarks replaces a message at a place up to which the process has seen
// every message taken, and keeps when it was sent.
func TestReplacedMessageIsFoundBelowMarks(t *testing.T) {
	t.Parallel()
	_, q := txQueue(t, driver.Config{})
	delayed := unique("k", "first")
	delayed.Delay = time.Hour
	id := sendOne(t, q, delayed).ID
	var before driver.Peeked
	for seen, err := range q.Peek(t.Context(), driver.Query{ID: id}) {
		ok(t, err)
		before = seen
	}
	_, err := q.Send(t.Context(), outgoing("a", "b"))
	ok(t, err)
	_, got := receiveBodies(t, q, 2)
	ok(t, q.Ack(t.Context(), []driver.Receipt{got[0].Receipt, got[1].Receipt}))
	wantSent(t, q, replacing("k", "second"), driver.Sent{ID: id, Duplicate: true, Replaced: true})
	text, got := receiveBodies(t, q, 1)
	if text != "second" || got[0].ID != id || !got[0].EnqueuedAt.Equal(before.EnqueuedAt) {
		t.Errorf("received %q with id %s, sent at %v; want second, %s and %v", text, got[0].ID, got[0].EnqueuedAt, id, before.EnqueuedAt)
	}
}

// TestVersionBeforeUniqueKeysGetsItsColumns calls the functions as a process does that knows no
// unique keys, while messages hold some.
func TestVersionBeforeUniqueKeysGetsItsColumns(t *testing.T) {
	t.Parallel()
	b, q := txQueue(t, driver.Config{})
	first := sendOne(t, q, unique("k", "dead")).ID
	deadLetter(t, q)
	holder := sendOne(t, q, unique("k", "holds")).ID
	const orders = "(SELECT qid FROM mailbox.queue WHERE name = 'orders')"
	for statement, want := range map[string]int{
		"mailbox.send_from(" + orders + ", '{0}', '{00000000-0000-0000-0000-000000000001}', '{a}', '{NULL}', '{NULL}', '{0}', NULL, NULL, NULL, false, false, 0, 0, NULL, NULL, NULL)": 8,
		"mailbox.redrive(" + orders + ", NULL, 10, false, NULL)": 5,
		"mailbox.move(" + orders + ", 'none', '{}', 10, 0, 0)":   7,
	} {
		var columns int
		ok(t, b.pool.QueryRow(t.Context(), b.sql("SELECT count(*) FROM json_object_keys((SELECT row_to_json(r) FROM "+statement+" r))"), pgx.QueryExecModeExec).Scan(&columns))
		if columns != want {
			t.Errorf("%s answers with %d columns, want %d", statement, columns, want)
		}
	}
	_, err := b.pool.Exec(t.Context(), b.sql("SELECT mailbox.send_tx("+orders+", 0, '00000000-0000-0000-0000-000000000003', 'c', NULL, NULL, 0, NULL, NULL, NULL, NULL, NULL, NULL, 0, 0)"), pgx.QueryExecModeSimpleProtocol)
	ok(t, err)
	text, got := receiveBodies(t, q, 3)
	if text != "holdsac" {
		t.Errorf("received %q, want holds, a and c; %s is dead", text, first)
	}
	_, err = q.Redrive(t.Context(), nil, 0)
	wantHolder(t, err, holder)
	ok(t, q.Ack(t.Context(), []driver.Receipt{got[0].Receipt}))
	if moved, err := q.Redrive(t.Context(), nil, 0); moved != 1 || err != nil {
		t.Errorf("redrove %d, error %v; want 1", moved, err)
	}
}
