package broker_test

import (
	"context"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

func TestInFlightLimitHolds(t *testing.T) {
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
			t.Error("waiting receives have taken all the room")
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

// TestEveryResourceIsBounded compares every bound of a queue with the daemon's
// default for it: of one that was only used, and of one that was configured.
func TestEveryResourceIsBounded(t *testing.T) {
	defaults := driver.Config{
		Shards: 2, MaxDeliveries: 5, MaxMessages: 10, MaxBytes: 1000, MaxInFlight: 7, MaxDead: 20, DedupWindow: time.Minute, DedupMax: 30,
		RetainReady: driver.Retention{Age: time.Hour, Count: 40}, RetainDead: driver.Retention{Age: 2 * time.Hour, Count: 50}, MaxHold: 3 * time.Hour, TTL: 4 * time.Hour, PriorityAging: 5 * time.Hour,
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

func TestRulesReplaceLimitsOfSurface(t *testing.T) {
	b := memory(t, broker.Limits{MaxPayloadBytes: 10, MinVisibility: time.Second})
	strict := b.as("")
	own := strict.Under(broker.Rules{MaxPayloadBytes: 20, AnyVisibility: true})
	long := []broker.Outgoing{{Outgoing: driver.Outgoing{Body: make([]byte, 20)}}}
	_, err := strict.Send(t.Context(), "orders", long)
	expectCode(t, driver.At(err, 0), driver.ErrTooLarge, "by the rules of all")
	if _, err := own.Send(t.Context(), "orders", long); err != nil {
		t.Errorf("by its own: %v", err)
	}
	_, err = own.Send(t.Context(), "orders", []broker.Outgoing{{Outgoing: driver.Outgoing{Body: make([]byte, 21)}}})
	expectCode(t, driver.At(err, 0), driver.ErrTooLarge, "beyond them")
	_, err = strict.Receive(t.Context(), "orders", driver.ReceiveRequest{Max: 1})
	expectCode(t, err, driver.ErrInvalid, "no visibility, by the rules of all")
	if got, err := own.Receive(t.Context(), "orders", driver.ReceiveRequest{Max: 1}); err != nil || len(got) != 1 {
		t.Errorf("no visibility, by its own: %d, %v", len(got), err)
	}
}

func TestDaemonCallerMayDoEverythingUntilExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory(t, broker.Limits{})
		itself, err := b.Daemon("acme")
		if err != nil {
			t.Fatal(err)
		}
		b.send(b.as("acme"), "orders", "x")
		if stats, err := itself.Stats(t.Context(), "orders"); err != nil || stats.Ready != 1 {
			t.Errorf("got %+v, %v", stats, err)
		}
		b.send(b.as(""), "invoices", "x")
		var places []broker.TenantQueue
		for place, err := range b.AllQueues(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			places = append(places, place)
		}
		if want := []broker.TenantQueue{{Queue: "invoices"}, {Tenant: "acme", Queue: "orders"}}; !slices.Equal(places, want) {
			t.Errorf("got %v", places)
		}
		time.Sleep(time.Hour)
		_, err = itself.Stats(t.Context(), "orders")
		expectCode(t, err, driver.ErrUnauthenticated, "an hour later")
	})
}

func TestMoveNeedsTokenForBothQueues(t *testing.T) {
	b := memory(t, broker.Limits{})
	root := b.as("acme")
	for _, body := range []string{"a", "b", "c"} {
		b.send(root, "dead", body)
	}
	b.send(root, "orders", "x")
	only := func(queue string, operation capability.Operation) broker.Caller {
		return b.as("acme", capability.Operations(operation), capability.Queues(capability.Queue(queue)))
	}
	for what, c := range map[string]broker.Caller{
		"a token that may only send": only("orders", capability.OpSend), "a token that may not send": only("dead", capability.OpDLQ),
	} {
		_, err := c.Move(t.Context(), "dead", "orders", 0)
		expectCode(t, err, driver.ErrForbidden, what)
	}
	if moved, err := root.Move(t.Context(), "dead", "orders", 2); err != nil || moved != 2 {
		t.Errorf("moved %d, %v", moved, err)
	}
	got := b.receive(root, "orders", 10)
	if len(got) != 3 || string(got[2].Body) != "b" {
		t.Errorf("got %d: what was moved is not taken for damaged", len(got))
	}
	_, err := root.Move(t.Context(), "dead", "nowhere", 0)
	if !broker.NoTarget(err) {
		t.Errorf("no such target: %v", err)
	}
	_, err = root.Move(t.Context(), "none", "orders", 0)
	expectCode(t, err, driver.ErrNotFound, "no such source")
	if can, err := root.CanMove(t.Context(), "dead"); err != nil || !can {
		t.Errorf("it can: %v, %v", can, err)
	}
}

func TestLateAckEndsLeaseOfOtherToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory(t, broker.Limits{})
		c := b.as("")
		b.send(c, "orders", "x")
		take := func() broker.Delivery {
			t.Helper()
			got, err := c.Receive(t.Context(), "orders", driver.ReceiveRequest{Max: 1, Visibility: time.Second})
			if err != nil || len(got) != 1 {
				t.Fatalf("got %d, %v", len(got), err)
			}
			return got[0]
		}
		first := take()
		time.Sleep(time.Second)
		took := time.Now()
		second := take()
		if taken, ok := c.Taken("orders", second.Receipt); !ok || taken.Message != second.ID || !taken.At.Equal(took) {
			t.Errorf("got %+v, %v", taken, ok)
		}
		if _, ok := c.Taken("invoices", second.Receipt); ok {
			t.Error("the receipt is of another queue")
		}
		expectCode(t, driver.At(c.Ack(t.Context(), "orders", []string{first.Receipt}), 0), driver.ErrReceiptExpired, "an ack with the first receipt")
		if err := c.AckLate(t.Context(), "orders", []string{first.Receipt}); err != nil {
			t.Errorf("a late ack with it: %v", err)
		}
		expectCode(t, driver.At(c.Ack(t.Context(), "orders", []string{second.Receipt}), 0), driver.ErrReceiptExpired, "an ack with the second")
		if n := b.InFlight(); n != 0 {
			t.Errorf("%d are still out", n)
		}
	})
}
