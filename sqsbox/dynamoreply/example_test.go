package dynamoreply_test

import (
	"context"
	"fmt"
	"sync"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/internal/testing/dynamotest"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/reply"
	"github.com/mailboxmq/mailbox/sqsbox/dynamoreply"
)

// Answers go through DynamoDB. The requests go through any backend, usually SQS.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	check := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	server, err := dynamotest.Launch(ctx) // a real program uses dynamodb.NewFromConfig
	check(err)
	defer server.Close()

	store, err := dynamoreply.Open(ctx, server.Client(), "replies", &dynamoreply.Options{CreateTable: true})
	check(err)
	backend := membox.New(nil)
	questions, err := mailbox.Open(ctx, backend, "questions", &mailbox.Options[string]{Replies: store})
	check(err)

	var worker sync.WaitGroup
	worker.Go(func() {
		handle := reply.Handle(func(_ context.Context, question *mailbox.Message[string]) (string, error) {
			return "yes, " + question.Body, nil
		}, nil)
		for message, err := range questions.Messages(ctx) {
			if err == nil {
				err = handle(ctx, message)
			}
			if err != nil && ctx.Err() == nil {
				fmt.Println("worker:", err) // the message comes back
			}
		}
	})

	answer, err := reply.NewClient[string, string](questions, store, nil).Call(ctx, "tea?")
	fmt.Println(answer, err)

	stop()
	worker.Wait()
	check(backend.Close())
	// Output: yes, tea? <nil>
}
