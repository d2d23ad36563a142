package pgbox_test

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/pgbox"
	"github.com/mailboxmq/mailbox/reply"
)

// The types of docs/postgres.md.
type (
	Order    struct{ Number int }
	Question struct{ Text string }
	Answer   struct{ Text string }
)

// This is the code of docs/postgres.md.
func Example_page() { //nolint:ineffassign,staticcheck // the page leaves out what to do with errors
	ctx := context.Background()

	pool, err := pgxpool.New(ctx, "postgres://shop:secret@127.0.0.1:5432/shop")
	backend, err := pgbox.Open(ctx, pool, &pgbox.Options{Migrate: true})
	orders, err := mailbox.Open[Order](ctx, backend, "orders", nil)
	if err != nil {
		return
	}

	messages, err := orders.Receive(ctx)
	if err != nil {
		return
	}
	message := messages[0]

	tx, err := pool.Begin(ctx)
	_, err = tx.Exec(ctx, "INSERT INTO purchase (number, goods) VALUES ($1, $2)", 1, "tea")
	_, err = pgbox.SendTx(ctx, tx, orders, Order{Number: 1}) // also SendAllTx
	err = tx.Commit(ctx)

	_, err = tx.Exec(ctx, "UPDATE purchase SET shipped = true WHERE number = $1", message.Body.Number)
	err = pgbox.AckTx(ctx, tx, message) // also NackTx
	if err != nil {
		return
	}

	sqlTx, err := stdlib.OpenDBFromPool(pool).BeginTx(ctx, nil)
	_, err = pgbox.SendSQLTx(ctx, sqlTx, orders, Order{Number: 2}) // also SendAllSQLTx, AckSQLTx and NackSQLTx
	err = sqlTx.Commit()
	if err != nil {
		return
	}

	store := backend.Replies(0) // at most a million slots
	requests, err := mailbox.Open(ctx, backend, "requests", &mailbox.Options[Question]{Replies: store})
	client := reply.NewClient[Question, Answer](requests, store, nil)
	_, _ = client.Send(ctx, Question{Text: "how much?"})
}
