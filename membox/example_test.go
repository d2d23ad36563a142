package membox_test

import (
	"context"
	"fmt"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/membox"
)

// Programs use package mailbox on top; this is what it does underneath.
func Example() {
	ctx := context.Background()
	backend := membox.New(nil)
	defer backend.Close()

	queue, err := backend.OpenQueue(ctx, "orders")
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := queue.Send(ctx, []driver.Outgoing{{Body: []byte("tea")}}); err != nil {
		fmt.Println(err)
		return
	}
	got, err := queue.Receive(ctx, driver.ReceiveRequest{Max: 10, Visibility: time.Minute})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s, delivery %d\n", got[0].Body, got[0].Deliveries)
	fmt.Println(queue.Ack(ctx, []driver.Receipt{got[0].Receipt}))
	// Output:
	// tea, delivery 1
	// <nil>
}

// A queue can be bounded, and can give up on messages that fail too often.
func ExampleBackend_ConfigureQueue() {
	ctx := context.Background()
	backend := membox.New(nil)
	defer backend.Close()

	err := backend.ConfigureQueue(ctx, "orders", driver.Config{MaxMessages: 1, MaxDeliveries: 5})
	if err != nil {
		fmt.Println(err)
		return
	}
	queue, err := backend.OpenQueue(ctx, "orders")
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = queue.Send(ctx, []driver.Outgoing{{Body: []byte("tea")}, {Body: []byte("cake")}})
	fmt.Println(err)
	// Output:
	// mailbox: 1 of 2 failed, first: mailbox: send orders: full: MaxMessages: queue is full (MaxMessages 1) (retry after 1s)
}
