package pgbox_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/internal/testing/pgtest"
	"github.com/mailboxmq/mailbox/pgbox"
)

func TestOrdersCommitWithTheirMessages(t *testing.T) {
	t.Parallel()
	ctx, pool := t.Context(), pgtest.Shared(t).Pool(t)
	expect := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := pool.Exec(ctx, "DROP TABLE IF EXISTS purchase; CREATE TABLE purchase (number int PRIMARY KEY, goods text NOT NULL, shipped int NOT NULL DEFAULT 0)", pgx.QueryExecModeSimpleProtocol)
	expect(err)
	backend, err := pgbox.Open(ctx, pool, &pgbox.Options{Schema: pgtest.Schema(), Migrate: true})
	expect(err)
	t.Cleanup(func() { _ = backend.Close() })
	orders, err := mailbox.Open[order](ctx, backend, "orders", nil)
	expect(err)
	t.Cleanup(func() { _ = orders.Close() })

	expect(placeOrder(ctx, pool, orders, order{Number: 1, Goods: "tea"}))
	if placeOrder(ctx, pool, orders, order{Number: 1, Goods: "coffee"}) == nil {
		t.Fatal("an order could be placed twice")
	}
	messages, err := orders.Receive(ctx, mailbox.WithWait(time.Minute))
	expect(err)
	if len(messages) != 1 {
		t.Fatalf("received %d messages, want 1", len(messages))
	}
	message := messages[0]
	expect(ship(ctx, pool, message))
	var shipped int
	expect(pool.QueryRow(ctx, "SELECT shipped FROM purchase WHERE number = 1").Scan(&shipped))
	stats, err := orders.Stats(ctx)
	expect(err)
	if message.Body.Goods != "tea" || shipped != 1 || stats.Waiting() != 0 {
		t.Errorf("got %q, shipped %d times, %+v in the queue; want tea, once, and nothing", message.Body.Goods, shipped, stats)
	}
}
