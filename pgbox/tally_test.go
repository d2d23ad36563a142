package pgbox

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/pgtest"
)

// miscounts names the shards whose counts are not those of their messages, the groups that have another number in
// flight, and what is before a mark that should be behind it. It looks at one moment, whatever runs meanwhile.
const miscounts = `SELECT q.name || ' ' || s || ': counted ' || c::text || ', messages ' || r::text
	FROM mailbox.queue q CROSS JOIN LATERAL generate_series(0, q.shards - 1) s CROSS JOIN LATERAL mailbox.counts(q, s) c
	CROSS JOIN LATERAL (SELECT sum(a.ready)::bigint, sum(a.delayed)::bigint, sum(a.in_flight)::bigint, sum(a.dead)::bigint, sum(a.bytes)::bigint FROM mailbox.count_rows(q.qid, s) a) r
	WHERE q.counted AND c::text <> r::text
	UNION ALL SELECT q.name || ': group ' || encode(g.name, 'escape') || ' has ' || g.busy || ' in flight, and ' || f.n || ' messages' FROM mailbox.strict_group g JOIN mailbox.queue q USING (qid)
	CROSS JOIN LATERAL (SELECT (SELECT count(*) FROM mailbox.message a WHERE a.qid = g.qid AND a.shard = g.shard AND a.grp = g.name AND a.state = 'f')
		+ (SELECT count(*) FROM mailbox.inbox a WHERE a.qid = g.qid AND a.shard = g.shard AND a.kind = 'g' AND a.grp = g.name) AS n) f WHERE g.busy <> f.n
	UNION ALL SELECT q.name || ': group ' || encode(g.name, 'escape') || ' stands at ' || g.stands || ', before the turns of rank ' || g.rank FROM mailbox.strict_group g JOIN mailbox.queue q USING (qid)
	WHERE g.stands IS NOT NULL AND NOT coalesce((SELECT t.lows[array_position(t.ranks, g.rank)] <= g.stands FROM mailbox.turn t WHERE t.qid = g.qid AND t.shard = g.shard ORDER BY t.version DESC LIMIT 1), false)
	UNION ALL SELECT q.name || ': message in state ' || a.state::text || ' at ' || a.place || ', where no claim looks' FROM mailbox.message a JOIN mailbox.queue q USING (qid)
	WHERE a.state IN ('b', 'h') AND NOT EXISTS (SELECT FROM (SELECT * FROM mailbox.back k WHERE k.qid = a.qid AND k.shard = a.shard ORDER BY k.version DESC LIMIT 1) k
		CROSS JOIN LATERAL unnest(k.orders, k.lows, k.highs) AS u(o, low, high) WHERE u.o = CASE a.state WHEN 'b' THEN 0 ELSE a.priority END AND a.place BETWEEN u.low AND u.high)
	UNION ALL SELECT q.name || ': message in state ' || a.state::text || ' born at ' || a.born || ', where retention does not look' FROM mailbox.message a JOIN mailbox.queue q USING (qid)
	WHERE a.state IN ('b', 'h', 's') AND (q.ready_age > 0 OR q.ready_count > 0) AND NOT EXISTS (SELECT FROM (SELECT * FROM mailbox.back k WHERE k.qid = a.qid AND k.shard = a.shard ORDER BY k.version DESC LIMIT 1) k
		CROSS JOIN LATERAL unnest(k.orders, k.lows, k.highs) AS u(o, low, high) WHERE u.o = CASE a.state WHEN 'h' THEN 11 ELSE 10 END AND a.born BETWEEN u.low AND u.high)
	UNION ALL SELECT q.name || ': dead letter at ' || a.place || ', where retention does not look' FROM mailbox.message a JOIN mailbox.queue q USING (qid)
	WHERE a.state = 'x' AND EXISTS (SELECT FROM (SELECT * FROM mailbox.back k WHERE k.qid = a.qid AND k.shard = a.shard ORDER BY k.version DESC LIMIT 1) k
		CROSS JOIN LATERAL unnest(k.orders, k.lows) AS u(o, low) WHERE u.o = 12 AND a.place < u.low)
	UNION ALL SELECT q.name || ': message in state ' || a.state::text || ' at ' || a.place || ', before the first of group ' || encode(a.grp, 'escape') FROM mailbox.message a JOIN mailbox.queue q USING (qid)
	WHERE (q.is_strict AND a.state IN ('s', 'f', 'w') OR q.is_fair AND a.state = 's') AND NOT EXISTS (SELECT FROM mailbox.strict_group g
		WHERE g.qid = a.qid AND g.shard = a.shard AND g.name = a.grp AND CASE a.state WHEN 's' THEN g.first_ready ELSE g.first_held END <= a.place)`

