package redisbox

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
)

// TestPausedQueueIsNotPolled: a receive that waits on a paused queue with ready messages sleeps
// until it is resumed by another process.
func TestPausedQueueIsNotPolled(t *testing.T) {
	server := redistest.Standalone(t)
	q := openQueue(t, open(t, connect(t, server.ClientOption()), nil))
	other := openQueue(t, open(t, connect(t, server.ClientOption()), nil))
	send(t, q, "a", "b")
	if err := other.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := make(chan []driver.Delivery, 1)
	go func() {
		deliveries, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 2, Visibility: hold, Wait: time.Minute})
		if err != nil {
			t.Error(err)
		}
		got <- deliveries
	}()
	eventually(t, "it listens", q.subscribed)
	for calls, tries := 2, 0; calls > 1; tries++ { // one is the refresh of the shard watcher, if it falls into this time
		if tries == 3 {
			t.Fatalf("%d calls in 3 seconds, again and again, while a receive waits on a paused queue", calls)
		}
		calls = 0
		stop, err := server.Monitor(t.Context(), func(line string) {
			if strings.Contains(strings.ToUpper(line), "\"EVALSHA\"") {
				calls++
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		stop()
	}
	resumed := time.Now()
	if err := other.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	if deliveries := <-got; len(deliveries) != 2 || time.Since(resumed) > soon {
		t.Errorf("got %d messages %v after the queue was resumed", len(deliveries), time.Since(resumed))
	}
}

// TestPauseChangesSchema: versions that know schema 2 alone refuse a paused queue.
func TestPauseChangesSchema(t *testing.T) {
	t.Parallel()
	b := open(t, connect(t, redistest.SharedServer(t).ClientOption()), &Options{Prefix: redistest.Prefix(t)})
	q := configured(t, b, driver.Config{Shards: 2})
	wantSchema := func(want string) {
		t.Helper()
		for _, s := range q.Shards {
			if got := field(t, b, s.Keys[0], "schema"); got != want {
				t.Errorf("shard %d has schema %s, want %s", s.Number, got, want)
			}
		}
	}
	wantSchema("2")
	if err := q.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantSchema("3")
	if err := b.ConfigureQueue(t.Context(), q.Name, driver.Config{MaxMessages: 5}); err != nil {
		t.Fatal(err)
	}
	wantSchema("3")
	if err := q.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantSchema("2")
}

// TestOppositePauseCallsLeaveShardsAlike: two processes pause and resume a queue at the same
// time, and one of them wins in all shards.
func TestOppositePauseCallsLeaveShardsAlike(t *testing.T) {
	t.Parallel()
	server, prefix := redistest.SharedServer(t), redistest.Prefix(t)
	b := open(t, connect(t, server.ClientOption()), &Options{Prefix: prefix})
	q := configured(t, b, driver.Config{Shards: 4})
	other, err := open(t, connect(t, server.ClientOption()), &Options{Prefix: prefix}).OpenQueue(t.Context(), q.Name)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		var calls sync.WaitGroup
		for _, call := range []func() error{
			func() error { return q.Pause(t.Context()) },
			func() error { return other.Resume(t.Context()) },
		} {
			calls.Go(func() {
				if err := call(); err != nil {
					t.Error(err)
				}
			})
		}
		calls.Wait()
		first := field(t, b, q.Shards[0].Keys[0], "schema")
		for _, s := range q.Shards {
			if got := field(t, b, s.Keys[0], "schema"); got != first {
				t.Fatalf("round %d: shard %d has schema %s, and the first has %s", i, s.Number, got, first)
			}
		}
	}
}
