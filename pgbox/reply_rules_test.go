package pgbox_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/internal/testing/pgtest"
	"github.com/mailboxmq/mailbox/pgbox"
	"github.com/mailboxmq/mailbox/reply"
)

// TestRPL6RequestsThroughPostgreSQL answers a request and cancels another, with client and worker in two
// processes.
func TestRPL6RequestsThroughPostgreSQL(t *testing.T) {
	t.Parallel()
	pool, schema := pgtest.Shared(t).Pool(t), pgtest.Schema()
	open := func() (*mailbox.Mailbox[string], *pgbox.Backend) {
		b, err := pgbox.Open(t.Context(), pool, &pgbox.Options{Schema: schema, Migrate: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = b.Close() })
		m, err := mailbox.Open(t.Context(), b, "requests", &mailbox.Options[string]{Replies: b.Replies(0)})
		if err != nil {
			t.Fatal(err)
		}
		return m, b
	}
	here, store := open()
	there, _ := open()
	client := reply.NewClient[string, string](here, store.Replies(0), nil)
	serve := func(handler func(ctx context.Context, m *mailbox.Message[string]) (string, error)) {
		t.Helper()
		messages, err := there.Receive(t.Context(), mailbox.WithVisibility(time.Hour), mailbox.WithWait(time.Minute))
		if err != nil || len(messages) != 1 {
			t.Fatalf("received %d, error %v", len(messages), err)
		}
		if err := reply.Handle(handler, nil)(t.Context(), messages[0]); err != nil {
			t.Error(err)
		}
	}
	future, err := client.Send(t.Context(), "tea")
	if err != nil {
		t.Fatal(err)
	}
	serve(func(_ context.Context, m *mailbox.Message[string]) (string, error) { return m.Body + " is ready", nil })
	if answer, err := future.Wait(t.Context()); err != nil || answer != "tea is ready" {
		t.Errorf("got %q, %v", answer, err)
	}
	cancelled, err := client.Send(t.Context(), "coffee")
	if err != nil {
		t.Fatal(err)
	}
	var cause error
	serve(func(ctx context.Context, _ *mailbox.Message[string]) (string, error) {
		if err := cancelled.Cancel(ctx); err != nil {
			t.Error(err)
		}
		<-ctx.Done()
		cause = context.Cause(ctx)
		return "", cause
	})
	if !errors.Is(cause, mailbox.ErrReplyCancelled) {
		t.Errorf("the handler's context ended with %v, want %v", cause, mailbox.ErrReplyCancelled)
	}
}
