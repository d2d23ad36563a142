package broker_test

import (
	"context"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

func TestTheCeilingOfMessagesInFlightHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory(t, broker.Limits{MaxInFlight: 5})
		c := b.as("")
		for range 10 {
			b.send(c, "orders", "a")
			b.send(c, "invoices", "b")
		}
		held := append(b.receive(c, "orders", 4), b.receive(c, "invoices", 4)...)
		if len(held) != 5 || b.InFlight() != 5 {
			t.Fatalf("%d messages were handed out and %d count, want 5", len(held), b.InFlight())
		}
		_, err := c.Receive(t.Context(), "orders", driver.ReceiveRequest{Max: 1, Visibility: time.Minute})
		expectCode(t, err, driver.ErrFull, "receive at the ceiling")
		if driver.RetryAfter(err) <= 0 {
			t.Error("it does not say when to come back")
		}
		if err := c.Ack(t.Context(), "orders", []string{held[0].Receipt}); err != nil {
			t.Fatal(err)
		}
		if got := b.receive(c, "invoices", 9); len(got) != 1 {
			t.Errorf("after one ack: got %d messages, want 1", len(got))
		}
		time.Sleep(time.Minute) // all leases end
		if got := b.receive(c, "orders", 9); len(got) != 5 {
			t.Errorf("after all leases ended: got %d messages, want 5", len(got))
		}
	})
}

func TestWaitingReceiversLeaveRoomForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory(t, broker.Limits{MaxInFlight: 64})
		c := b.as("")
		b.make(c, "empty")
		ctx, cancel := context.WithCancel(t.Context())
		var waiting sync.WaitGroup
		for range 20 {
			waiting.Go(func() {
				_, _ = c.Receive(ctx, "empty", driver.ReceiveRequest{Max: 10, Visibility: time.Minute, Wait: time.Hour})
			})
		}
		synctest.Wait()
		b.send(c, "orders", "a")
		if got := b.receive(c, "orders", 1); len(got) != 1 {
			t.Error("those who wait have taken all the room")
		}
		cancel()
		waiting.Wait()
		if n := b.InFlight(); n != 1 {
			t.Errorf("%d messages count as out, want 1", n)
		}
	})
}

func TestDrainingRefusesWritesBeforeReadsAndSettlingLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory(t, broker.Limits{})
		c := b.as("")
		b.send(c, "orders", "a")
		b.send(c, "orders", "b")
		b.make(c, "empty")
		first := b.receive(c, "orders", 1)
		ended := make(chan error, 1)
		go func() {
			_, err := c.Receive(t.Context(), "empty", driver.ReceiveRequest{Max: 1, Visibility: time.Minute, Wait: time.Hour})
			ended <- err
		}()
		synctest.Wait()
		b.SetState(broker.StateReadOnly)
		_, err := c.Send(t.Context(), "orders", say("c"))
		expectCode(t, err, driver.ErrUnavailable, "send while draining")
		if driver.RetryAfter(err) <= 0 {
			t.Error("it does not say when to come back")
		}
		second := b.receive(c, "orders", 1)
		b.SetState(broker.StateSettling)
		if err := <-ended; err != nil {
			t.Errorf("a receive that waited: %v", err)
		}
		_, err = c.Receive(t.Context(), "orders", driver.ReceiveRequest{Max: 1, Visibility: time.Minute})
		expectCode(t, err, driver.ErrUnavailable, "receive when only settling is left")
		if err := c.Ack(t.Context(), "orders", []string{first[0].Receipt, second[0].Receipt}); err != nil {
			t.Errorf("settling to the end: %v", err)
		}
	})
}

// TestNothingIsWithoutBounds compares every bound of a queue with the daemon's
// default for it: of one that was only used, and of one that was configured.
func TestNothingIsWithoutBounds(t *testing.T) {
	defaults := driver.Config{
		Shards: 2, MaxDeliveries: 5, MaxMessages: 10, MaxBytes: 1000, MaxInFlight: 7, MaxDead: 20, DedupWindow: time.Minute, DedupMax: 30,
		RetainReady: driver.Retention{Age: time.Hour, Count: 40}, RetainDead: driver.Retention{Age: 2 * time.Hour, Count: 50}, MaxHold: 3 * time.Hour,
	}
	expectNumbers(t, reflect.ValueOf(defaults), "Config")
	backend := membox.New(&membox.Options{Defaults: defaults})
	defer backend.Close()
	b := newBench(t, backend, broker.Limits{})
	c := b.as("")
	b.send(c, "used", "a")
	b.configure(c, "configured", driver.Config{MaxDeliveries: 2})
	for queue, attempts := range map[string]int{"used": 5, "configured": 2} {
		want := defaults
		want.MaxDeliveries = attempts
		if config, err := c.Config(t.Context(), queue); err != nil || config != want {
			t.Errorf("%s: got %+v, %v, want %+v", queue, config, err, want)
		}
	}
}

// expectNumbers checks that every number in a struct is set, so that a bound that is
// added to it later is added to the test.
func expectNumbers(t *testing.T, v reflect.Value, name string) {
	t.Helper()
	for i := range v.NumField() {
		field := v.Field(i)
		what := name + "." + v.Type().Field(i).Name
		switch {
		case field.Kind() == reflect.Struct:
			expectNumbers(t, field, what)
		case field.CanInt() && field.Int() == 0:
			t.Errorf("the test sets no %s", what)
		}
	}
}

func TestNacksBackOffWithJitter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory(t, broker.Limits{BackoffBase: time.Second, BackoffMax: 4 * time.Second})
		c := b.as("")
		if err := c.Configure(t.Context(), "orders", driver.Config{MaxDeliveries: driver.Off}); err != nil {
			t.Fatal(err)
		}
		id := b.send(c, "orders", "a")
		for attempt := 1; attempt <= 6; attempt++ {
			got, err := c.Receive(t.Context(), "orders", driver.ReceiveRequest{Max: 1, Visibility: time.Minute, Wait: time.Hour})
			if err != nil || len(got) != 1 {
				t.Fatal(got, err)
			}
			began := time.Now()
			if err := c.NackOne(t.Context(), broker.Target{ID: id}, broker.Nack{Backoff: true}); err != nil {
				t.Fatal(err)
			}
			for peeked, err := range c.Peek(t.Context(), "orders", driver.Query{ID: id}) {
				if err != nil {
					t.Fatal(err)
				}
				bound := min(4*time.Second, time.Second<<attempt)
				if peeked.State == driver.StateDelayed && peeked.DueAt.Sub(began) > bound+time.Millisecond {
					t.Errorf("attempt %d is due after %v, want at most %v", attempt, peeked.DueAt.Sub(began), bound)
				}
			}
		}
	})
}
