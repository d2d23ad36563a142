// Hello is the program of the README: it sends one order, and works on orders until it is
// interrupted.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"

	"github.com/mailboxmq/mailbox"
	_ "github.com/mailboxmq/mailbox/diskbox" // has disk:// URLs
)

type Order struct{ Drink string }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := serve(ctx, "disk:///tmp/shop?queue=orders"); err != nil {
		log.Fatal(err)
	}
}

func serve(ctx context.Context, url string) error {
	orders, err := mailbox.OpenURL[Order](ctx, url, nil)
	if err != nil {
		return err
	}
	defer orders.Close()
	if _, err := orders.Send(ctx, Order{Drink: "tea"}); err != nil {
		return err
	}
	for order, err := range orders.Messages(ctx) {
		if err == nil {
			fmt.Println("one", order.Body.Drink) // if the program dies here, the order comes back
			err = order.Ack(ctx)                 // done: it is removed
		}
		if err != nil {
			log.Print(err) // Messages tries again after a pause
		}
	}
	return nil
}
