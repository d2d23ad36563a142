package pgbox

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/pgtest"
)

// queueRow reads a column of the only queue of a backend, as text.
func queueRow(t *testing.T, b *Backend, column string) (value string) {
	t.Helper()
	ok(t, b.pool.QueryRow(t.Context(), b.sql("SELECT "+column+"::text FROM mailbox.queue"), pgx.QueryExecModeExec).Scan(&value))
	return value
}

func TestLifeOfMessageSentInTransactionBeginsWhenItIsMoved(t *testing.T) {
	t.Parallel()
	b, q := txQueue(t, driver.Config{TTL: time.Hour})
	tx := begin(t, b)
	ctx := InTx(t.Context(), tx)
	_, err := q.Send(ctx, []driver.Outgoing{{Body: []byte("a"), TTL: time.Minute}, {Body: []byte("b")}})
	ok(t, err)
	ok(t, tx.Commit(t.Context()))
	text, _ := receiveBodies(t, q, 2)
	if text != "ab" {
		t.Errorf("received %q, want a and b", text)
	}
	var lives string
	ok(t, b.pool.QueryRow(t.Context(), b.sql("SELECT string_agg((ttl / 60000000) || ' ' || (ends - born = ttl), ', ' ORDER BY place) FROM mailbox.message"), pgx.QueryExecModeExec).Scan(&lives))
	if want := "1 true, 60 true"; lives != want {
		t.Errorf("minutes to live, and whether they count from the move: got %q, want %q", lives, want)
	}
	if queueRow(t, b, "mortal") != "true" {
		t.Error("the queue does not look for lives that end")
	}
}

// TestManyLivesThatEndTogetherAreHandledInParts lets more messages end at once than one call handles.
func TestManyLivesThatEndTogetherAreHandledInParts(t *testing.T) {
	t.Parallel()
	b, q := txQueue(t, driver.Config{})
	const n = 2500
	for range n / 250 {
		msgs := outgoing(strings.Fields(strings.Repeat("x ", 250))...)
		for i := range msgs {
			msgs[i].TTL = time.Hour
		}
		_, err := q.Send(t.Context(), msgs)
		ok(t, err)
	}
	_, err := b.pool.Exec(t.Context(), b.sql("UPDATE mailbox.message SET ends = 1"), pgx.QueryExecModeExec)
	ok(t, err)
	for want := 1000; want <= 2000; want += 1000 {
		var done bool
		var dead int
		ok(t, b.pool.QueryRow(t.Context(), b.sql("SELECT u.done, u.dead FROM mailbox.usage((SELECT qid FROM mailbox.queue), false, false) u"), pgx.QueryExecModeExec).Scan(&done, &dead))
		if done || dead != want {
			t.Errorf("after a call: done %v, %d dead; want %d, and more to do", done, dead, want)
		}
	}
	if stats, err := q.Stats(t.Context()); err != nil || stats.Dead != n || stats.Ready != 0 {
		t.Errorf("got %+v, %v; want %d dead", stats, err, n)
	}
}

// TestLivesWaitForRoomWhateverWasSeenBefore lets lives end while the dead letters are full, lets the
// process that sees it look far ahead, and makes room from another one.
func TestLivesWaitForRoomWhateverWasSeenBefore(t *testing.T) {
	t.Parallel()
	pool := pgtest.Shared(t).Pool(t)
	schema := pgtest.Schema()
	first := open(t, pool, &Options{Schema: schema})
	ok(t, first.ConfigureQueue(t.Context(), "orders", driver.Config{MaxDead: 1}))
	q, err := first.OpenQueue(t.Context(), "orders")
	ok(t, err)
	_, err = q.Send(t.Context(), outgoing("dead"))
	ok(t, err)
	_, got := receiveBodies(t, q, 1)
	ok(t, q.DeadLetter(t.Context(), []driver.DeadLetterRequest{{Receipt: got[0].Receipt, Reason: driver.ReasonFatal}}))
	_, err = q.Send(t.Context(), []driver.Outgoing{{Body: []byte("held"), TTL: time.Hour}, {Body: []byte("ready"), TTL: time.Hour}})
	ok(t, err)
	_, got = receiveBodies(t, q, 1)
	_, err = pool.Exec(t.Context(), first.sql("UPDATE mailbox.message SET ends = mailbox.clock() + 1000 WHERE ends IS NOT NULL; SELECT pg_sleep(0.002)"), pgx.QueryExecModeSimpleProtocol)
	ok(t, err)
	stats, err := q.Stats(t.Context())
	if err != nil || stats.Ready != 1 || stats.Dead != 1 {
		t.Fatalf("got %+v, %v; want a message that waits for room", stats, err)
	}
	if more, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 10, Visibility: hold}); err != nil || len(more) > 0 {
		t.Fatalf("received %v, %v after the end of its life", more, err)
	}
	ok(t, q.Nack(t.Context(), []driver.Nack{{Receipt: got[0].Receipt}}))
	second, err := open(t, pool, &Options{Schema: schema}).OpenQueue(t.Context(), "orders")
	ok(t, err)
	for letters, want := 1, 2; letters <= want; letters++ {
		if _, err := second.PurgeDead(t.Context()); err != nil {
			t.Fatal(err)
		}
		stats, err := q.Stats(t.Context())
		if err != nil || stats.Dead != 1 || stats.Delayed != want-letters {
			t.Fatalf("after %d dead letters were purged: %+v, %v", letters, stats, err)
		}
	}
}

