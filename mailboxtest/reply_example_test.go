package mailboxtest_test

import (
	"context"
	"fmt"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/mailboxtest"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/reply"
)

// A test of a worker without a reply mailbox: the resolver collects what is sent to any
// address.
func ExampleResolver() {
	ctx := context.Background()
	backend := membox.New(nil)
	defer backend.Close()
	resolver := mailboxtest.NewResolver()
	requests, err := mailbox.Open(ctx, backend, "requests", &mailbox.Options[string]{Resolver: resolver})
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := requests.Send(ctx, "tea?", mailbox.WithReplyTo("client-7")); err != nil {
		fmt.Println(err)
		return
	}

	messages, err := requests.Receive(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(mailbox.Reply(ctx, messages[0], "yes"))
	fmt.Printf("%q %s\n", resolver.Log(), resolver.Sent("client-7")[0].Body)
	// Output:
	// <nil>
	// ["client-7"] "yes"
}

// A test of a client without a worker.
func ExampleNewImmediateReply() {
	ctx := context.Background()
	questions, err := mailbox.Open[string](ctx, mailboxtest.Null{}, "questions", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	client := reply.NewClient[string, int](questions, mailboxtest.NewImmediateReply(nil, 42), nil)
	fmt.Println(client.Call(ctx, "what?"))
	// Output: 42 <nil>
}
