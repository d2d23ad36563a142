package redisbox

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
	"github.com/mailboxmq/mailbox/redisbox/internal/shard"
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

// TestSendersAndConsumersShareCalls: a send, an ack and a receive that come while calls
// are under way go into one call. A special send does not wait for them.
func TestSendersAndConsumersShareCalls(t *testing.T) {
	t.Parallel()
	q := openQueue(t, open(t, connect(t, redistest.SharedServer(t).ClientOption()), &Options{Prefix: redistest.Prefix(t)}))
	send(t, q, "acked", "acked", "received")
	leased := receive(t, q, 2, hold)
	ack := func(d driver.Delivery) {
		if err := q.Ack(t.Context(), []driver.Receipt{d.Receipt}); err != nil {
			t.Error(err)
		}
	}

	shared, calls := q.Shards[0].Shared, make(chan int)
	expectCalls := func(underWay, waiting int) {
		t.Helper()
		eventually(t, fmt.Sprint(underWay, " calls are under way, ", waiting, " operations wait"), func() bool {
			shared.Mu.Lock()
			defer shared.Mu.Unlock()
			shared.Latest = time.Now().Add(time.Hour) // none is slow
			return shared.Calls == underWay && len(shared.Queued) == waiting
		})
	}
	expectCalls(0, 0)
	perform := shared.Perform
	shared.Perform = func(ctx context.Context, sess *shard.Session, batch []shard.Operation) {
		select {
		case calls <- len(batch):
		case <-t.Context().Done(): // the test has failed
		}
		perform(ctx, sess, batch)
	}
	var group sync.WaitGroup
	group.Go(func() { send(t, q, "under way") })
	expectCalls(1, 0)
	group.Go(func() { send(t, q, "waits for the first") })
	expectCalls(1, 1)
	group.Go(func() { ack(leased[0]) }) // the process also consumes
	expectCalls(2, 0)
	if _, err := q.Send(t.Context(), []driver.Outgoing{{Body: []byte("special"), Delay: hold}}); err != nil {
		t.Fatal(err)
	}
	group.Go(func() { send(t, q, "sent") })
	group.Go(func() { ack(leased[1]) })
	group.Go(func() { receive(t, q, 1, hold) })
	expectCalls(2, 3)
	for _, want := range []int{1, 2, 3} {
		if n := <-calls; n != want {
			t.Errorf("a call with %d operations, want %d", n, want)
		}
	}
	group.Wait()
	wantStats(t, q, driver.Stats{Ready: 3, Delayed: 1, InFlight: 1})
}
