// Worker is the program of docs/workers.md: it handles the orders in a queue of a
// daemon until it is interrupted.
//
//	mailbox cap mint --op recv,ack,nack,extend --queue orders --expires 720h --out worker.token
//	go run ./examples/worker worker.token
//	mailbox send orders '{"drink":"tea"}'
package main

import (
	"context"
	"log/slog"
	"os"
	"strings"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/remotebox"
	"github.com/mailboxmq/mailbox/worker"
)

// Order is the body of a message, as JSON.
type Order struct {
	Drink string `json:"drink"`
}

func main() {
	if err := run(context.Background(), "127.0.0.1:9411", os.Args[1]); err != nil {
		slog.Error("worker failed", "err", err)
		os.Exit(1)
	}
}

// run handles orders until a signal comes. The address is the daemon's for OAP/1
// (listen.oap), not the one for HTTP.
func run(ctx context.Context, address, tokenFile string) error {
	token, err := os.ReadFile(tokenFile)
	if err != nil {
		return err
	}
	daemon, err := remotebox.Open(ctx, []string{address}, strings.TrimSpace(string(token)), nil)
	if err != nil {
		return err
	}
	defer daemon.Close()
	orders, err := mailbox.Open[Order](ctx, daemon, "orders", nil)
	if err != nil {
		return err
	}
	defer orders.Close()
	handle := func(_ context.Context, message *mailbox.Message[Order]) error {
		slog.Info("order", "id", message.ID, "drink", message.Body.Drink)
		return nil // acks it; an error has it delivered again
	}
	loop := worker.New(orders, handle, &worker.Options[Order]{Logger: slog.Default()})
	return worker.NewGroup(nil, loop).Run(ctx)
}
