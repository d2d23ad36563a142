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

// A message that cannot be handled is buried, looked at, and sent back.
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

	box := deadletter.NewBox(orders, nil) // with the mailbox itself
	if _, err := box.Bury(ctx, messages[0], mailbox.ReasonFatal, errors.New("no milk")); err != nil {
		fmt.Println(err)
		return
	}
	for letter, err := range box.Letters(ctx) {
		fmt.Println(letter.Body, "died of", letter.LastError, err)
	}
	// The cow is back.
	redriven, err := box.Redrive(ctx, deadletter.Selection[string]{
		Match: func(letter deadletter.Letter[string]) bool { return strings.Contains(letter.LastError, "milk") },
	}, nil)
	fmt.Println(redriven.Moved, "moved", err)
	// Output:
	// cocoa died of no milk <nil>
	// 1 moved <nil>
}

var errBadInput = errors.New("bad input")

// A policy that takes broken connections for passing and bad input for final.
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

// A consumer alerts somebody, and replays what may work now.
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
		&mailbox.Options[deadletter.Letter[string]]{Codec: deadletter.Codec[string](nil)})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer letters.Close()
	box := deadletter.NewBox(orders, letters)
	if _, err := orders.Send(ctx, "cocoa"); err != nil {
		fmt.Println(err)
		return
	}
	messages, err := orders.Receive(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := box.Bury(ctx, messages[0], mailbox.ReasonFatal, errors.New("no milk")); err != nil {
		fmt.Println(err)
		return
	}

	consumer := deadletter.NewConsumer(box, func(_ context.Context, letter deadletter.Letter[string]) (deadletter.Action, error) {
		fmt.Printf("alert: %s from %s died of %s\n", letter.Body, letter.Source, letter.LastError)
		stop()
		return deadletter.Replay, nil
	}, &deadletter.ConsumerOptions{Dedup: deadletter.NewSeen(10_000)})
	fmt.Println(consumer.Run(ctx))
	stats, err := orders.Stats(context.Background())
	fmt.Println(stats.Ready, "ready", err)
	// Output:
	// alert: cocoa from orders died of no milk
	// <nil>
	// 1 ready <nil>
}
