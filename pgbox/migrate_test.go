package pgbox

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

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
			own, err := migrations(schema)
			ok(t, err)
			ok(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return migrate(t.Context(), tx, schema, own[:n]) }))
			statement := strings.ReplaceAll("SELECT mailbox.configure('orders', 0, 'first', '{}', false, false, '', '{1,0,100,100000,0,0,0,0,0,0,0,0,0}'); "+
				"SELECT mailbox.send((SELECT qid FROM mailbox.queue), '{0,0}', '{00000000-0000-0000-0000-000000000001,00000000-0000-0000-0000-000000000002}', "+
				"'{one,two}', '{NULL,NULL}', '{NULL,NULL}', '{0,0}', NULL, NULL, NULL, false, false)", "mailbox.", schema+".")
			_, err = pool.Exec(t.Context(), statement, pgx.QueryExecModeSimpleProtocol)
			ok(t, err)
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
