package deadletter_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/deadletter"
	"github.com/mailboxmq/mailbox/membox"
)

// A message that cannot be handled is dead-lettered, listed, and redriven.
func Example() {
	ctx := context.Background()
	orders, err := mailbox.Open[string](ctx, membox.New(nil), "orders", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer orders.Close()
	if _, err := orders.Send(ctx, "cocoa"); err != nil {
		fmt.Println(err)
		return
	}
	messages, err := orders.Receive(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}

	dead := deadletter.NewQueue(orders, nil) // kept by the backend of orders
	if _, err := dead.DeadLetter(ctx, messages[0], mailbox.ReasonFatal, errors.New("no milk")); err != nil {
		fmt.Println(err)
		return
	}
	for letter, err := range dead.List(ctx) {
		fmt.Println(letter.Body, "failed:", letter.LastError, err)
	}
	// There is milk again.
	redriven, err := dead.Redrive(ctx, deadletter.Filter[string]{
		Match: func(letter deadletter.Message[string]) bool { return strings.Contains(letter.LastError, "milk") },
	}, nil)
	fmt.Println(redriven.Moved, "moved", err)
	// Output:
	// cocoa failed: no milk <nil>
	// 1 moved <nil>
}

var errBadInput = errors.New("bad input")

// A policy that retries broken connections and gives up on bad input at once.
func ExamplePolicy() {
	policy := deadletter.Policy[string]{
		MaxDeliveries: 3,
		Never:         []deadletter.Matcher{deadletter.Is(io.ErrUnexpectedEOF), deadletter.As[*mailbox.Error]()},
		Always:        []deadletter.Matcher{deadletter.Is(errBadInput)},
	}
	ctx := context.Background()
	for _, err := range []error{io.ErrUnexpectedEOF, fmt.Errorf("line 7: %w", errBadInput), errors.New("no milk")} {
		for deliveries := 1; deliveries <= 3; deliveries++ {
			reason, final := policy.Final(ctx, &mailbox.Message[string]{Deliveries: deliveries}, err)
			if final {
				fmt.Printf("%v: dead after %d, %s\n", err, deliveries, reason)
				break
			}
		}
	}
	// Output:
	// line 7: bad input: dead after 1, fatal
	// no milk: dead after 3, max_attempts
}

// A consumer raises an alert and redrives the message.
func ExampleConsumer() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	backend := membox.New(nil)
	orders, err := mailbox.Open[string](ctx, backend, "orders", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer orders.Close()
	letters, err := mailbox.Open(ctx, backend, "orders-dlq",
		&mailbox.Options[deadletter.Message[string]]{Codec: deadletter.Codec[string](nil)})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer letters.Close()
	dead := deadletter.NewQueue(orders, letters)
	if _, err := orders.Send(ctx, "cocoa"); err != nil {
		fmt.Println(err)
		return
	}
	messages, err := orders.Receive(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := dead.DeadLetter(ctx, messages[0], mailbox.ReasonFatal, errors.New("no milk")); err != nil {
		fmt.Println(err)
		return
	}

	consumer := deadletter.NewConsumer(dead, func(_ context.Context, letter deadletter.Message[string]) (deadletter.Action, error) {
		fmt.Printf("alert: %s from %s failed: %s\n", letter.Body, letter.Source, letter.LastError)
		stop()
		return deadletter.Redrive, nil
	}, &deadletter.ConsumerOptions{Dedup: deadletter.NewMemoryDedup(10_000)})
	fmt.Println(consumer.Run(ctx))
	stats, err := orders.Stats(context.Background())
	fmt.Println(stats.Ready, "ready", err)
	// Output:
	// alert: cocoa from orders failed: no milk
	// <nil>
	// 1 ready <nil>
}
