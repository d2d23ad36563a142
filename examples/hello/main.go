// Hello is the program of the README: it sends one order and serves orders
// until it is interrupted.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/membox"
)

// Order is what the mailbox carries.
type Order struct {
	Drink string
	Table int
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	brew := func(order Order) error {
		_, err := fmt.Printf("one %s for table %d\n", order.Drink, order.Table)
		return err
	}
	if err := serve(ctx, brew); !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "hello:", err)
		os.Exit(1)
	}
}

func serve(ctx context.Context, brew func(Order) error) error {
	orders, err := mailbox.Open[Order](ctx, membox.New(nil), "orders", nil)
	if err != nil {
		return err
	}
	defer orders.Close()
	if _, err := orders.Send(ctx, Order{Drink: "tea", Table: 4}); err != nil {
		return err
	}
	for order, err := range orders.Messages(ctx, mailbox.WithVisibility(time.Minute)) {
		if err != nil {
			slog.Warn("receive", "err", err)
			continue // Messages tries again after a pause
		}
		if failure := brew(order.Body); failure != nil {
			err = order.Nack(ctx, 30*time.Second, failure) // delivered again in 30 s
		} else {
			err = order.Ack(ctx) // removed
		}
		if err != nil {
			slog.Warn("settle", "id", order.ID, "err", err) // the lease ends, and the order comes back
		}
	}
	return ctx.Err()
}
