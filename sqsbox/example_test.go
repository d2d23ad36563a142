package sqsbox_test

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/registry"
	"github.com/mailboxmq/mailbox/sqsbox"
)

// A queue that is created if it does not exist. Programs usually get their client from
// sqs.NewFromConfig and the configuration that package config of the SDK loads.
func Example() {
	ctx := context.Background()
	client := sqs.New(sqs.Options{Region: "eu-central-1"})
	backend, err := sqsbox.Open(ctx, client, &sqsbox.Options{Prefix: "shop-", Create: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = backend.Close() }()
	orders, err := mailbox.Open[string](ctx, backend, "orders", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := orders.Send(ctx, "tea"); err != nil {
		fmt.Println(err)
	}
}

// A FIFO queue, whose messages move to another queue after five failed deliveries.
func ExampleBackend_ConfigureQueue() {
	ctx := context.Background()
	backend, err := sqsbox.Open(ctx, sqs.New(sqs.Options{Region: "eu-central-1"}), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = backend.Close() }()
	err = backend.ConfigureQueue(ctx, "orders", driver.Config{
		StrictGroups: true, MaxDeliveries: 5, DeadLetterTo: "orders-dead",
	})
	if err != nil {
		fmt.Println(err)
	}
}

// Queues by address, in the regions that it is given.
func ExampleURLOpener() {
	client := sqs.New(sqs.Options{Region: "eu-central-1"})
	backend, err := sqsbox.Open(context.Background(), client, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = backend.Close() }()
	opener, err := sqsbox.URLOpener(map[string]*sqsbox.Backend{"eu-central-1": backend})
	if err != nil {
		fmt.Println(err)
		return
	}
	schemes := registry.Schemes{ByScheme: map[string]registry.Scheme{"sqs": opener}}
	_, err = schemes.OpenQueue(context.Background(), "sqs://us-east-1/orders")
	fmt.Println(err)
	// Output: mailbox: open sqs://us-east-1/orders: forbidden: host: is not one of the regions that may be used
}
