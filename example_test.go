package mailbox_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/membox"
)

type Order struct {
	Item  string `json:"item"`
	Count int    `json:"count"`
}

// openOrders opens a mailbox on a memory backend of its own.
func openOrders(ctx context.Context, options *mailbox.Options[Order]) *mailbox.Mailbox[Order] {
	orders, err := mailbox.Open(ctx, membox.New(nil), "orders", options)
	if err != nil {
		panic(err)
	}
	return orders
}

func Example() {
	ctx := context.Background()
	backend := membox.New(nil)
	defer backend.Close()
	orders, err := mailbox.Open[Order](ctx, backend, "orders", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer orders.Close()

	if _, err := orders.Send(ctx, Order{Item: "tea", Count: 2}); err != nil {
		fmt.Println(err)
		return
	}
	messages, err := orders.Receive(ctx, mailbox.WithMax(10), mailbox.WithWait(20*time.Second))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, message := range messages {
		fmt.Printf("%d × %s, delivery %d\n", message.Body.Count, message.Body.Item, message.Deliveries)
		if err := message.Ack(ctx); err != nil {
			fmt.Println(err)
		}
	}
	// Output: 2 × tea, delivery 1
}

func ExampleMailbox_Send() {
	ctx := context.Background()
	orders := openOrders(ctx, nil)
	defer orders.Close()

	tea := Order{Item: "tea"}
	first, err := orders.Send(ctx, tea, mailbox.WithDedupKey("order 7"))
	fmt.Println(first.Duplicate, err)

	// Sending it again, because the first result is unknown, is safe. Another order
	// with the same key is refused.
	again, err := orders.Send(ctx, tea, mailbox.WithDedupKey("order 7"))
	fmt.Println(again.Duplicate, again.ID == first.ID, err)
	_, err = orders.Send(ctx, Order{Item: "milk"}, mailbox.WithDedupKey("order 7"))
	fmt.Println(errors.Is(err, mailbox.ErrConflict))
	// Output:
	// false <nil>
	// true true <nil>
	// true
}

func ExampleMailbox_SendMessages() {
	ctx := context.Background()
	orders := openOrders(ctx, nil)
	defer orders.Close()

	results, err := orders.SendMessages(ctx, []mailbox.Outgoing[Order]{
		{Body: Order{Item: "tea"}, Group: "table 3"},
		{Body: Order{Item: "cake"}, Delay: 400 * 24 * time.Hour}, // longer than is allowed
		{Body: Order{Item: "milk"}, Attributes: map[string]string{"waiter": "Ada"}},
	})
	for i, result := range results {
		fmt.Println(i, result.ID != "", mailbox.ErrorAt(err, i))
	}
	// Output:
	// 0 true <nil>
	// 1 false mailbox: send orders: invalid argument: Delay: 9600h0m0s is outside 0…8784h0m0s
	// 2 true <nil>
}

func ExampleMailbox_Messages() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	orders := openOrders(ctx, nil)
	defer orders.Close()
	if _, err := orders.SendAll(ctx, []Order{{Item: "tea"}, {Item: "milk"}, {Item: "cake"}}); err != nil {
		fmt.Println(err)
	}

	for message, err := range orders.Messages(ctx, mailbox.WithMax(10)) {
		if err != nil {
			fmt.Println("trying again after", err)
			continue
		}
		fmt.Println(message.Body.Item)
		if err := message.Ack(ctx); err != nil {
			fmt.Println(err)
		}
		if message.Body.Item == "milk" {
			break // the cake is given back at once
		}
	}
	stats, err := orders.Stats(ctx)
	fmt.Println("ready:", stats.Ready, err)
	// Output:
	// tea
	// milk
	// ready: 1 <nil>
}

func ExampleMessage_Nack() {
	ctx := context.Background()
	orders := openOrders(ctx, nil)
	defer orders.Close()
	if _, err := orders.Send(ctx, Order{Item: "tea"}); err != nil {
		fmt.Println(err)
	}

	for message, err := range orders.Messages(ctx) {
		if err != nil {
			fmt.Println(err)
			break
		}
		if message.Deliveries == 1 {
			err = message.Nack(ctx, 0, errors.New("the kettle is cold"))
			fmt.Println("nacked:", err)
			continue
		}
		fmt.Printf("delivery %d, after %q\n", message.Deliveries, message.LastError)
		err = message.Ack(ctx)
		fmt.Println("acked:", err)
		err = message.Ack(ctx)
		fmt.Println("and again:", errors.Is(err, mailbox.ErrSettled))
		break
	}
	// Output:
	// nacked: <nil>
	// delivery 2, after "the kettle is cold"
	// acked: <nil>
	// and again: true
}

