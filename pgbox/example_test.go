package pgbox_test

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/pgbox"
)

// Open takes a pool of connections. Two programs with the same database and schema share its
// queues.
func ExampleOpen() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "postgres://shop:secret@127.0.0.1:5432/shop")
	if err != nil {
		panic(err)
	}
	defer pool.Close()
	backend, err := pgbox.Open(ctx, pool, &pgbox.Options{Migrate: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = backend.Close() }()

	orders, err := mailbox.Open[string](ctx, backend, "orders", nil)
	if err != nil {
		panic(err)
	}
	if _, err := orders.Send(ctx, "two pizzas"); err != nil {
		panic(err)
	}
}
