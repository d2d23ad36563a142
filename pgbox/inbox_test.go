package pgbox

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

// TestDuplicateInTransactionIsDroppedAndTold sends messages in transactions whose keys are taken when they are moved.
func TestDuplicateInTransactionIsDroppedAndTold(t *testing.T) {
	t.Parallel()
	b, q := txQueue(t, driver.Config{})
	var mu sync.Mutex
	told := make(map[string]driver.Ending)
	defer b.Observe(func(e driver.Ending) {
		mu.Lock()
		defer mu.Unlock()
		told[e.ID] = e
	})()
	keyed := func(body string) driver.Outgoing { return driver.Outgoing{Body: []byte(body), DedupKey: "key"} }
	first, holder := sendOne(t, q, keyed("first")).ID, sendOne(t, q, unique("k", "holder")).ID
	tx := begin(t, b)
	sent, err := q.Send(InTx(t.Context(), tx), []driver.Outgoing{keyed("first"), keyed("other"), unique("k", "second"), replacing("k", "replaced"), {Body: []byte("sent")}})
	ok(t, err)
	ok(t, tx.Commit(t.Context()))
	collect(t, q)
	if text, _ := receiveBodies(t, q, 3); text != "firstreplacedsent" {
		t.Errorf("received %q, want first, replaced and sent", text)
	}
	mu.Lock()
	defer mu.Unlock()
	for until := time.Now().Add(time.Minute); len(told) < 4 && time.Now().Before(until); { // another goroutine may have moved them
		mu.Unlock()
		<-time.After(5 * time.Millisecond)
		mu.Lock()
	}
	for i, want := range []string{
		"the dedup key was used for message " + first, "the dedup key was used for message " + first + ", with another body",
		"message " + holder + " holds the unique key", "it replaced message " + holder + ", which holds the unique key",
	} {
		if got := told[sent[i].ID]; got.Kind != driver.EndingDuplicate || got.LastError != want || got.Queue != "orders" || got.Count != 1 || got.Reason != "" {
			t.Errorf("message %d: told %+v, want %q", i, got, want)
		}
	}
	if len(told) != 4 {
		t.Errorf("told of %d messages, want 4", len(told))
	}
}

// A countingTx counts the statements of a transaction.
type countingTx struct {
	pgx.Tx
	statements int
}

func (c *countingTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	c.statements++
	return c.Tx.QueryRow(ctx, sql, args...)
}

// TestBatchInTransactionIsOneStatement sends and settles many messages in transactions, with every field, and counts round trips.
func TestBatchInTransactionIsOneStatement(t *testing.T) {
	t.Parallel()
	b, q := txQueue(t, driver.Config{DedupWindow: time.Hour})
	sending := &countingTx{Tx: begin(t, b)}
	msgs := make([]driver.Outgoing, driver.DefaultMaxBatch)
	for i := range msgs {
		msgs[i] = driver.Outgoing{Body: fmt.Append(nil, "body ", i), Group: fmt.Sprint("group ", i), DedupKey: fmt.Sprint("key ", i), Attributes: map[string]string{"n": fmt.Sprint(i)}}
	}
	msgs[1] = driver.Outgoing{}
	sent, err := q.Send(InTx(t.Context(), sending), msgs)
	ok(t, err)
	if sending.statements != 1 {
		t.Errorf("%d statements sent %d messages, want 1", sending.statements, len(msgs))
	}
	last, err := q.Send(InTx(t.Context(), sending), []driver.Outgoing{{}})
	ok(t, err)
	sent, msgs = append(sent, last...), append(msgs, driver.Outgoing{})
	ok(t, sending.Commit(t.Context()))
	_, got := receiveBodies(t, q, len(msgs))
	receipts := make([]driver.Receipt, len(got))
	for i, d := range got {
		receipts[i] = d.Receipt
		if d.ID != sent[i].ID || string(d.Body) != string(msgs[i].Body) || d.Group != msgs[i].Group || d.Attributes["n"] != msgs[i].Attributes["n"] {
			t.Fatalf("message %d is %+v, want %+v", i, d.Message, msgs[i])
		}
	}
	ok(t, q.Ack(t.Context(), receipts[3:4]))
	slices.Reverse(receipts)
	acking := &countingTx{Tx: begin(t, b)}
	gone := len(receipts) - 1 - 3
	failed := q.Ack(InTx(t.Context(), acking), receipts)
	for i := range receipts {
		if err := driver.At(failed, i); (err != nil) != (i == gone) {
			t.Errorf("ack %d: %v; only %d had been acked before", i, err, gone)
		}
	}
	if acking.statements != 1 {
		t.Errorf("%d statements acked %d messages, want 1", acking.statements, len(receipts))
	}
	ok(t, acking.Commit(t.Context()))
	if stats, err := q.Stats(t.Context()); err != nil || stats.Waiting() != 0 {
		t.Errorf("%+v, %v are left", stats, err)
	}
}

