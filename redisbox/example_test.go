package redisbox_test

import (
	"context"
	"fmt"

	"github.com/redis/rueidis"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/redisbox"
)

// A queue in a Redis server that anybody who can reach it shares.
func Example() {
	ctx := context.Background()
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{"localhost:6379"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	backend, err := redisbox.Open(ctx, client, &redisbox.Options{Prefix: "shop:"})
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