func ExampleMailbox_DeadLetters() {
	ctx := context.Background()
	orders := openOrders(ctx, nil)
	defer orders.Close()
	if _, err := orders.Send(ctx, Order{Item: "coffee"}); err != nil {
		fmt.Println(err)
	}
	messages, err := orders.Receive(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := messages[0].DeadLetter(ctx, mailbox.ReasonFatal, errors.New("this is a tea house")); err != nil {
		fmt.Println(err)
	}

	var ids []string
	for letter, err := range orders.DeadLetters(ctx) {
		if err != nil {
			fmt.Println(err)
			break
		}
		fmt.Printf("%s: %s, %s\n", letter.Body.Item, letter.Reason, letter.LastError)
		ids = append(ids, letter.ID)
	}
	moved, err := orders.Redrive(ctx, ids)
	fmt.Println("redriven:", moved, err)
	// Output:
	// coffee: fatal, this is a tea house
	// redriven: 1 <nil>
}

func ExampleOptions_poison() {
	ctx := context.Background()
	backend := membox.New(nil)
	defer backend.Close()
	orders, err := mailbox.Open(ctx, backend, "orders", &mailbox.Options[Order]{
		Poison: func(_ context.Context, d driver.Delivery, err error) mailbox.Disposition {
			fmt.Printf("cannot read %q\n", d.Body)
			return mailbox.Disposition{Action: mailbox.PoisonDeadLetter}
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer orders.Close()
	notes, err := mailbox.Open(ctx, backend, "orders", &mailbox.Options[string]{Codec: mailbox.String()})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer notes.Close()

	if _, err := notes.SendAll(ctx, []string{"two teas, please", `{"item":"tea","count":2}`}); err != nil {
		fmt.Println(err)
	}
	messages, err := orders.Receive(ctx, mailbox.WithMax(10))
	if err != nil {
		fmt.Println(err)
	}
	for _, message := range messages {
		fmt.Println(message.Body.Item)
	}
	stats, err := orders.Stats(ctx)
	fmt.Println("dead:", stats.Dead, err)
	// Output:
	// cannot read "two teas, please"
	// tea
	// dead: 1 <nil>
}

func ExampleHooks() {
	ctx := context.Background()
	orders := openOrders(ctx, &mailbox.Options[Order]{Hooks: mailbox.Hooks{
		Sending: func(ctx context.Context, _ string, messages []driver.Outgoing) context.Context {
			for i := range messages {
				messages[i].Attributes["traceparent"] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
			}
			return ctx
		},
		Received: func(_ context.Context, queue string, d *driver.Delivery) {
			fmt.Println("received from", queue, "in trace", d.Attributes["traceparent"])
		},
		Settled: func(_ context.Context, event mailbox.SettledEvent) {
			fmt.Println("settled:", event.Outcome, event.Err)
		},
	}})
	defer orders.Close()

	if _, err := orders.Send(ctx, Order{Item: "tea"}); err != nil {
		fmt.Println(err)
	}
	messages, err := orders.Receive(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := mailbox.AckAll(ctx, messages...); err != nil {
		fmt.Println(err)
	}
	// Output:
	// received from orders in trace 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01
	// settled: ack <nil>
}

func ExampleText() {
	codec := mailbox.Text[netip.Addr]()
	data, err := codec.Encode(netip.MustParseAddr("192.0.2.1"))
	fmt.Printf("%s %v\n", data, err)
	_, err = codec.Decode([]byte("nowhere"))
	fmt.Println(err)
	// Output:
	// 192.0.2.1 <nil>
	// ParseAddr("nowhere"): unable to parse IP
}

// The scheme of a URL chooses the backend, which the program imports.
func ExampleOpenURL() {
	ctx := context.Background()

	orders, err := mailbox.OpenURL[Order](ctx, "redis://127.0.0.1:6379/orders", nil)
	if err != nil {
		fmt.Println(err) // nothing imports redisbox here
		return
	}
	defer orders.Close()
}
