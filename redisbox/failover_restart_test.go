package redisbox_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/history"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
)

// These tests kill a single server and start it again. Handles stay open: repeating a
// call is all that a caller has to do.

// persistently repeats a call while the backend is unavailable.
func persistently(t *testing.T, what string, call func() error) {
	t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for {
		err := call()
		switch {
		case err == nil:
			return
		case !errors.Is(err, driver.ErrUnavailable):
			t.Errorf("%s: %v", what, err)
			return
		case time.Now().After(deadline):
			t.Errorf("%s does not recover: %v", what, err)
			return
		}
		rest(t.Context(), 10*time.Millisecond)
	}
}

// openNew opens a queue with a unique name.
func openNew(t *testing.T, opener driver.Opener) driver.Queue {
	t.Helper()
	return openNamed(t, opener, redistest.Prefix(t)+"queue")
}

// openNamed opens a queue until the test ends.
func openNamed(t *testing.T, opener driver.Opener, name string) driver.Queue {
	t.Helper()
	q, err := opener.OpenQueue(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	})
	return q
}

func TestLongPollSurvivesRestart(t *testing.T) {
	server := redistest.Standalone(t, redistest.AppendOnly(redistest.FsyncAlways))
	name := redistest.Prefix(t) + "queue"
	q := openNamed(t, openBackend(t, server.ClientOption(), nil), name)
	received := make(chan driver.Delivery, 1)
	go func() {
		defer close(received)
		persistently(t, "receive", func() error {
			deliveries, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 1, Visibility: time.Minute, Wait: 30 * time.Second})
			if err == nil && len(deliveries) == 1 {
				received <- deliveries[0]
			}
			return err
		})
	}()
	rest(t.Context(), 200*time.Millisecond) // until it waits
	server.Kill()
	rest(t.Context(), 200*time.Millisecond) // until it has lost the connection
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	// Another process sends, so that only the server can wake the receiver.
	other := openNamed(t, openBackend(t, server.ClientOption(), nil), name)
	sent := time.Now()
	if _, err := other.Send(t.Context(), []driver.Outgoing{{Body: []byte("after")}}); err != nil {
		t.Fatal(err)
	}
	d, ok := <-received
	if !ok || string(d.Body) != "after" {
		t.Fatalf("the long poll got %q", d.Body)
	}
	if took := time.Since(sent); took > 25*time.Second { // without a signal it would take shard.FallbackInterval
		t.Errorf("the long poll was woken after %v", took)
	}
}

func TestBatchesSurviveRestarts(t *testing.T) {
	t.Parallel()
	server := redistest.Standalone(t, redistest.AppendOnly(redistest.FsyncAlways))
	recorder := history.NewRecorder("")
	q := recorder.Queue(openNew(t, openBackend(t, server.ClientOption(), nil)))
	const producers, size = 4, 100
	var sent atomic.Int64
	var enough atomic.Bool
	var producing sync.WaitGroup
	for p := range producers {
		producing.Go(func() {
			for next := 0; !enough.Load(); {
				batch := make([]driver.Outgoing, size)
				for i := range batch {
					body := fmt.Sprintf("%d-%d", p, next)
					batch[i] = driver.Outgoing{Body: []byte(body), DedupKey: body}
					next++
				}
				persistently(t, "send", func() error {
					_, err := q.Send(t.Context(), batch)
					return err
				})
				sent.Add(size)
			}
		})
	}
	for range 3 {
		rest(t.Context(), 200*time.Millisecond)
		recorder.Crash(func() {
			server.Kill()
			if err := server.Restart(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	enough.Store(true)
	producing.Wait()
	final, err := history.Observe(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	if int64(final.Stats.Ready) != sent.Load() {
		t.Errorf("%d messages were acknowledged, there are %+v", sent.Load(), final.Stats)
	}
	report := history.Check(recorder.History(), final, history.Terms{Traits: q.Traits()})
	if err := report.Err(); err != nil {
		t.Error(err)
	}
}

// A server without persistence comes back empty: its messages are lost, as its
// durability says, but handles continue to work.
func TestHandlesSurviveServerWithoutPersistence(t *testing.T) {
	server := redistest.Standalone(t)
	q := openNew(t, openBackend(t, server.ClientOption(), nil))
	if d := q.Traits().Durability; d != driver.DurabilityNone {
		t.Errorf("it claims durability %q", d)
	}
	if _, err := q.Send(t.Context(), []driver.Outgoing{{Body: []byte("before")}}); err != nil {
		t.Fatal(err)
	}
	server.Kill()
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	persistently(t, "send", func() error {
		_, err := q.Send(t.Context(), []driver.Outgoing{{Body: []byte("after"), DedupKey: "after"}})
		return err
	})
	deliveries, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 10, Visibility: time.Minute})
	if err != nil || len(deliveries) != 1 || string(deliveries[0].Body) != "after" {
		t.Errorf("got %v, %v", deliveries, err)
	}
}
