package dispatch_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/dispatch"
	"github.com/mailboxmq/mailbox/membox"
)

// Events are values of any type. Publish returns after all subscribers did.
func Example() {
	type Brewed struct{ Drink string }
	ctx := context.Background()
	dispatcher := dispatch.New(nil)
	dispatch.Subscribe(dispatcher, func(_ context.Context, event Brewed) error {
		fmt.Println("counter:", event.Drink)
		return nil
	})
	unsubscribe := dispatch.Subscribe(dispatcher, func(_ context.Context, event Brewed) error {
		fmt.Println("waiter:", event.Drink)
		return errors.New("dropped it")
	})
	fmt.Println(dispatch.Publish(ctx, dispatcher, Brewed{"tea"}))
	unsubscribe()
	fmt.Println(dispatch.Publish(ctx, dispatcher, Brewed{"coffee"}))
	// Output:
	// counter: tea
	// waiter: tea
	// dropped it
	// counter: coffee
	// <nil>
}

// One dispatcher can serve all mailboxes of a program.
func ExampleHooks() {
	ctx := context.Background()
	dispatcher := dispatch.New(nil)
	dispatch.Subscribe(dispatcher, func(_ context.Context, event dispatch.Settled) error {
		fmt.Println(event.Queue, event.Outcome, "on delivery", event.Deliveries)
		return nil
	})
	dispatch.Subscribe(dispatcher, func(_ context.Context, event dispatch.DeadLettered) error {
		fmt.Println(event.Queue, "lost one:", event.Reason, event.Cause)
		return nil
	})

	backend := membox.New(nil)
	defer backend.Close()
	orders, err := mailbox.Open(ctx, backend, "orders", &mailbox.Options[string]{Hooks: dispatch.Hooks(dispatcher)})
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := orders.SendAll(ctx, []string{"tea", "soup"}); err != nil {
		fmt.Println(err)
		return
	}
	messages, err := orders.Receive(ctx, mailbox.WithMax(2))
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = messages[0].Ack(ctx)
	_ = messages[1].DeadLetter(ctx, mailbox.ReasonFatal, errors.New("no kitchen"))
	// Output:
	// orders ack on delivery 1
	// orders dead-letter on delivery 1
	// orders lost one: fatal no kitchen
}
