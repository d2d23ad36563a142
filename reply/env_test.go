package reply_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/mailboxtest"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/registry"
	"github.com/mailboxmq/mailbox/reply"
)

// An env is a backend, a reply store and a registry with faults, and a mailbox of
// requests that uses them.
type env struct {
	backend  *membox.Backend
	faults   *mailboxtest.Faults
	slots    driver.ReplyStore
	store    driver.ReplyStore
	registry *registry.Registry
	requests *mailbox.Mailbox[string]
}

func newEnv(t *testing.T) *env {
	t.Helper()
	o := &env{backend: membox.New(&membox.Options{Defaults: driver.Config{MaxDeliveries: driver.Off}}), slots: reply.NewMemory(nil)}
	o.faults = mailboxtest.NewFaults(o.backend)
	o.store = o.faults.Replies(o.slots)
	o.registry = registry.New(&registry.Options{Fallback: o.backend})
	requests, err := mailbox.Open(t.Context(), o.faults, "requests",
		&mailbox.Options[string]{Replies: o.store, Resolver: o.registry})
	if err != nil {
		t.Fatal(err)
	}
	o.requests = requests
	t.Cleanup(func() {
		requests.Close()
		o.registry.Close()
		o.backend.Close()
	})
	return o
}

func (o *env) client(options *reply.Options[string]) *reply.Client[string, string] {
	return reply.NewClient(o.requests, o.store, options)
}

// replies opens a reply mailbox.
func (o *env) replies(t *testing.T, name string) *mailbox.Mailbox[reply.Result[string]] {
	t.Helper()
	m, err := mailbox.Open(t.Context(), o.backend, name,
		&mailbox.Options[reply.Result[string]]{Codec: reply.Results[string](nil)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// receive receives one request.
func (o *env) receive(t *testing.T, options ...mailbox.ReceiveOption) *mailbox.Message[string] {
	t.Helper()
	messages, err := o.requests.Receive(t.Context(), options...)
	if err != nil || len(messages) != 1 {
		t.Fatalf("received %d messages and error %v, want 1", len(messages), err)
	}
	return messages[0]
}

// work handles requests until ctx ends.
func (o *env) work(ctx context.Context, handle func(context.Context, *mailbox.Message[string]) error) {
	for message, err := range o.requests.Messages(ctx) {
		if err == nil {
			// A failed request comes back when its visibility ends.
			_ = handle(ctx, message)
		}
	}
}

func (o *env) expectRequests(t *testing.T, want mailbox.Stats) {
	t.Helper()
	got, err := o.requests.Stats(t.Context())
	expectError(t, err, nil)
	expectEqual(t, "requests", got, want)
}

const errSoldOut mailbox.FailureKind = "sold out"

// echo answers with the request, and fails for coffee.
func echo(_ context.Context, message *mailbox.Message[string]) (string, error) {
	if message.Body == "coffee" {
		return "", fmt.Errorf("%w: coffee", errSoldOut)
	}
	return message.Body + "!", nil
}

func expectError(t *testing.T, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("error is %v, want %v", err, target)
	}
}

func expectEqual[V comparable](t *testing.T, what string, got, want V) {
	t.Helper()
	if got != want {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

// must returns a function that fails the test unless err is nil, and returns
// value: must(client.Send(ctx, "tea"))(t).
func must[V any](value V, err error) func(t *testing.T) V {
	return func(t *testing.T) V {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}
