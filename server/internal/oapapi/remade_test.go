package oapapi_test

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/server/internal/oapapi"
)

// TestGroupIsNotDividedInQueueThatWasCreatedAgain has a connection keep a queue open by its
// name that others delete and make with strict groups.
func TestGroupIsNotDividedInQueueThatWasCreatedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := membox.New(nil)
		d := newDaemon(t, backend, oapapi.Options{})
		r := newRemote(t, d, d.plainClient())
		other := d.client()
		defer other.Close()
		open := func(b driver.Opener) driver.Queue {
			q, err := b.OpenQueue(t.Context(), "orders")
			if err != nil {
				t.Fatal(err)
			}
			return q
		}
		q := open(r)
		if err := errors.Join(backend.DeleteQueue(t.Context(), "orders"),
			backend.ConfigureQueue(t.Context(), "orders", driver.Config{StrictGroups: true})); err != nil {
			t.Fatal(err)
		}
		// The other connection finds out, and this one hears nothing of it.
		again := open(other)
		if _, err := again.Stats(t.Context()); err != nil {
			if again = open(other); !again.Traits().StrictGroups {
				t.Fatalf("setup: %v, %+v", err, again.Traits())
			}
		}
		first := receiveTwice(t, q, again)
		// What was taken too much is at its place.
		if err := again.Ack(t.Context(), []driver.Receipt{first[0].Receipt}); err != nil {
			t.Fatal(err)
		}
		next, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 1, Visibility: time.Hour})
		if err != nil || len(next) != 1 || string(next[0].Body) != "b" {
			t.Errorf("the next one: %v, %v", next, err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
}

// receiveTwice has two receives wait when two messages of a group are sent, and
// returns what they get: one message, for one of them.
func receiveTwice(t *testing.T, q, sender driver.Queue) []driver.Delivery {
	t.Helper()
	// The second waits less long, so that one call is begun for both.
	got := make(chan []driver.Delivery, 2)
	var receiving sync.WaitGroup
	for _, wait := range []time.Duration{time.Minute, time.Second} {
		receiving.Go(func() {
			deliveries, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 1, Visibility: time.Hour, Wait: wait})
			if err != nil {
				t.Error(err)
			}
			got <- deliveries
		})
		synctest.Wait()
	}
	group := []driver.Outgoing{{Body: []byte("a"), Group: "g"}, {Body: []byte("b"), Group: "g"}}
	if _, err := sender.Send(t.Context(), group); err != nil {
		t.Fatal(err)
	}
	receiving.Wait()
	first := append(<-got, <-got...)
	if len(first) != 1 || string(first[0].Body) != "a" {
		t.Fatalf("two receives got %d messages of a group, want the first message, for one of them", len(first))
	}
	return first
}
