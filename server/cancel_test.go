package server_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/internal/testing/pgtest"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
	"github.com/mailboxmq/mailbox/remotebox"
	"github.com/mailboxmq/mailbox/reply"
	"github.com/mailboxmq/mailbox/server"
	"github.com/mailboxmq/mailbox/worker"
)

// cancelLoops make the loops that get cancelled requests: work is called with the body of a message.
var cancelLoops = map[string]func(*mailbox.Mailbox[string], func(context.Context, string) error) *worker.Loop[string]{
	"plain": func(box *mailbox.Mailbox[string], work func(context.Context, string) error) *worker.Loop[string] {
		return worker.New(box, func(ctx context.Context, m *mailbox.Message[string]) error { return work(ctx, m.Body) }, nil)
	},
	"Serve": func(box *mailbox.Mailbox[string], work func(context.Context, string) error) *worker.Loop[string] {
		serve := func(ctx context.Context, m *mailbox.Message[string]) (string, error) { return "", work(ctx, m.Body) }
		return worker.New(box, worker.Serve(serve, nil), nil)
	},
	"batch": func(box *mailbox.Mailbox[string], work func(context.Context, string) error) *worker.Loop[string] {
		return worker.NewBatch(box, func(ctx context.Context, batch []*mailbox.Message[string]) error { return work(ctx, batch[0].Body) },
			&worker.BatchOptions[string]{Size: 1})
	},
}

// TestRPL6CancelThroughDaemonEndsHandlerOnEveryBackend has a client and a worker with a connection each. A
// request that was cancelled before its receive is not started, and one that is cancelled while its
// handler runs ends the handler within five seconds.
func TestRPL6CancelThroughDaemonEndsHandlerOnEveryBackend(t *testing.T) {
	for name, backend := range map[string]func(t *testing.T) string{
		"disk":       func(t *testing.T) string { return "disk:" + t.TempDir() },
		"redis":      func(t *testing.T) string { return "redis://" + redistest.Standalone(t).Addr() },
		"postgresql": func(t *testing.T) string { return pgtest.Start(t, "fsync=off").URL() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := start(t, server.Config{DataDir: t.TempDir(), Backend: backend(t)})
			for kind, of := range cancelLoops {
				queue := "requests-" + kind
				if status, answer := d.post(d.OperatorToken(), "/v1/queues/configure", `{"topic":"`+queue+`","config":{}}`); status != 200 {
					t.Fatalf("create %s: %v", queue, answer)
				}
				d.expectCancelled(t, queue, of)
			}
		})
	}
}

// expectCancelled checks a loop on a queue.
func (r *running) expectCancelled(t *testing.T, queue string, of func(*mailbox.Mailbox[string], func(context.Context, string) error) *worker.Loop[string]) {
	t.Helper()
	open := func() (*mailbox.Mailbox[string], *remotebox.Backend) {
		backend := remotebox.New([]string{r.Address(server.OAP)}, r.OperatorToken().Reveal(), nil)
		t.Cleanup(func() { _ = backend.Close() })
		box, err := mailbox.Open(t.Context(), backend, queue, &mailbox.Options[string]{Replies: backend.Replies()})
		if err != nil {
			t.Fatal(err)
		}
		return box, backend
	}
	box, clientBackend := open()
	client := reply.NewClient[string, string](box, clientBackend.Replies(), nil)
	ask := func(body string) *reply.Future[string] {
		future, err := client.Send(t.Context(), body)
		if err != nil {
			t.Fatal(err)
		}
		return future
	}
	cancel := func(future *reply.Future[string]) {
		if err := future.Cancel(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	cancel(ask("cancelled before"))
	running := ask("cancelled while it runs")
	began, ended := make(chan string, 10), make(chan error, 10)
	requests, _ := open()
	loop := of(requests, func(ctx context.Context, body string) error {
		began <- body
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return ctx.Err()
	})
	stopped := make(chan error, 1)
	go func() { stopped <- loop.Run(context.WithoutCancel(t.Context())) }()
	if body := <-began; body != "cancelled while it runs" {
		t.Errorf("%s: started %q", queue, body)
	}
	<-time.After(1500 * time.Millisecond) // the slot is watched after a second
	cancel(running)
	select {
	case cause := <-ended:
		if !errors.Is(cause, mailbox.ErrReplyCancelled) {
			t.Errorf("%s: the handler ended with %v", queue, cause)
		}
	case <-time.After(5 * time.Second):
		t.Errorf("%s: the handler has not ended after five seconds", queue)
	}
	for deadline := time.Now().Add(time.Minute); ; <-time.After(10 * time.Millisecond) {
		stats, err := box.Stats(t.Context())
		if err == nil && stats == (mailbox.Stats{}) {
			break
		}
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("%s: the queue has %+v, %v", queue, stats, err)
		}
	}
	loop.Stop()
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if len(began) > 0 {
		t.Errorf("%s: started %q too", queue, <-began)
	}
}
