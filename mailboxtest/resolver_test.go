package mailboxtest_test

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/driver/drivertest"
	"github.com/mailboxmq/mailbox/mailboxtest"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/reply"
)

// ask receives a request with this reply address.
func ask(t *testing.T, resolver mailbox.Resolver, address string) *mailbox.Message[string] {
	t.Helper()
	backend := membox.New(nil)
	requests, err := mailbox.Open(t.Context(), backend, "requests", &mailbox.Options[string]{Resolver: resolver})
	expectError(t, err, nil)
	t.Cleanup(func() { requests.Close(); backend.Close() })
	_, err = requests.Send(t.Context(), "tea?", mailbox.WithReplyTo(address))
	expectError(t, err, nil)
	return mustReceive(t, requests)
}

func TestResolverLogsCollectsAndFails(t *testing.T) {
	resolver := mailboxtest.NewResolver()
	const odd = "redis://host/an{odd}name"
	for _, address := range []string{"replies", odd, "replies"} {
		expectError(t, mailbox.Reply(t.Context(), ask(t, resolver, address), "to "+address), nil)
	}
	resolver.FailOn("nowhere", nil)
	resolver.FailOn("down", mailbox.ErrUnavailable)
	resolver.FailOn("odd", io.EOF)
	expectError(t, mailbox.Reply(t.Context(), ask(t, resolver, "nowhere"), 1), mailbox.ErrNoReplyTo)
	expectError(t, mailbox.Reply(t.Context(), ask(t, resolver, "down"), 1), mailbox.ErrUnavailable)
	expectError(t, mailbox.Reply(t.Context(), ask(t, resolver, "odd"), 1), io.EOF)
	expectSame(t, "log", resolver.Log(), []string{"replies", odd, "replies", "nowhere", "down", "odd"})

	texts, err := mailboxtest.Bodies(mailbox.JSON[string](), resolver.Sent("replies"))
	expectError(t, err, nil)
	expectSame(t, "sent to replies", texts, []string{"to replies", "to replies"})
	expectEqual(t, "sent in all", len(resolver.Sent()), 3)
	sent, err := resolver.Wait(t.Context(), 3)
	expectError(t, err, nil)
	expectEqual(t, "waited for", len(sent), 3)
}

func TestResolverReturnsRegisteredQueues(t *testing.T) {
	resolver := mailboxtest.NewResolver()
	backend := membox.New(nil)
	defer backend.Close()
	replies := open(t, backend)
	expectError(t, resolver.Register("replies", replies.Queue()), nil)
	expectError(t, resolver.Register("replies", replies.Queue()), mailbox.ErrConflict)
	for range 2 { // replying does not close it
		expectError(t, mailbox.Reply(t.Context(), ask(t, resolver, "replies"), "yes"), nil)
	}
	wantStats(t, replies, mailbox.Stats{Ready: 2})
	expectEqual(t, "collected", len(resolver.Sent()), 0)
}

func TestImmediateReplyAnswersEverything(t *testing.T) {
	requests := open(t, mailboxtest.Null{})
	client := reply.NewClient[string, int](requests, mailboxtest.NewImmediateReply(nil, 42), nil)
	for range 2 {
		answer, err := client.Call(t.Context(), "what?")
		expectError(t, err, nil)
		expectEqual(t, "answer", answer, 42)
	}
	text := reply.NewClient(requests, mailboxtest.NewImmediateReply(mailbox.String(), "x"), &reply.Options[string]{Codec: mailbox.String()})
	answer, err := text.Call(t.Context(), "what?")
	expectError(t, err, nil)
	expectEqual(t, "answer", answer, "x")

	const kind mailbox.FailureKind = "sold out"
	failing := reply.NewClient[string, int](requests, mailboxtest.NewImmediateFailure(kind), nil)
	_, err = failing.Call(t.Context(), "what?")
	expectError(t, err, kind)
	broken := reply.NewClient[string, func()](requests, mailboxtest.NewImmediateReply[func()](nil, func() {}), nil)
	_, err = broken.Call(t.Context(), "what?")
	expectError(t, err, mailbox.ErrEncoding)
}

func TestNeverReplyTimesOutAndCanBeCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		requests := open(t, mailboxtest.Null{})
		store := mailboxtest.NewNeverReply()
		client := reply.NewClient(requests, store, &reply.Options[int]{TTL: time.Minute})
		future, err := client.Send(t.Context(), "what?")
		expectError(t, err, nil)
		expectError(t, store.Resolve(t.Context(), future.ID(), driver.Answer{Body: []byte("1")}), nil)
		start := time.Now()
		_, err = future.Wait(t.Context())
		expectError(t, err, mailbox.ErrTimeout)
		expectEqual(t, "waited for", time.Since(start), time.Minute)

		future, err = client.Send(t.Context(), "what?")
		expectError(t, err, nil)
		expectError(t, future.Cancel(t.Context()), nil)
		expectError(t, store.Resolve(t.Context(), future.ID(), driver.Answer{}), mailbox.ErrReplyCancelled)
		expectError(t, store.Resolve(t.Context(), "unknown", driver.Answer{}), mailbox.ErrNotFound)
	})
}

// TestStoreConformance runs the conformance suite on a store without faults.
func TestStoreConformance(t *testing.T) {
	drivertest.RunReplyStore(t, drivertest.ReplyStore{
		Virtual: true,
		Open:    func(testing.TB) driver.ReplyStore { return mailboxtest.NewFaults(nil).Replies(reply.NewMemory(nil)) },
	})
}

func TestReplyStoreFaultsHitTheirOperation(t *testing.T) {
	faults := mailboxtest.NewFaults(nil)
	defer faults.Close()
	memory := reply.NewMemory(nil)
	store := faults.Replies(memory)
	faults.Add(mailboxtest.Fault{Op: "create slot", Err: mailbox.ErrUnavailable, Every: 2})
	faults.Add(mailboxtest.Fault{Op: "resolve", Queue: "a", Err: mailbox.ErrUnavailable, Late: true})
	expectError(t, store.Create(t.Context(), "a", time.Hour), nil)
	expectError(t, store.Create(t.Context(), "b", time.Hour), mailbox.ErrUnavailable)
	expectError(t, store.Create(t.Context(), "b", time.Hour), nil)
	expectError(t, store.Resolve(t.Context(), "a", driver.Answer{}), mailbox.ErrUnavailable)
	expectError(t, store.Resolve(t.Context(), "b", driver.Answer{}), nil)
	slot, err := store.Get(t.Context(), "a")
	expectError(t, err, nil)
	expectEqual(t, "state after a late fault", slot.State, driver.SlotResolved)
	expectEqual(t, "creates", faults.Calls("create slot"), 3)

	ctx, cancel := context.WithCancel(t.Context())
	faults.Add(mailboxtest.Fault{Op: "wait", Delay: time.Hour})
	var group sync.WaitGroup
	group.Go(func() {
		if _, err := store.Wait(ctx, "a", time.Second); !errors.Is(err, context.Canceled) {
			t.Errorf("error is %v", err)
		}
	})
	cancel()
	group.Wait()
}