// TestNacksInOneTransactionKeepTheirCauses gives messages back in different ways at once.
func TestNacksInOneTransactionKeepTheirCauses(t *testing.T) {
	t.Parallel()
	b, q := txQueue(t, driver.Config{})
	_, err := q.Send(t.Context(), outgoing("a", "b", "c"))
	ok(t, err)
	_, got := receiveBodies(t, q, 3)
	tx := &countingTx{Tx: begin(t, b)}
	ok(t, q.Nack(InTx(t.Context(), tx), []driver.Nack{
		{Receipt: got[2].Receipt, Cause: "third"}, {Receipt: got[1].Receipt, Mode: driver.NackRelease}, {Receipt: got[0].Receipt, Cause: "first"},
	}))
	if tx.statements != 1 {
		t.Errorf("%d statements, want 1", tx.statements)
	}
	ok(t, tx.Commit(t.Context()))
	text, again := receiveBodies(t, q, 3)
	causes := make(map[string]string)
	for _, d := range again {
		causes[string(d.Body)] = d.LastError
	}
	if causes["a"] != "first" || causes["b"] != "" || causes["c"] != "third" {
		t.Errorf("received %q with causes %v", text, causes)
	}
}

// TestCollectingUnderHeldTransactionReadsFewPages lets messages of transactions go by while one is held open that has sent, and another
// that only reads, and counts the pages that looking for more reads behind the mark of the last look.
func TestCollectingUnderHeldTransactionReadsFewPages(t *testing.T) {
	t.Parallel()
	const rounds, each, most = 100, 20, 25
	b, q := txQueue(t, driver.Config{})
	reading, sending := begin(t, b), begin(t, b)
	_, err := reading.Exec(t.Context(), "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SELECT 1", pgx.QueryExecModeSimpleProtocol)
	ok(t, err)
	_, err = q.Send(InTx(t.Context(), sending), outgoing("late"))
	ok(t, err)
	conn, err := b.pool.Acquire(t.Context())
	ok(t, err)
	defer conn.Release()
	look := func(seen string, want int) (pages int) {
		pages = math.MaxInt
		for range 5 { // the first calls of a session read the catalogue too
			pages = min(pages, callPages(t, conn.Conn(), 1, fmt.Sprintf("SELECT * FROM %s.collect(%d, '{}', false, %s, 0, 0, NULL)", b.options.Schema, q.(*handle).qid, seen)))
		}
		return pages
	}
	for range rounds {
		tx := begin(t, b)
		_, err := q.Send(InTx(t.Context(), tx), outgoing(strings.Split(strings.Repeat("x", each), "")...))
		ok(t, err)
		ok(t, tx.Commit(t.Context()))
		collect(t, q)
	}
	inbox := &q.(*handle).inbox
	inbox.mu.Lock()
	inbox.nextFull = time.Now().Add(time.Hour) // a look at everything would find "late" without the mark
	inbox.mu.Unlock()
	everything, marked := look("NULL", 0), look("'"+*q.(*handle).inbox.mark()+"'", 0)
	t.Logf("%d rows gone by: a look reads %d pages, and %d behind the mark", rounds*each, everything, marked)
	if marked > most {
		t.Errorf("a look behind the mark read %d pages with %d rows gone by, want at most %d", marked, rounds*each, most)
	}
	if everything <= most {
		t.Errorf("a look at everything read %d pages only, so the mark is not measured", everything)
	}
	_, _ = receiveBodies(t, q, rounds*each)
	ok(t, sending.Commit(t.Context()))
	collect(t, q)
	if text, _ := receiveBodies(t, q, 1); text != "late" {
		t.Errorf("received %q behind the mark of a look that could not see it, want late", text)
	}
}

