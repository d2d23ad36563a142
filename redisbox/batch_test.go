package redisbox

import (
	"bytes"
	"context"
	"crypto/rand"
	"sync"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/redistest"
)

func TestBodiesOfAnySizeSurvive(t *testing.T) {
	q := openQueue(t, open(t, connect(t, redistest.SharedServer(t).ClientOption()), &Options{Prefix: redistest.Prefix(t)}))
	for _, size := range []int{0, 1, 100, 511, 512, 513, 65_536, 1 << 20} {
		body := make([]byte, size)
		_, _ = rand.Read(body)
		send(t, q, string(body))
		got := receive(t, q, 1, hold)[0]
		if !bytes.Equal(got.Body, body) {
			t.Errorf("a body of %d bytes came back as another of %d", size, len(got.Body))
		}
		if err := q.Ack(t.Context(), []driver.Receipt{got.Receipt}); err != nil {
			t.Fatal(err)
		}
	}
	_, err := q.Send(t.Context(), []driver.Outgoing{{Body: make([]byte, 1<<20+1)}})
	wantCode(t, err, driver.ErrTooLarge)
}

// TestBatchLargerThanOneCallArrivesWhole: batches that need more than one call, both ways,
// arrive whole and in order.
func TestBatchLargerThanOneCallArrivesWhole(t *testing.T) {
	t.Parallel()
	q := openQueue(t, open(t, connect(t, redistest.SharedServer(t).ClientOption()), &Options{Prefix: redistest.Prefix(t)}))
	const n = 40
	large := make([]driver.Outgoing, n)
	for i := range large {
		large[i].Body = bytes.Repeat([]byte{byte(i)}, 1<<20)
	}
	if _, err := q.Send(t.Context(), large); err != nil {
		t.Fatal(err)
	}
	for next := 0; next < n; {
		got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: n, Visibility: hold})
		if err != nil || len(got) == 0 {
			t.Fatalf("after %d messages: got %d, error %v", next, len(got), err)
		}
		for _, d := range got {
			if len(d.Body) != 1<<20 || d.Body[0] != byte(next) {
				t.Fatalf("message %d: got %d bytes of %d", next, len(d.Body), d.Body[0])
			}
			next++
		}
	}
}

func TestBatchIsOneRoundTrip(t *testing.T) {
	const n = 200
	w := newWiretapped(t, driver.Config{})
	send(t, w, make([]string, n)...)
	w.wantRequests(t, "send", 1)
	got := receive(t, w, n, hold)
	w.wantRequests(t, "receive", 1)
	receipts := make([]driver.Receipt, n)
	for i, d := range got {
		receipts[i] = d.Receipt
	}
	if err := w.Ack(t.Context(), receipts); err != nil {
		t.Fatal(err)
	}
	w.wantRequests(t, "ack", 1)
}

// TestManyCallersShareCalls: operations that come while a call is under way go together
// in the next one.
func TestManyCallersShareCalls(t *testing.T) {
	const callers, each = 64, 20
	w := newWiretapped(t, driver.Config{})
	var group sync.WaitGroup
	for range callers {
		group.Go(func() {
			for range each {
				if _, err := w.Send(t.Context(), []driver.Outgoing{{Body: []byte("x")}}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	if calls := len(w.heard()); calls > callers*each/4 {
		t.Errorf("%d calls for %d sends by %d callers", calls, callers*each, callers)
	}
	wantStats(t, w, driver.Stats{Ready: callers * each})
}

// TestSendersAndConsumersShareCalls: a send, an ack and a receive that come while a call
// is under way go into one call. A special send does not wait for it.
func TestSendersAndConsumersShareCalls(t *testing.T) {
	t.Parallel()
	q := openQueue(t, open(t, connect(t, redistest.SharedServer(t).ClientOption()), &Options{Prefix: redistest.Prefix(t)}))
	send(t, q, "acked", "received")
	leased := receive(t, q, 1, hold)

	shared, calls := q.shards[0].shared, make(chan int)
	eventually(t, "no call is under way", func() bool { return shared.underWay() == 0 })
	perform := shared.perform
	shared.perform = func(ctx context.Context, sess *session, batch []operation) {
		select {
		case calls <- len(batch):
		case <-t.Context().Done(): // the test has failed
		}
		perform(ctx, sess, batch)
	}
	var group sync.WaitGroup
	group.Go(func() { send(t, q, "under way") })
	eventually(t, "a call is under way", func() bool { return shared.waiting() == 0 && shared.underWay() == 1 })
	shared.mu.Lock()
	shared.latest = time.Now().Add(time.Hour) // it is never slow
	shared.mu.Unlock()
	if _, err := q.Send(t.Context(), []driver.Outgoing{{Body: []byte("special"), Delay: hold}}); err != nil {
		t.Fatal(err)
	}
	group.Go(func() { send(t, q, "sent") })
	group.Go(func() {
		if err := q.Ack(t.Context(), []driver.Receipt{leased[0].Receipt}); err != nil {
			t.Error(err)
		}
	})
	group.Go(func() { receive(t, q, 1, hold) })
	eventually(t, "three operations wait", func() bool { return shared.waiting() == 3 })
	for _, want := range []int{1, 3} {
		if n := <-calls; n != want {
			t.Errorf("a call with %d operations, want %d", n, want)
		}
	}
	group.Wait()
	wantStats(t, q, driver.Stats{Ready: 2, Delayed: 1, InFlight: 1})
}

// waiting returns how many operations wait for the next call.
func (b *batcher) waiting() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.queued)
}

// underWay returns how many calls are under way.
func (b *batcher) underWay() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.calls
}
