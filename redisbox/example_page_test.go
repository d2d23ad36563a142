package redisbox_test

import (
	"context"

	"github.com/redis/rueidis"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/redisbox"
	"github.com/mailboxmq/mailbox/registry"
	"github.com/mailboxmq/mailbox/reply"
)

// The types of docs/redis.md.
type (
	Order    struct{ Number int }
	Question struct{ Text string }
	Answer   struct{ Text string }
)

// This is the code of docs/redis.md: opening a queue.
func Example_page() { //nolint:ineffassign,staticcheck // the page leaves out what to do with errors
	ctx := context.Background()

	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{"localhost:6379"}})
	backend, err := redisbox.Open(ctx, client, &redisbox.Options{Prefix: "shop:"})
	orders, err := mailbox.Open[Order](ctx, backend, "orders", nil)
	if err != nil {
		return
	}
	_, _ = orders.Send(ctx, Order{Number: 1})

	opener, err := redisbox.URLOpener(map[string]*redisbox.Backend{"redis://cache.local:6379": backend})
	schemes := registry.Schemes{ByScheme: map[string]registry.Scheme{"redis": opener}}
	if err != nil {
		return
	}
	_ = registry.New(&registry.Options{Fallback: schemes})
}

// This is the code of docs/redis.md: requests.
func Example_pageRequests() {
	ctx := context.Background()
	var backend *redisbox.Backend

	store := backend.Replies(0) // at most a million slots
	requests, err := mailbox.Open(ctx, backend, "requests", &mailbox.Options[Question]{Replies: store})
	client := reply.NewClient[Question, Answer](requests, store, nil)
	if err != nil {
		return
	}
	_, _ = client.Send(ctx, Question{Text: "how much?"})
}