// checkCounts fails the test if a count of a schema is wrong. A server that is gone is not asked.
func checkCounts(t testing.TB, pool *pgxpool.Pool, schema string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	err := pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(tx pgx.Tx) error {
		// Compiling the query to machine code takes a second, and running it a few milliseconds.
		if _, err := tx.Exec(ctx, "SET LOCAL jit = off"); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, strings.ReplaceAll(miscounts, "mailbox.", schema+"."), pgx.QueryExecModeExec)
		if err != nil {
			return err
		}
		wrong, err := pgx.CollectRows(rows, pgx.RowTo[string])
		for _, line := range wrong {
			t.Error(line)
		}
		return err
	})
	if err != nil {
		t.Logf("counts were not checked: %v", err)
	}
}

// TestCountingStartsWhileQueueIsUsed makes a queue of an earlier schema, which has bounds and is
// not counted, and asks for its usage while goroutines change it.
func TestCountingStartsWhileQueueIsUsed(t *testing.T) {
	t.Parallel()
	b, q := txQueue(t, driver.Config{MaxMessages: 10_000, Shards: 2})
	exec := func(statement string) {
		t.Helper()
		_, err := b.pool.Exec(t.Context(), b.sql(statement), pgx.QueryExecModeSimpleProtocol)
		ok(t, err)
	}
	exec("UPDATE mailbox.queue SET counted = false; DELETE FROM mailbox.tally")
	_, err := q.Send(t.Context(), outgoing("a", "b", "c", "d", "e", "f"))
	ok(t, err)
	_, got := receiveBodies(t, q, 3)
	lost, late := begin(t, b), begin(t, b)
	ok(t, q.Ack(InTx(t.Context(), lost), []driver.Receipt{got[0].Receipt}))
	ok(t, q.Ack(InTx(t.Context(), late), []driver.Receipt{got[1].Receipt}))
	var work sync.WaitGroup
	for range 4 {
		work.Go(func() { cycle(t, q, 50) })
	}
	counted := func() (yes bool) {
		t.Helper()
		_, err := q.Usage(t.Context())
		ok(t, err)
		ok(t, b.pool.QueryRow(t.Context(), b.sql("SELECT counted FROM mailbox.queue"), pgx.QueryExecModeExec).Scan(&yes))
		return yes
	}
	if counted() {
		t.Error("the queue is counted while calls may run that began before the migration")
	}
	exec("UPDATE mailbox.migration SET at = at - interval '1 hour'")
	if !counted() {
		t.Error("the queue is not counted")
	}
	ok(t, late.Commit(t.Context()))
	ok(t, lost.Rollback(t.Context()))
	work.Wait()
	checkCounts(t, b.pool, b.options.Schema)
}

// cycle sends, receives and acks messages of other bodies than one byte, which it leaves alone.
func cycle(t *testing.T, q driver.Queue, times int) {
	for range times {
		_, err := q.Send(t.Context(), outgoing("another"))
		if err != nil {
			t.Error(err)
			return
		}
		got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 4, Visibility: hold})
		if err != nil {
			t.Error(err)
			return
		}
		for _, d := range got {
			if len(d.Body) == 1 {
				err = q.Nack(t.Context(), []driver.Nack{{Receipt: d.Receipt, Mode: driver.NackPutBack}})
			} else {
				err = q.Ack(t.Context(), []driver.Receipt{d.Receipt})
			}
			if err != nil {
				t.Error(err)
			}
		}
	}
}

func TestBoundHoldsForAckOfTransactionAtOnce(t *testing.T) {
	t.Parallel()
	b, q := txQueue(t, driver.Config{MaxMessages: 1})
	_, err := q.Send(t.Context(), outgoing("a"))
	ok(t, err)
	_, got := receiveBodies(t, q, 1)
	tx := begin(t, b)
	ok(t, q.Ack(InTx(t.Context(), tx), []driver.Receipt{got[0].Receipt}))
	if _, err := q.Send(t.Context(), outgoing("b")); err == nil {
		t.Error("a send exceeded the bound while the transaction was open")
	}
	ok(t, tx.Commit(t.Context()))
	if _, err := q.Send(t.Context(), outgoing("b")); err != nil {
		t.Error(err)
	}
}

func TestTransactionsBeyondSlotsAreRefused(t *testing.T) {
	t.Parallel()
	b := open(t, pgtest.Shared(t).Pool(t), &Options{Schema: pgtest.Schema(), Defaults: driver.Config{MaxMessages: 100}, RetryFor: time.Nanosecond})
	q, err := b.OpenQueue(t.Context(), "orders")
	ok(t, err)
	tx := begin(t, b)
	_, err = tx.Exec(t.Context(), b.sql("SELECT pg_advisory_xact_lock(mailbox.slot_key(qid, 0, s)) FROM mailbox.queue CROSS JOIN generate_series(0, 31) s"), pgx.QueryExecModeExec)
	ok(t, err)
	if _, err := q.Send(t.Context(), outgoing("a")); !isCode(driver.At(err, 0), driver.ErrUnavailable) && !isCode(err, driver.ErrUnavailable) {
		t.Errorf("got %v, want %v", err, driver.ErrUnavailable)
	}
	ok(t, tx.Commit(t.Context()))
	_, err = q.Send(t.Context(), outgoing("a"))
	ok(t, err)
}
