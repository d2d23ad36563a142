package mailbox_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/driver"
)

// next prints the item of each order that is ready, in the order of their deliveries.
func next(ctx context.Context, orders *mailbox.Mailbox[Order]) {
	messages, err := orders.Receive(ctx, mailbox.WithMax(10))
	if err != nil {
		fmt.Println(err)
	}
	for _, message := range messages {
		fmt.Println(message.Body.Item)
	}
}

func ExampleWithPriority() {
	ctx := context.Background()
	orders := openOrders(ctx, nil)
	_, _ = orders.Send(ctx, Order{Item: "tea"})
	_, _ = orders.Send(ctx, Order{Item: "medicine"}, mailbox.WithPriority(5))
	next(ctx, orders)
	// Output:
	// medicine
	// tea
}

func ExampleWithUniqueKey() {
	ctx := context.Background()
	orders := openOrders(ctx, nil)
	for range 3 { // impatient customers
		sent, err := orders.Send(ctx, Order{Item: "tea"}, mailbox.WithUniqueKey("table 4"))
		fmt.Println(sent.Duplicate, err)
	}
	next(ctx, orders)
	// Output:
	// false <nil>
	// true <nil>
	// true <nil>
	// tea
}

// Of several sends only the last is delivered, at the place of the first.
func ExampleWithReplace() {
	ctx := context.Background()
	orders := openOrders(ctx, nil)
	for count := range 3 {
		sent, err := orders.Send(ctx, Order{Item: "tea", Count: count}, mailbox.WithUniqueKey("table 4"), mailbox.WithReplace())
		fmt.Println(sent.Replaced, err)
	}
	messages, err := orders.Receive(ctx, mailbox.WithMax(10))
	fmt.Println(len(messages), messages[0].Body.Count, err)
	// Output:
	// false <nil>
	// true <nil>
	// true <nil>
	// 1 2 <nil>
}

func ExampleWithDeliverAt() {
	ctx := context.Background()
	orders := openOrders(ctx, nil)
	noon := time.Now().Truncate(24 * time.Hour).Add(36 * time.Hour)
	_, err := orders.Send(ctx, Order{Item: "tea"}, mailbox.WithDeliverAt(noon))
	stats, _ := orders.Stats(ctx)
	fmt.Println(err, stats.Ready, stats.Delayed)
	// Output: <nil> 0 1
}

// TestTimesOfMessagesReachTheQueue: TIME-0, TIME-2 and FLOW-4 by the options of this package.
func TestTimesOfMessagesReachTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		orders := openOrders(ctx, nil)
		expect := func(ready, delayed, dead int) {
			t.Helper()
			stats, err := orders.Stats(ctx)
			if err != nil || stats.Ready != ready || stats.Delayed != delayed || stats.Dead != dead {
				t.Errorf("the queue has %+v, %v; want %d ready, %d delayed, %d dead", stats, err, ready, delayed, dead)
			}
		}
		send := func(option mailbox.SendOption) {
			t.Helper()
			if _, err := orders.Send(ctx, Order{Item: "tea"}, option); err != nil {
				t.Fatal(err)
			}
		}
		send(mailbox.WithDeliverAt(time.Now().Add(time.Hour)))
		send(mailbox.WithTTL(time.Minute))
		expect(1, 1, 0)
		time.Sleep(time.Minute + time.Second)
		expect(0, 1, 1)
		for m, err := range orders.Peek(ctx, driver.Query{States: []driver.State{driver.StateDead}}) {
			if err != nil || m.Reason != driver.ReasonExpired {
				t.Errorf("the dead letter is %+v, %v", m, err)
			}
		}
		time.Sleep(time.Hour)
		expect(1, 0, 1)
		messages, err := orders.Receive(ctx)
		if err != nil || len(messages) != 1 {
			t.Fatal(messages, err)
		}
		if err := messages[0].Release(ctx, mailbox.WithDelay(time.Minute)); err != nil {
			t.Fatal(err)
		}
		expect(0, 1, 1)
		time.Sleep(time.Minute + time.Second)
		if messages, err = orders.Receive(ctx); err != nil || len(messages) != 1 || messages[0].Deliveries != 1 {
			t.Errorf("after a release: %+v, %v", messages, err)
		}
	})
}