// TestLivesEndUnderLoad sends messages of all priorities that live for a moment to a queue whose dead letters go to
// another one, while goroutines receive and settle. Every message ends once.
func TestLivesEndUnderLoad(t *testing.T) {
	t.Parallel()
	b, q := txQueue(t, driver.Config{Shards: 2, TTL: 20 * time.Millisecond, DeadLetterTo: "late", MaxMessages: 100_000})
	late, err := b.OpenQueue(t.Context(), "late")
	ok(t, err)
	var work sync.WaitGroup
	var acked atomic.Int64
	const senders, each = 4, 60
	for n := range senders {
		work.Go(func() {
			for i := range each {
				if _, err := q.Send(t.Context(), []driver.Outgoing{{Body: fmt.Append(nil, n, i), TTL: time.Duration(i%3) * 10 * time.Millisecond, Priority: i % 10}, {Body: fmt.Append(nil, n, i)}}); err != nil {
					t.Error(err)
				}
				got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 1, Visibility: hold})
				for _, d := range got {
					if i%2 == 0 {
						err = q.Nack(t.Context(), []driver.Nack{{Receipt: d.Receipt, Mode: driver.NackRelease}})
					} else if err = q.Ack(t.Context(), []driver.Receipt{d.Receipt}); err == nil {
						acked.Add(1)
					}
				}
				if err != nil {
					t.Error(err)
				}
				if _, err := late.Stats(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	work.Wait()
	_, err = b.pool.Exec(t.Context(), "SELECT pg_sleep(0.05)", pgx.QueryExecModeExec) // the last lives end
	ok(t, err)
	stats, err := q.Stats(t.Context())
	ok(t, err)
	expired, err := late.Stats(t.Context())
	ok(t, err)
	if total := int(acked.Load()) + expired.Ready; total != 2*senders*each || stats.Waiting()+stats.Dead > 0 {
		t.Errorf("%d acked and %d expired of %d messages; left: %+v", acked.Load(), expired.Ready, 2*senders*each, stats)
	}
}

// TestCallsOfTheVersionBeforeWork calls the functions as a process does that knows no times to live and no priorities.
func TestCallsOfTheVersionBeforeWork(t *testing.T) {
	t.Parallel()
	b, q := txQueue(t, driver.Config{TTL: time.Hour})
	for _, statement := range []string{
		"SELECT mailbox.configure('other', 0, 'first', '{}', false, false, '', '{1,0,100,100000,0,0,0,0,0,0,0,0,0}')",
		"SELECT mailbox.send_from((SELECT qid FROM mailbox.queue WHERE name = 'orders'), '{0}', '{00000000-0000-0000-0000-000000000001}', '{a}', '{NULL}', '{NULL}', '{0}', NULL, NULL, NULL, false, false, 0, 0)",
		"SELECT mailbox.fire((SELECT qid FROM mailbox.queue WHERE name = 'orders'), 0, 'hourly', 0, 1, 0, false, 'd', '{1}', '{00000000-0000-0000-0000-000000000002}', '{b}', '{NULL}', NULL, false)",
		"SELECT * FROM mailbox.settle((SELECT qid FROM mailbox.queue WHERE name = 'other'), 'n', '{0}', '{1}', '{1}', '{00000000-0000-0000-0000-000000000001}', '{0}', '{NULL}', '{NULL}', '{n}', false, 0, 0)",
		"SELECT * FROM mailbox.usage((SELECT qid FROM mailbox.queue WHERE name = 'other'), true, false, 0, 0)",
		"SELECT * FROM mailbox.edit((SELECT qid FROM mailbox.queue WHERE name = 'other'), '00000000-0000-0000-0000-000000000001', true, 0, false)",
		"SELECT mailbox.send_tx((SELECT qid FROM mailbox.queue WHERE name = 'orders'), 0, '00000000-0000-0000-0000-000000000003', 'c', NULL, NULL, 0, NULL, NULL, NULL, NULL, NULL, NULL)",
	} {
		_, err := b.pool.Exec(t.Context(), b.sql(statement), pgx.QueryExecModeSimpleProtocol)
		ok(t, err)
	}
	var columns int
	ok(t, b.pool.QueryRow(t.Context(), b.sql("SELECT count(*) FROM json_object_keys((SELECT row_to_json(r) FROM mailbox.receive((SELECT qid FROM mailbox.queue WHERE name = 'other'), 0, '{1}', '{0}', '{1000000}', 1, 0, 0, true, false) r LIMIT 1))"), pgx.QueryExecModeExec).Scan(&columns))
	if columns != 16 {
		t.Errorf("receive answers with %d columns, want 16", columns)
	}
	if text, _ := receiveBodies(t, q, 3); text != "abc" {
		t.Errorf("received %q, want a, b and c", text)
	}
	var mortal int
	ok(t, b.pool.QueryRow(t.Context(), b.sql("SELECT count(*) FROM mailbox.message WHERE ttl = 3600000000 AND ends = born + ttl"), pgx.QueryExecModeExec).Scan(&mortal))
	if mortal != 3 {
		t.Errorf("%d of 3 messages have the time to live of their queue", mortal)
	}
}
