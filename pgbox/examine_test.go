package pgbox

import (
	"errors"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/pgtest"
)

func TestExamineShowsTheStateOfTheDatabase(t *testing.T) {
	t.Parallel()
	server, schema := pgtest.Start(t, "fsync=off", "max_prepared_transactions=2"), pgtest.Schema()
	address := server.URL() + "&schema=" + schema
	before, err := Examine(t.Context(), address)
	ok(t, err)
	if !before.Supported || before.Version == "" || before.Migrations != 0 || before.WantedMigrations == 0 || len(before.Tables) > 0 {
		t.Errorf("before the migration: %+v", before)
	}
	pool := server.Pool(t)
	b := open(t, pool, &Options{Schema: schema})
	_, err = pool.Exec(t.Context(), "BEGIN; SELECT pg_current_xact_id(); PREPARE TRANSACTION 'held'", pgx.QueryExecModeSimpleProtocol)
	ok(t, err)
	tx := begin(t, b)
	var session int
	ok(t, tx.QueryRow(t.Context(), "SELECT pg_backend_pid()").Scan(&session))
	c, err := Examine(t.Context(), address)
	ok(t, err)
	if c.Migrations != c.WantedMigrations || c.Settings["fsync"] != "off" || c.Settings["default_transaction_isolation"] != "read committed" {
		t.Errorf("after the migration: %+v", c)
	}
	if !slices.ContainsFunc(c.Tables, func(table Table) bool { return table.Name == "message" && table.Bytes > 0 }) {
		t.Errorf("tables %+v", c.Tables)
	}
	if !slices.ContainsFunc(c.Transactions, func(x Transaction) bool { return x.Session == session && x.State == "idle in transaction" }) ||
		!slices.ContainsFunc(c.Transactions, func(x Transaction) bool { return x.Session == 0 && x.Application == "held" }) {
		t.Errorf("transactions %+v; want session %d and a prepared one", c.Transactions, session)
	}
	_, err = Examine(t.Context(), "redis://127.0.0.1")
	if !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("another URL: %v", err)
	}
}
