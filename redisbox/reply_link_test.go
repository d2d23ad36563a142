package redisbox

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
	"github.com/mailboxmq/mailbox/redisbox/internal/shard"
	"github.com/mailboxmq/mailbox/reply"
)

// sendRequest sends a request and creates its slot with it.
func sendRequest(t *testing.T, q *handle, r *replyStore, id string, ttl time.Duration) error {
	t.Helper()
	ctx, created, _ := r.CreateWithSend(t.Context(), id, ttl)
	_, err := q.Send(ctx, []driver.Outgoing{{Body: []byte(id), ReplyTo: driver.SlotAddress(id)}})
	if err == nil && !created() {
		t.Fatalf("%s: the slot was not created", id)
	}
	return err
}

func mustRequest(t *testing.T, q *handle, r *replyStore, id string) {
	t.Helper()
	if err := sendRequest(t, q, r, id, hold); err != nil {
		t.Fatal(err)
	}
}

// countScripts returns how many scripts were called through the proxy since the last call
// of it.
func countScripts(proxy *redistest.Proxy) (since func() int64) {
	var calls atomic.Int64
	proxy.OnRequest(func(args []string) redistest.Action {
		if args[0] == "EVALSHA" || args[0] == "EVAL" {
			calls.Add(1)
		}
		return redistest.Pass
	})
	return func() int64 { return calls.Swap(0) }
}

func TestRequestAndSlotTakeOneScript(t *testing.T) {
	here, there, proxy := desks(t)
	listening(t, here, "id")
	q := openQueue(t, here.backend)
	send(t, q, "the scripts are loaded")
	scripts := countScripts(proxy)
	if !here.LinkedTo(q) || here.LinkedTo(openQueue(t, there.backend)) {
		t.Fatal("the store is linked to the queues of its own backend")
	}
	mustRequest(t, q, here, "id")
	if err := there.Resolve(t.Context(), "id", answerOf("yes")); err != nil {
		t.Fatal(err)
	}
	wantAnswer(t, here, "id", "yes")
	if got := scripts(); got != 1 {
		t.Errorf("sending a request and waiting for its answer took %d scripts, want 1", got)
	}
	slot, err := there.Get(t.Context(), "id")
	if err != nil || slot.ExpiresAt.Sub(slot.CreatedAt) != hold {
		t.Errorf("got %+v, %v", slot, err)
	}
}

func TestWorkerOfCallRunsTwoScripts(t *testing.T) {
	here, there, proxy := desks(t)
	worker := openQueue(t, here.backend)
	requests := mailbox.New("orders", worker, &mailbox.Options[string]{Replies: here})
	handle := reply.Handle(func(_ context.Context, m *mailbox.Message[string]) (string, error) { return m.Body, nil }, nil)
	serve := func(id string) {
		t.Helper()
		mustRequestBody(t, openQueue(t, there.backend), there, id, `"yes"`)
		got, err := requests.Receive(t.Context(), mailbox.WithVisibility(hold))
		if err != nil || len(got) != 1 {
			t.Fatalf("got %d messages, %v", len(got), err)
		}
		if err := handle(t.Context(), got[0]); err != nil {
			t.Fatal(err)
		}
		wantAnswer(t, there, id, `"yes"`)
	}
	serve("first") // loads the scripts, and tells the worker that requests name slots
	scripts := countScripts(proxy)
	next := 0
	eventually(t, "the worker runs two scripts: receive, answer and ack", func() bool {
		next++
		serve(fmt.Sprint("request ", next))
		return scripts() == 2 // more if the request is started too late, see slotKnownFor
	})
}

func mustRequestBody(t *testing.T, q *handle, r *replyStore, id, body string) {
	t.Helper()
	ctx, _, _ := r.CreateWithSend(t.Context(), id, hold)
	if _, err := q.Send(ctx, []driver.Outgoing{{Body: []byte(body), ReplyTo: driver.SlotAddress(id)}}); err != nil {
		t.Fatal(err)
	}
}

// TestReceiveReadsSlots: the script computes the bucket of a slot as replyStore.bucket does.
func TestReceiveReadsSlots(t *testing.T) {
	b := open(t, connect(t, redistest.SharedServer(t).ClientOption()), &Options{Prefix: redistest.Prefix(t)})
	r, q := b.newReplyStore(0), openQueue(t, b)
	mustRequest(t, q, r, "first")
	if d := receive(t, q, 1, hold)[0]; d.SlotPending {
		t.Error("a process that has not seen a slot reads none")
	}
	const n = 64
	for i := range n {
		mustRequest(t, q, r, fmt.Sprint("slot.", i*i, "-", i))
	}
	for _, d := range receive(t, q, n, hold) {
		if !d.SlotPending {
			t.Errorf("the slot of %s is pending", d.Body)
		}
	}
	for id, change := range map[string]func(id string) error{
		"resolved":  func(id string) error { return r.Resolve(t.Context(), id, answerOf("yes")) },
		"cancelled": func(id string) error { return r.Cancel(t.Context(), id) },
		"deleted":   func(id string) error { return r.Delete(t.Context(), id) },
	} {
		mustRequest(t, q, r, id)
		if err := change(id); err != nil {
			t.Fatal(err)
		}
		if receive(t, q, 1, hold)[0].SlotPending {
			t.Errorf("a slot that is %s is not pending", id)
		}
	}
	if err := sendRequest(t, q, r, "ends soon", tick); err != nil {
		t.Fatal(err)
	}
	send(t, q, "plain")
	for _, d := range receive(t, q, 2, hold) {
		if d.SlotPending {
			t.Errorf("%s: no slot is known to be pending", d.Body)
		}
	}
}

