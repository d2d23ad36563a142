// Tour shows the life of messages on the memory backend in a few seconds: sending,
// receiving, a worker that crashes, retries with backoff, dead letters and redriving.
//
// It is meant to be read as much as to be run: each chapter is a function that
// uses the mailbox the way a program would.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/membox"
)

// Order is what the mailbox carries. Any type that JSON can encode will do.
type Order struct {
	Drink string `json:"drink"`
	Table int    `json:"table"`
}

// visibility is how long a worker may take. Real programs use longer ones.
const visibility = time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := tour(ctx, narrate(os.Stdout)); err != nil {
		fmt.Fprintln(os.Stderr, "tour:", err)
		os.Exit(1)
	}
}

func tour(ctx context.Context, n *narrator) error {
	backend := membox.New(nil)
	defer backend.Close()
	// After three deliveries without an ack, a message is dead-lettered.
	if err := backend.ConfigureQueue(ctx, "orders", driver.Config{MaxDeliveries: 3}); err != nil {
		return err
	}
	orders, err := mailbox.Open[Order](ctx, backend, "orders", nil)
	if err != nil {
		return err
	}
	defer orders.Close()

	for _, chapter := range []struct {
		title string
		tell  func(context.Context, *narrator, *mailbox.Mailbox[Order]) error
	}{
		{"A send wakes a receiver that waits", sendAndReceive},
		{"A worker crashes, and its message comes back", crash},
		{"Work fails, and is tried again with backoff", retry},
		{"A dead letter gets a second chance", redrive},
	} {
		n.chapter(chapter.title)
		if err := chapter.tell(ctx, n, orders); err != nil {
			return err
		}
	}
	stats, err := orders.Stats(ctx)
	if err != nil {
		return err
	}
	if stats != (mailbox.Stats{}) {
		return fmt.Errorf("every order was served, and yet the queue holds %+v", stats)
	}
	n.say("queue", "ready 0, delayed 0, in flight 0, dead 0: every order was served once")
	return nil
}

func sendAndReceive(ctx context.Context, n *narrator, orders *mailbox.Mailbox[Order]) error {
	go func() {
		time.Sleep(500 * time.Millisecond)
		n.say("waiter", "sends an espresso for table 4")
		if _, err := orders.Send(ctx, Order{Drink: "espresso", Table: 4}); err != nil {
			n.say("waiter", "could not send: %v", err)
		}
	}()
	n.say("ada", "waits for work, for up to 5 s")
	order, err := receive(ctx, orders)
	if err != nil {
		return err
	}
	n.say("ada", "has it, delivery %d, and makes the %s", order.Deliveries, order.Body.Drink)
	if err := order.Ack(ctx); err != nil {
		return err
	}
	n.say("ada", "acks: the message is removed")
	return nil
}

func crash(ctx context.Context, n *narrator, orders *mailbox.Mailbox[Order]) error {
	if _, err := orders.Send(ctx, Order{Drink: "flat white", Table: 7}); err != nil {
		return err
	}
	lost, err := receive(ctx, orders)
	if err != nil {
		return err
	}
	n.say("ada", "takes the %s for %v, and faints", lost.Body.Drink, visibility)
	n.say("ben", "waits; while ada's visibility lasts, he gets nothing")
	order, err := receive(ctx, orders)
	if err != nil {
		return err
	}
	n.say("ben", "gets the %s, delivery %d, now that her time is over", order.Body.Drink, order.Deliveries)

	// Only the latest delivery counts, so two workers never both finish it.
	err = lost.Ack(ctx)
	if !errors.Is(err, mailbox.ErrReceiptExpired) {
		return fmt.Errorf("a late ack should have been refused, got %v", err)
	}
	n.say("ada", "comes to and acks: refused, %v", mailbox.ErrReceiptExpired)
	n.say("ben", "acks")
	return order.Ack(ctx)
}

func retry(ctx context.Context, n *narrator, orders *mailbox.Mailbox[Order]) error {
	if _, err := orders.Send(ctx, Order{Drink: "matcha", Table: 2}); err != nil {
		return err
	}
	cause := errors.New("out of oat milk")
	for range 3 {
		order, err := receive(ctx, orders)
		if err != nil {
			return err
		}
		backoff := time.Duration(order.Deliveries) * 500 * time.Millisecond
		n.say("ben", "delivery %d of the %s fails: %v; nacks for %v", order.Deliveries, order.Body.Drink, cause, backoff)
		if err := order.Nack(ctx, backoff, cause); err != nil {
			return err
		}
	}
	n.say("queue", "three deliveries are the limit: it is a dead letter now")
	for letter, err := range orders.DeadLetters(ctx) {
		if err != nil {
			return err
		}
		n.say("queue", "%s: reason %s, deliveries %d, last error %q",
			letter.Body.Drink, letter.Reason, letter.Deliveries, letter.LastError)
	}
	return nil
}

func redrive(ctx context.Context, n *narrator, orders *mailbox.Mailbox[Order]) error {
	moved, err := orders.RedriveAll(ctx, 0)
	if err != nil {
		return err
	}
	n.say("boss", "buys oat milk and redrives %d dead letter", moved)
	order, err := receive(ctx, orders)
	if err != nil {
		return err
	}
	n.say("ben", "makes the %s, delivery %d, after all, and acks", order.Body.Drink, order.Deliveries)
	return order.Ack(ctx)
}

// receive waits for one message.
func receive(ctx context.Context, orders *mailbox.Mailbox[Order]) (*mailbox.Message[Order], error) {
	messages, err := orders.Receive(ctx, mailbox.WithWait(5*time.Second), mailbox.WithVisibility(visibility))
	if err != nil {
		return nil, err
	}
	if len(messages) == 0 {
		return nil, errors.New("no message came in 5 s")
	}
	return messages[0], nil
}
