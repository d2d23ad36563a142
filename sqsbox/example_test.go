package sqsbox_test

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/sqsbox"
)

// A queue that is created if it does not exist. Programs usually get their client from
// sqs.NewFromConfig and the configuration that package config of the SDK loads.
func Example() {
	ctx := context.Background()
	client := sqs.New(sqs.Options{Region: "eu-central-1"})
	backend, err := sqsbox.New(client, &sqsbox.Options{Prefix: "shop-", Create: true})
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
	backend, err := sqsbox.New(sqs.New(sqs.Options{Region: "eu-central-1"}), nil)
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

// Queues by address, in regions that were added.
func ExampleRegions() {
	client := sqs.New(sqs.Options{Region: "eu-central-1"})
	backend, err := sqsbox.New(client, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = backend.Close() }()
	var regions sqsbox.Regions
	if err := regions.Add("eu-central-1", backend); err != nil {
		fmt.Println(err)
		return
	}
	schemes := mailbox.Schemes{ByScheme: map[string]mailbox.Scheme{"sqs": regions.OpenURI}}
	_, err = schemes.OpenQueue(context.Background(), "sqs://us-east-1/orders")
	fmt.Println(err)
	// Output: mailbox: open sqs://us-east-1/orders: forbidden: host: is not one of the regions that were added
}
