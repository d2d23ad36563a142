package redisrules_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
	"github.com/mailboxmq/mailbox/redisbox"
	"github.com/mailboxmq/mailbox/reply"
)

func TestRPL6CancelInRedisEndsTheHandler(t *testing.T) {
	t.Parallel()
	client, err := rueidis.NewClient(redistest.SharedServer(t).ClientOption())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	prefix := redistest.Prefix(t)
	open := func() *redisbox.Backend {
		backend, err := redisbox.Open(t.Context(), client, &redisbox.Options{Prefix: prefix})
		if err != nil {
			t.Fatal(err)
		}
		return backend
	}
	here, there := open(), open() // the client and the worker are two processes
	defer here.Close()
	defer there.Close()
	queue := func(b *redisbox.Backend) *box {
		m, err := mailbox.Open(t.Context(), b, "requests", &mailbox.Options[string]{Replies: b.Replies(0)})
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	future, err := reply.NewClient[string, string](queue(here), here.Replies(0), nil).Send(t.Context(), "tea")
	if err != nil {
		t.Fatal(err)
	}
	requests := queue(there)
	messages, err := requests.Receive(t.Context(), mailbox.WithVisibility(time.Hour))
	if err != nil || len(messages) != 1 {
		t.Fatalf("received %d, error %v", len(messages), err)
	}
	var cause error
	err = reply.Handle(func(ctx context.Context, _ *message) (string, error) {
		if err := future.Cancel(ctx); err != nil {
			t.Error(err)
		}
		<-ctx.Done()
		cause = context.Cause(ctx)
		return "", cause
	}, nil)(t.Context(), messages[0])
	if err != nil || !errors.Is(cause, mailbox.ErrReplyCancelled) {
		t.Errorf("the handler ended with %v, error %v", cause, err)
	}
	if stats, err := requests.Stats(t.Context()); err != nil || stats != (mailbox.Stats{}) {
		t.Errorf("the queue has %+v, error %v", stats, err)
	}
}
