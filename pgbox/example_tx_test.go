package pgbox_test

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/pgbox"
)

type order struct {
	Number int
	Goods  string
}

// placeOrder stores an order and sends it in one transaction: either both happen, or neither.
func placeOrder(ctx context.Context, pool *pgxpool.Pool, orders *mailbox.Mailbox[order], o order) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "INSERT INTO purchase (number, goods) VALUES ($1, $2)", o.Number, o.Goods); err != nil {
			return err
		}
		_, err := pgbox.SendTx(ctx, tx, orders, o)
		return err
	})
}

// ship marks an order as shipped and acks its message in one transaction: it is marked once,
// however often the message is delivered.
func ship(ctx context.Context, pool *pgxpool.Pool, message *mailbox.Message[order]) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "UPDATE purchase SET shipped = shipped + 1 WHERE number = $1", message.Body.Number); err != nil {
			return err
		}
		return pgbox.AckTx(ctx, tx, message)
	})
}

// An order table and a queue in one database: messages commit with the rows that they are
// about.
func ExampleSendTx() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "postgres://shop:secret@127.0.0.1:5432/shop")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()
	backend, err := pgbox.Open(ctx, pool, &pgbox.Options{Migrate: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = backend.Close() }()
	orders, err := mailbox.Open[order](ctx, backend, "orders", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := placeOrder(ctx, pool, orders, order{Number: 1, Goods: "tea"}); err != nil {
		fmt.Println(err)
		return
	}
	messages, err := orders.Receive(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, message := range messages {
		fmt.Println(ship(ctx, pool, message))
	}
}
