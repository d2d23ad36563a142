package pgbox

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/pgtest"
)

func TestPriorityOfMessageSentInTransaction(t *testing.T) {
	t.Parallel()
	b, q := txQueue(t, driver.Config{})
	tx := begin(t, b)
	_, err := q.Send(InTx(t.Context(), tx), []driver.Outgoing{{Body: []byte("a")}, {Body: []byte("b"), Priority: 5}, {Body: []byte("c"), Priority: 9, TTL: time.Hour}})
	ok(t, err)
	ok(t, tx.Commit(t.Context()))
	text, got := receiveBodies(t, q, 3)
	if text != "cba" || got[0].Priority != 9 || got[1].Priority != 5 || got[2].Priority != 0 {
		t.Errorf("received %q with priorities %d, %d and %d; want cba with 9, 5 and 0", text, got[0].Priority, got[1].Priority, got[2].Priority)
	}
}

// TestMessagesBelowMarksOfTheirPriorityAreFound brings messages to places of a priority up to which the process has
// seen every message taken.
func TestMessagesBelowMarksOfTheirPriorityAreFound(t *testing.T) {
	t.Parallel()
	_, q := txQueue(t, driver.Config{PriorityAging: driver.Off})
	sent, err := q.Send(t.Context(), []driver.Outgoing{{Body: []byte("a")}, {Body: []byte("b"), Priority: 9}, {Body: []byte("c"), Priority: 9}})
	ok(t, err)
	text, got := receiveBodies(t, q, 2)
	if text != "bc" {
		t.Fatalf("received %q, want b and c", text)
	}
	ok(t, q.Nack(t.Context(), []driver.Nack{{Receipt: got[0].Receipt, Mode: driver.NackRelease}}))
	_, err = q.Edit(t.Context(), sent[0].ID, driver.Edit{Prioritize: true, Priority: 9})
	ok(t, err)
	if text, _ := receiveBodies(t, q, 2); text != "ab" {
		t.Errorf("received %q, want a, which was given the priority, and b, which was released", text)
	}
}

// TestRetentionCountsMessagesOfAllPriorities sends more messages than a queue keeps: the oldest expire, whatever their
// priorities are.
func TestRetentionCountsMessagesOfAllPriorities(t *testing.T) {
	t.Parallel()
	_, q := txQueue(t, driver.Config{RetainReady: driver.Retention{Count: 2, Age: time.Hour}})
	for i, body := range []string{"a", "b", "c", "d"} {
		_, err := q.Send(t.Context(), []driver.Outgoing{{Body: []byte(body), Priority: 9 - 3*i}})
		ok(t, err)
	}
	if text, _ := receiveBodies(t, q, 2); text != "cd" {
		t.Errorf("received %q, want the youngest two, c and d", text)
	}
}

// TestPlainQueueReadsNoIndexOfLivesAndLevels uses a queue whose messages have no times to live and no priorities, and
// asks the server which indexes were read.
func TestPlainQueueReadsNoIndexOfLivesAndLevels(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared(t)
	schema := pgtest.Schema()
	const name = "plain queue"
	config, err := pgxpool.ParseConfig(server.URL())
	ok(t, err)
	config.ConnConfig.RuntimeParams["application_name"] = name
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	ok(t, err)
	b, err := Open(t.Context(), pool, &Options{Schema: schema, Migrate: true, PollOnly: true})
	ok(t, err)
	q, err := b.OpenQueue(t.Context(), "orders")
	ok(t, err)
	for range 3 {
		_, err = q.Send(t.Context(), outgoing("a", "b", "c"))
		ok(t, err)
		_, got := receiveBodies(t, q, 3)
		ok(t, q.Nack(t.Context(), []driver.Nack{{Receipt: got[0].Receipt}}))
		_, err = q.Extend(t.Context(), []driver.Extension{{Receipt: got[1].Receipt, Visibility: hold}})
		ok(t, err)
		ok(t, q.Ack(t.Context(), []driver.Receipt{got[1].Receipt, got[2].Receipt}))
		_, err = q.Stats(t.Context())
		ok(t, err)
	}
	ok(t, b.Close())
	pool.Close() // sessions tell what they have read at the latest when they end
	scans := make(map[string]int)
	watch := server.Pool(t)
	for sessions := 1; sessions > 0; {
		ok(t, watch.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity CROSS JOIN pg_sleep(0.01) WHERE application_name = $1", pgx.QueryExecModeExec, name).Scan(&sessions))
	}
	rows, err := watch.Query(t.Context(), "SELECT indexrelname, idx_scan FROM pg_stat_all_indexes WHERE schemaname = $1", pgx.QueryExecModeExec, schema)
	ok(t, err)
	var index string
	var n int
	_, err = pgx.ForEachRow(rows, []any{&index, &n}, func() error { scans[index] = n; return nil })
	ok(t, err)
	if scans["message_sent"] == 0 || scans["message_ends"]+scans["message_level"]+scans["message_level_age"]+scans["message_unique"] > 0 {
		t.Errorf("reads of indexes: %v; want some of message_sent, and none of message_ends, message_level, message_level_age and message_unique", scans)
	}
}
