// Orders keeps orders and their messages in one PostgreSQL database. An order is stored in the transaction that sends its
// message, and a worker marks it as shipped in the transaction that acks the message; once with pgx, and once with database/sql.
//
//	go run ./examples/orders postgres://shop:secret@127.0.0.1:5432/shop
//
// It creates the table purchase and the schema mailbox if they are missing.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/pgbox"
)

type order struct {
	Number int
	Goods  string
}

// table has the orders. Nothing is shipped twice: shipped counts.
const table = `CREATE TABLE IF NOT EXISTS purchase (
	number int PRIMARY KEY, goods text NOT NULL, tried int NOT NULL DEFAULT 0, shipped int NOT NULL DEFAULT 0)`

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: orders postgres://USER:PASSWORD@HOST:PORT/DATABASE")
	}
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	if err := run(ctx, os.Stdout, pool); err != nil {
		log.Fatal(err)
	}
}

// run places two orders and ships them.
func run(ctx context.Context, out io.Writer, pool *pgxpool.Pool) error {
	backend, err := pgbox.Open(ctx, pool, &pgbox.Options{Migrate: true})
	if err != nil {
		return err
	}
	defer backend.Close()
	// After the schemas are there: a role called mailbox creates tables in the one of that name.
	if _, err := pool.Exec(ctx, table); err != nil {
		return err
	}
	orders, err := mailbox.Open[order](ctx, backend, "orders", nil)
	if err != nil {
		return err
	}
	defer orders.Close()
	db := stdlib.OpenDBFromPool(pool)
	defer db.Close()

	next := 0
	if err := pool.QueryRow(ctx, "SELECT coalesce(max(number), 0) + 1 FROM purchase").Scan(&next); err != nil {
		return err
	}
	tea, cake := order{Number: next, Goods: "tea"}, order{Number: next + 1, Goods: "cake"}
	if err := errors.Join(placeOrder(ctx, pool, orders, tea), placeOrderSQL(ctx, db, orders, cake)); err != nil {
		return err
	}
	if err := placeOrder(ctx, pool, orders, tea); err != nil {
		fmt.Fprintln(out, "tea again: refused, and no message is sent")
	}
	for shipped := 0; shipped < 2; {
		messages, err := orders.Receive(ctx, mailbox.WithMax(2), mailbox.WithWait(10*time.Second))
		if err != nil {
			return err
		}
		for _, message := range messages {
			done, err := work(ctx, pool, db, message)
			if err != nil {
				return err
			}
			fmt.Fprintf(out, "%s: delivery %d, shipped: %v\n", message.Body.Goods, message.Deliveries, done)
			if done {
				shipped++
			}
		}
	}
	return report(ctx, out, pool, next)
}

// work ships an order; cake is not ready the first time.
func work(ctx context.Context, pool *pgxpool.Pool, db *sql.DB, message *mailbox.Message[order]) (done bool, err error) {
	switch {
	case message.Body.Goods == "tea":
		return true, ship(ctx, pool, message)
	case message.Deliveries == 1:
		return false, postpone(ctx, db, message, errors.New("still in the oven"))
	}
	return true, shipSQL(ctx, db, message)
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
// however often the message is delivered. An error rolls both back.
func ship(ctx context.Context, pool *pgxpool.Pool, message *mailbox.Message[order]) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "UPDATE purchase SET tried = tried + 1, shipped = shipped + 1 WHERE number = $1", message.Body.Number); err != nil {
			return err
		}
		return pgbox.AckTx(ctx, tx, message)
	})
}

// inTx is pgx.BeginFunc for database/sql.
func inTx(ctx context.Context, db *sql.DB, do func(tx *sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := do(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// placeOrderSQL is placeOrder with database/sql.
func placeOrderSQL(ctx context.Context, db *sql.DB, orders *mailbox.Mailbox[order], o order) error {
	return inTx(ctx, db, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "INSERT INTO purchase (number, goods) VALUES ($1, $2)", o.Number, o.Goods); err != nil {
			return err
		}
		_, err := pgbox.SendSQLTx(ctx, tx, orders, o)
		return err
	})
}

// shipSQL is ship with database/sql.
func shipSQL(ctx context.Context, db *sql.DB, message *mailbox.Message[order]) error {
	return inTx(ctx, db, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "UPDATE purchase SET tried = tried + 1, shipped = shipped + 1 WHERE number = $1", message.Body.Number); err != nil {
			return err
		}
		return pgbox.AckSQLTx(ctx, tx, message)
	})
}

// postpone notes that an order was tried and gives its message back in one transaction.
func postpone(ctx context.Context, db *sql.DB, message *mailbox.Message[order], why error) error {
	return inTx(ctx, db, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "UPDATE purchase SET tried = tried + 1 WHERE number = $1", message.Body.Number); err != nil {
			return err
		}
		return pgbox.NackSQLTx(ctx, tx, message, 0, why)
	})
}

// report prints the rows of the orders from a number on.
func report(ctx context.Context, out io.Writer, pool *pgxpool.Pool, from int) error {
	rows, err := pool.Query(ctx, "SELECT goods, tried, shipped FROM purchase WHERE number >= $1 ORDER BY number", from)
	if err != nil {
		return err
	}
	var goods string
	var tried, shipped int
	_, err = pgx.ForEachRow(rows, []any{&goods, &tried, &shipped}, func() error {
		fmt.Fprintf(out, "%s: tried %d, shipped %d\n", goods, tried, shipped)
		return nil
	})
	return err
}