// TestSlotIsCreatedBeforeSpecialRequest: also on a server that has not used the bucket,
// and in a cluster.
func TestSlotIsCreatedBeforeSpecialRequest(t *testing.T) {
	for name, option := range topologies(t) {
		t.Run(name, func(t *testing.T) {
			b := open(t, connect(t, option), &Options{Prefix: redistest.Prefix(t)})
			r, q := b.newReplyStore(0), openQueue(t, b)
			if r.LinkedTo(q) != (name != "cluster") {
				t.Errorf("linked: %v", r.LinkedTo(q))
			}
			client := reply.NewClient(mailbox.New[string]("orders", q, nil), r, &reply.Options[string]{})
			for range 2 * shard.Buckets {
				if _, err := client.Send(t.Context(), "plain"); err != nil {
					t.Fatal(err)
				}
			}
			for _, option := range []mailbox.SendOption{mailbox.WithDelay(time.Millisecond), mailbox.WithDedupKey("key")} {
				if _, err := client.Send(t.Context(), "special", option); err != nil {
					t.Fatal(err)
				}
			}
			for range 2*shard.Buckets + 2 {
				got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 1, Visibility: hold, Wait: soon})
				if err != nil || len(got) != 1 {
					t.Fatalf("got %d messages, %v", len(got), err)
				}
				id, _ := driver.SlotID(got[0].ReplyTo)
				if slot, err := r.Get(t.Context(), id); err != nil || slot.State != driver.SlotPending {
					t.Errorf("got %+v, %v", slot, err)
				}
			}
		})
	}
}

func TestRefusedSlotSendsNoRequest(t *testing.T) {
	b := open(t, connect(t, redistest.SharedServer(t).ClientOption()), &Options{Prefix: redistest.Prefix(t)})
	r, q := b.newReplyStore(shard.Buckets), openQueue(t, b) // one in each bucket
	k := listening(t, r, "id")
	mustRequest(t, q, r, "id")
	other := ""
	for i := 0; other == ""; i++ {
		if id := fmt.Sprint("id", i); r.bucket(id) == k {
			other = id
		}
	}
	wantCode(t, sendRequest(t, q, r, other, hold), driver.ErrFull)
	wantCode(t, sendRequest(t, q, r, "id without end", 0), driver.ErrInvalid)
	large, _, _ := r.CreateWithSend(t.Context(), other, hold)
	_, err := q.Send(large, []driver.Outgoing{{Body: make([]byte, q.Traits().MaxBodyBytes+1), ReplyTo: driver.SlotAddress(other)}})
	wantCode(t, driver.At(err, 0), driver.ErrTooLarge)
	wantStats(t, q, driver.Stats{Ready: 1})
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.waiting) != 1 {
		t.Errorf("%d slots have waiters, want 1", len(k.waiting))
	}
}

func TestLostAnswerSendsRequestOnce(t *testing.T) {
	here, there, proxy := desks(t)
	listening(t, here, "id")
	q := openQueue(t, here.backend)
	send(t, q, "the scripts are loaded")
	var cut atomic.Bool
	proxy.OnRequest(func(args []string) redistest.Action {
		if args[0] == "EVALSHA" && args[1] == shard.BatchScript.Sha && cut.CompareAndSwap(false, true) {
			return redistest.CutAnswerAt(0)
		}
		return redistest.Pass
	})
	mustRequest(t, q, here, "id")
	if !cut.Load() {
		t.Fatal("no answer was lost")
	}
	wantStats(t, q, driver.Stats{Ready: 2})
	if err := there.Resolve(t.Context(), "id", answerOf("yes")); err != nil {
		t.Fatal(err)
	}
	wantAnswer(t, here, "id", "yes")
}

func TestCancelledRequestLeavesNoSlot(t *testing.T) {
	here, there, proxy := desks(t)
	listening(t, here, "id")
	q := openQueue(t, here.backend)
	held, release := holdFirst(proxy, shard.BatchScript, func([]string) bool { return true })
	ctx, cancel := context.WithCancel(t.Context())
	sending, _, _ := here.CreateWithSend(ctx, "id", hold)
	done := make(chan error, 1)
	go func() {
		_, err := q.Send(sending, []driver.Outgoing{{ReplyTo: driver.SlotAddress("id")}})
		done <- err
	}()
	<-held
	cancel()
	if err := <-done; err != context.Canceled { //nolint:errorlint // the error of the context itself
		t.Errorf("got %v", err)
	}
	release()
	eventually(t, "the request, which was under way, to be ready", func() bool {
		stats, err := q.Stats(t.Context())
		return err == nil && stats == driver.Stats{Ready: 1}
	})
	eventually(t, "the slot is gone", func() bool {
		_, err := there.Get(t.Context(), "id")
		return errors.Is(err, driver.ErrNotFound)
	})
}
