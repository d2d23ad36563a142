package mailboxtest_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/mailboxtest"
)

func ExampleNull() {
	ctx := context.Background()
	events, err := mailbox.Open[string](ctx, mailboxtest.Null{}, "events", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer events.Close()

	_, err = events.Send(ctx, "dropped")
	fmt.Println("sent:", err)
	messages, err := events.Receive(ctx)
	fmt.Println("received:", len(messages), err)
	// Output:
	// sent: <nil>
	// received: 0 <nil>
}

func ExampleCollector() {
	ctx := context.Background()
	collector := mailboxtest.NewCollector(nil)
	events, err := mailbox.Open[string](ctx, collector, "events", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer events.Close()

	// What the code under test would do:
	if _, err := events.Send(ctx, "opened", mailbox.WithGroup("shop 7")); err != nil {
		fmt.Println(err)
	}
	if _, err := events.Send(ctx, "closed"); err != nil {
		fmt.Println(err)
	}

	for _, sent := range collector.Sent() {
		fmt.Printf("%s to %s, group %q\n", sent.Body, sent.Queue, sent.Group)
	}
	bodies, err := mailboxtest.Bodies(mailbox.JSON[string](), collector.Sent())
	fmt.Println(bodies, err)
	// Output:
	// "opened" to events, group "shop 7"
	// "closed" to events, group ""
	// [opened closed] <nil>
}

func ExampleFaults() {
	ctx := context.Background()
	faults := mailboxtest.NewFaults(nil)
	defer faults.Close()
	orders, err := mailbox.Open[string](ctx, faults, "orders", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer orders.Close()

	reconnect := faults.Add(mailboxtest.Fault{Err: mailbox.ErrUnavailable})
	_, err = orders.Send(ctx, "tea")
	fmt.Println("while disconnected:", errors.Is(err, mailbox.ErrUnavailable))

	reconnect()
	_, err = orders.Send(ctx, "tea")
	fmt.Println("and again:", err)

	// The ack arrives, and the answer is lost on its way back.
	messages, err := orders.Receive(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	faults.Add(mailboxtest.Fault{Op: "ack", Err: mailbox.ErrUnavailable, Late: true, Times: 1})
	err = messages[0].Ack(ctx)
	fmt.Println("first ack unavailable:", errors.Is(err, mailbox.ErrUnavailable))
	err = messages[0].Ack(ctx)
	fmt.Println("second ack expired:", errors.Is(err, mailbox.ErrReceiptExpired))
	// Output:
	// while disconnected: true
	// and again: <nil>
	// first ack unavailable: true
	// second ack expired: true
}

func ExampleFaults_Expire() {
	ctx := context.Background()
	faults := mailboxtest.NewFaults(nil)
	defer faults.Close()
	orders, err := mailbox.Open[string](ctx, faults, "orders", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer orders.Close()

	if _, err := orders.Send(ctx, "tea"); err != nil {
		fmt.Println(err)
	}
	messages, err := orders.Receive(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := faults.Expire(ctx, orders.Name(), messages[0].Receipt); err != nil {
		fmt.Println(err)
	}
	err = messages[0].Ack(ctx)
	fmt.Println("too late:", errors.Is(err, mailbox.ErrReceiptExpired))
	// Output:
	// too late: true
}

func ExampleFaults_Inject() {
	ctx := context.Background()
	faults := mailboxtest.NewFaults(nil)
	defer faults.Close()
	orders, err := mailbox.Open[string](ctx, faults, "orders", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer orders.Close()

	_, err = faults.Inject(ctx, orders.Name(), mailboxtest.Injection{
		Outgoing:   driver.Outgoing{Body: []byte(`"tea"`)},
		Deliveries: 5,
		LastError:  "out of milk",
	})
	if err != nil {
		fmt.Println(err)
	}
	messages, err := orders.Receive(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	message := messages[0]
	fmt.Printf("%s, delivery %d, failed before: %s\n", message.Body, message.Deliveries, message.LastError)
	// Output:
	// tea, delivery 5, failed before: out of milk
}
