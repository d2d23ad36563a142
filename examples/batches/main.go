// Batches is a worker that handles messages in batches, as one that inserts rows into a
// database does: of a thousand orders, it inserts a hundred at a time, and an order that
// is wrong does not fail the others.
//
//	go run ./examples/batches
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/worker"
)

// Order is the body of a message, as JSON.
type Order struct {
	Table int `json:"table"`
}

// A database stands for one with bulk inserts.
type database struct{ rows, calls int }

var errTable = errors.New("there is no such table")

// insert inserts rows in one call, and returns an error or nil for each.
func (d *database) insert(orders []*mailbox.Message[Order]) []error {
	d.calls++
	errs := make([]error, len(orders))
	for i, order := range orders {
		if order.Body.Table == 13 {
			errs[i] = worker.Permanent(errTable)
		} else {
			d.rows++
		}
	}
	return errs
}

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// run sends a thousand orders and handles them.
func run(ctx context.Context, out io.Writer) error {
	backend := membox.New(nil)
	defer backend.Close()
	orders, err := mailbox.Open[Order](ctx, backend, "orders", nil)
	if err != nil {
		return err
	}
	defer orders.Close()
	all := make([]Order, 1000)
	for i := range all {
		all[i].Table = i
	}
	if _, err := orders.SendAll(ctx, all); err != nil {
		return err
	}

	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var rows database
	loop := worker.NewBatch(orders, func(_ context.Context, batch []*mailbox.Message[Order]) error {
		errs := rows.insert(batch)
		if rows.rows == len(all)-1 {
			stop() // as a signal would; see worker.Group
		}
		return &mailbox.BatchError{Errs: errs}
	}, &worker.BatchOptions[Order]{Size: 100})
	if err := loop.Run(ctx); err != nil {
		return err
	}
	stats, err := orders.Stats(context.WithoutCancel(ctx))
	fmt.Fprintf(out, "%d rows in %d calls, %d dead, %d left\n", rows.rows, rows.calls, stats.Dead, stats.Waiting())
	return err
}
