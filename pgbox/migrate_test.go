package pgbox

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/pgtest"
)

// TestEarlierSchemasMigrateWithTheirMessages sends a message by the functions of each earlier
// step of the schema, migrates, and expects the message and everything new to work.
func TestEarlierSchemasMigrateWithTheirMessages(t *testing.T) {
	t.Parallel()
	pool := pgtest.Shared(t).Pool(t)
	steps, err := migrations("mailbox")
	ok(t, err)
	for n := 1; n < len(steps); n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			schema := pgtest.Schema()
			migrateTo(t, pool, schema, n)
			sendTwo(t, pool, schema)
			q, err := open(t, pool, &Options{Schema: schema}).OpenQueue(t.Context(), "orders")
			ok(t, err)
			stats, err := q.Stats(t.Context())
			if err != nil || stats.Ready != 2 {
				t.Fatalf("stats %+v, %v; want 2 ready", stats, err)
			}
			was, err := q.Edit(t.Context(), "00000000000000000000000001", driver.Edit{Remove: true})
			if err != nil || was != driver.StateReady {
				t.Fatalf("edit of a message of an earlier schema: was %q, %v", was, err)
			}
			_, err = q.Send(t.Context(), []driver.Outgoing{{Body: []byte("three")}})
			ok(t, err)
			text, got := receiveBodies(t, q, 2)
			if text != "twothree" {
				t.Errorf("received %q, want two and three", text)
			}
			ok(t, q.Ack(t.Context(), []driver.Receipt{got[0].Receipt, got[1].Receipt}))
		})
	}
}

// migrateTo brings a schema to an earlier step.
func migrateTo(t *testing.T, pool *pgxpool.Pool, schema string, step int) {
	t.Helper()
	steps, err := migrations(schema)
	ok(t, err)
	ok(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return migrate(t.Context(), tx, schema, steps[:step], hold) }))
}

// sendTwo makes a queue by the functions of the first step and sends two messages.
func sendTwo(t *testing.T, pool *pgxpool.Pool, schema string) {
	t.Helper()
	statement := strings.ReplaceAll("SELECT mailbox.configure('orders', 0, 'first', '{}', false, false, '', '{1,0,100,100000,0,0,0,0,0,0,0,0,0}'); "+
		"SELECT mailbox.send((SELECT qid FROM mailbox.queue), '{0,0}', '{00000000-0000-0000-0000-000000000001,00000000-0000-0000-0000-000000000002}', "+
		"'{one,two}', '{NULL,NULL}', '{NULL,NULL}', '{0,0}', NULL, NULL, NULL, false, false)", "mailbox.", schema+".")
	_, err := pool.Exec(t.Context(), statement, pgx.QueryExecModeSimpleProtocol)
	ok(t, err)
}

// TestMigrationLetsCallsPassWhileItWaits migrates while a transaction of a caller has acked a message. The migration waits for its end; calls of other
// processes on the same table must not.
func TestMigrationLetsCallsPassWhileItWaits(t *testing.T) {
	t.Parallel()
	pool, schema := pgtest.Shared(t).Pool(t), pgtest.Schema()
	migrateTo(t, pool, schema, 7)
	caller, err := pool.Begin(t.Context())
	ok(t, err)
	defer func() { _ = caller.Rollback(t.Context()) }()
	_, err = caller.Exec(t.Context(), "DELETE FROM "+schema+".message")
	ok(t, err)
	done := make(chan error, 1)
	go func() { done <- Migrate(t.Context(), pool, schema) }()
	for waits := false; !waits; {
		ok(t, pool.QueryRow(t.Context(), "SELECT count(*) > 0 FROM pg_locks WHERE NOT granted AND relation = $1::text::regclass", pgx.QueryExecModeExec, schema+".message").Scan(&waits))
	}
	_, err = pool.Exec(t.Context(), "DELETE FROM "+schema+".message") // waits for the migration, which waits for the caller
	ok(t, err)
	select {
	case err := <-done:
		t.Fatalf("the migration returned %v while a transaction had a lock of the table", err)
	default:
	}
	ok(t, caller.Commit(t.Context()))
	ok(t, <-done)
}

// TestIndexesCanBeBuiltBeforeMigration runs the statements of the documentation that build indexes of large tables without a lock, uses the schema by
// the functions of before, and migrates.
func TestIndexesCanBeBuiltBeforeMigration(t *testing.T) {
	t.Parallel()
	pool, schema := pgtest.Shared(t).Pool(t), pgtest.Schema()
	migrateTo(t, pool, schema, 7)
	page, err := os.ReadFile("../docs/postgres.md")
	ok(t, err)
	_, text, _ := strings.Cut(string(page), "```sql\nALTER TABLE")
	text, _, _ = strings.Cut("ALTER TABLE"+text, "```")
	for statement := range strings.SplitSeq(strings.TrimSpace(strings.ReplaceAll(text, "mailbox.", schema+".")), ";\n") {
		_, err := pool.Exec(t.Context(), statement, pgx.QueryExecModeSimpleProtocol)
		ok(t, err)
	}
	sendTwo(t, pool, schema)
	indexes := func() (names []string) {
		rows, err := pool.Query(t.Context(), "SELECT indexrelid::regclass || ' ' || indexrelid FROM pg_index WHERE indrelid = $1::text::regclass AND indisvalid ORDER BY 1", pgx.QueryExecModeExec, schema+".message")
		ok(t, err)
		names, err = pgx.CollectRows(rows, pgx.RowTo[string])
		ok(t, err)
		return names
	}
	before := indexes()
	q, err := open(t, pool, &Options{Schema: schema}).OpenQueue(t.Context(), "orders")
	ok(t, err)
	if after := indexes(); !slices.Equal(before, after) {
		t.Errorf("indexes of messages after the migration: %v; want those that were built before: %v", after, before)
	}
	_, err = q.Send(t.Context(), []driver.Outgoing{{Body: []byte("three"), Priority: 9, TTL: hold}})
	ok(t, err)
	if text, _ := receiveBodies(t, q, 3); text != "threeonetwo" {
		t.Errorf("received %q, want three, which has a priority, one and two", text)
	}
}