// TestOpenTransactionDelaysNoOtherMessage holds a transaction open that has sent and acked, and compares the time from send to receipt of other messages
// with that before. At length it is open for a minute.
func TestOpenTransactionDelaysNoOtherMessage(t *testing.T) {
	t.Parallel()
	b, q := txQueue(t, driver.Config{})
	_, err := q.Send(t.Context(), outgoing("acked"))
	ok(t, err)
	_, got := receiveBodies(t, q, 1)
	length := volume.Duration(t, 2*time.Second, time.Minute)
	_ = latencies(t, q, length/10) // the first calls of a session take longer
	before := latencies(t, q, length/3)
	tx := begin(t, b)
	_, err = q.Send(InTx(t.Context(), tx), outgoing("held"))
	ok(t, err)
	ok(t, q.Ack(InTx(t.Context(), tx), []driver.Receipt{got[0].Receipt}))
	during := latencies(t, q, length)
	t.Logf("before: %v; with a transaction open for %v: %v", before, length, during)
	if during.worst > 10*before.at(50) {
		t.Errorf("messages took %v while a transaction was open, and %v before", during, before)
	}
	ok(t, tx.Commit(t.Context()))
	if text, _ := receiveBodies(t, q, 1); text != "held" {
		t.Errorf("received %q after the commit, want held", text)
	}
}

// spans are sorted times, and the longest of the medians of 50 that follow each other.
type spans struct {
	all   []time.Duration
	worst time.Duration
}

func (s spans) at(percent int) time.Duration { return s.all[(len(s.all)-1)*percent/100] }

func (s spans) String() string {
	return fmt.Sprintf("%d messages, median %v, longest median of 50 %v, 99 of 100 %v, longest %v", len(s.all), s.at(50), s.worst, s.at(99), s.at(100))
}

// latencies sends messages for a time, each when the one before is acked, and returns how long after its send each was there.
func latencies(t *testing.T, q driver.Queue, length time.Duration) (s spans) {
	t.Helper()
	for until := time.Now().Add(length); time.Now().Before(until); {
		for range 50 {
			began := time.Now()
			_, err := q.Send(t.Context(), outgoing("other"))
			ok(t, err)
			text, got := receiveBodies(t, q, 1)
			s.all = append(s.all, time.Since(began))
			if text != "other" {
				t.Fatalf("received %q while its transaction is open", text)
			}
			ok(t, q.Ack(t.Context(), []driver.Receipt{got[0].Receipt}))
		}
		s.worst = max(s.worst, slices.Sorted(slices.Values(s.all[len(s.all)-50:]))[25])
	}
	slices.Sort(s.all)
	return s
}

