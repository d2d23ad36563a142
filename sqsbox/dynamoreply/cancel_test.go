package dynamoreply_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/internal/testing/dynamotest"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/reply"
	"github.com/mailboxmq/mailbox/worker"
)

// TestRPL6CancelInDynamoEndsTheHandlers has loops that work on many requests. Their slots are polled
// together, a cancellation by another process ends each handler within five seconds, and a request
// that was cancelled before is not started.
func TestRPL6CancelInDynamoEndsTheHandlers(t *testing.T) {
	const requests = 40
	server := dynamotest.Shared(t)
	for kind, of := range map[string]func(*mailbox.Mailbox[string], func(context.Context) error) *worker.Loop[string]{
		"plain": func(box *mailbox.Mailbox[string], work func(context.Context) error) *worker.Loop[string] {
			return worker.New(box, func(ctx context.Context, _ *mailbox.Message[string]) error { return work(ctx) },
				&worker.Options[string]{Concurrency: requests})
		},
		"Serve": func(box *mailbox.Mailbox[string], work func(context.Context) error) *worker.Loop[string] {
			serve := worker.Serve(func(ctx context.Context, _ *mailbox.Message[string]) (string, error) { return "", work(ctx) }, nil)
			return worker.New(box, serve, &worker.Options[string]{Concurrency: requests})
		},
	} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newEnv(t, server, nil)
				backend := membox.New(nil)
				defer backend.Close()
				open := func(options *mailbox.Options[string]) *mailbox.Mailbox[string] {
					box, err := mailbox.Open(t.Context(), backend, "requests", options)
					wantError(t, err, nil)
					return box
				}
				client := reply.NewClient[string, string](open(nil), d.another(t).store, nil)
				var futures []*reply.Future[string]
				for range 1 + requests {
					future, err := client.Send(t.Context(), "tea")
					wantError(t, err, nil)
					futures = append(futures, future)
				}
				wantError(t, futures[0].Cancel(t.Context()), nil)
				var began, cancelled atomic.Int64
				box := open(&mailbox.Options[string]{Replies: d.store})
				loop := of(box, func(ctx context.Context) error {
					began.Add(1)
					<-ctx.Done()
					if errors.Is(context.Cause(ctx), mailbox.ErrReplyCancelled) {
						cancelled.Add(1)
					}
					return ctx.Err()
				})
				ended := make(chan error, 1)
				go func() { ended <- loop.Run(t.Context()) }()
				time.Sleep(20 * time.Second)
				wantEqual(t, "begun", began.Load(), requests)
				looks, calls := d.looked(), d.total()
				time.Sleep(10 * time.Second)
				looks, calls = d.looked()-looks, d.total()-calls
				wantBetween(t, "looks in ten seconds", looks, 9*requests, 15*requests)
				wantBetween(t, "requests for them", calls, 9, looks/10)
				for _, future := range futures[1:] {
					wantError(t, future.Cancel(t.Context()), nil)
				}
				time.Sleep(5 * time.Second)
				wantEqual(t, "cancelled within five seconds", cancelled.Load(), requests)
				stats, err := box.Stats(t.Context())
				wantError(t, err, nil)
				wantEqual(t, "the queue", stats, mailbox.Stats{})
				loop.Stop()
				wantError(t, <-ended, nil)
			})
		})
	}
}