// TestMessageOfTransactionIsVisibleWithin100ms compares the time from a commit to the receipt with that of a message that is sent
// without a transaction, in the process that sent and in another one.
func TestMessageOfTransactionIsVisibleWithin100ms(t *testing.T) {
	t.Parallel()
	const bound = 100 * time.Millisecond
	b, q := txQueue(t, driver.Config{})
	other, err := open(t, b.pool, &Options{Schema: b.options.Schema}).OpenQueue(t.Context(), "orders")
	ok(t, err)
	for name, receiver := range map[string]driver.Queue{"this process": q, "another process": other} {
		took := func(send func() time.Time) time.Duration {
			var best time.Duration = math.MaxInt64
			for range 10 {
				received := make(chan time.Time, 1)
				go func() {
					got, err := receiver.Receive(t.Context(), driver.ReceiveRequest{Max: 1, Visibility: hold, Wait: time.Minute})
					if err == nil && len(got) == 1 {
						received <- time.Now()
					}
					close(received)
				}()
				began := send()
				best = min(best, (<-received).Sub(began))
			}
			return best
		}
		alone := took(func() time.Time {
			_, err := q.Send(t.Context(), outgoing("alone"))
			ok(t, err)
			return time.Now()
		})
		inTx := took(func() time.Time {
			tx := begin(t, b)
			_, err := q.Send(InTx(t.Context(), tx), outgoing("in a transaction"))
			ok(t, err)
			ok(t, tx.Commit(t.Context()))
			return time.Now()
		})
		t.Logf("%s: visible %v after the commit, and %v after a send", name, inTx, alone)
		if inTx < 0 || inTx > max(alone, 0)+bound {
			t.Errorf("%s: the message of a transaction was there %v after its commit, want at most %v later than another one, which took %v", name, inTx, bound, alone)
		}
	}
}

// TestTransactionsKeepTheirOrder commits transactions in another order than that in which they sent. Messages are in order
// within each, and one that was received before another commits is before it.
func TestTransactionsKeepTheirOrder(t *testing.T) {
	t.Parallel()
	b, q := txQueue(t, driver.Config{})
	first, second := begin(t, b), begin(t, b)
	for i := range 3 {
		for name, tx := range map[string]pgx.Tx{"a": first, "b": second} {
			_, err := q.Send(InTx(t.Context(), tx), outgoing(fmt.Sprint(name, i), fmt.Sprint(name, "+")))
			ok(t, err)
		}
	}
	ok(t, second.Commit(t.Context()))
	collect(t, q)
	ok(t, first.Commit(t.Context()))
	if text, _ := receiveBodies(t, q, 12); text != "b0b+b1b+b2b+a0a+a1a+a2a+" {
		t.Errorf("received %q", text)
	}
}

// TestRolledBackTransactionLeavesNothing sends, acks and nacks in a transaction that is rolled back: nothing of it is in any table, and
// what it had settled is still leased.
func TestRolledBackTransactionLeavesNothing(t *testing.T) {
	t.Parallel()
	b, q := txQueue(t, driver.Config{})
	_, err := q.Send(t.Context(), outgoing("acked", "nacked"))
	ok(t, err)
	_, got := receiveBodies(t, q, 2)
	tx := begin(t, b)
	ctx := InTx(t.Context(), tx)
	_, err = q.Send(ctx, []driver.Outgoing{{Body: []byte("lost"), DedupKey: "key"}, unique("k", "lost too")})
	ok(t, err)
	ok(t, q.Ack(ctx, []driver.Receipt{got[0].Receipt}))
	ok(t, q.Nack(ctx, []driver.Nack{{Receipt: got[1].Receipt}}))
	ok(t, tx.Rollback(t.Context()))
	collect(t, q)
	for table, want := range map[string]int{"body": 2, "message": 2, "inbox": 0, "dedup": 0} {
		var n int
		ok(t, b.pool.QueryRow(t.Context(), b.sql("SELECT count(*) FROM mailbox."+table)).Scan(&n))
		if n != want {
			t.Errorf("table %s has %d rows, want %d", table, n, want)
		}
	}
	ok(t, q.Ack(t.Context(), []driver.Receipt{got[0].Receipt, got[1].Receipt}))
}
