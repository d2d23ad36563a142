package broker_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

func TestASurfaceCanHaveRulesOfItsOwn(t *testing.T) {
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

func TestTheDaemonItselfMayDoEverythingForAWhile(t *testing.T) {
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

func TestMovingNeedsTheRightsOfBothEnds(t *testing.T) {
	b := memory(t, broker.Limits{})
	root := b.as("acme")
	for _, body := range []string{"a", "b", "c"} {
		b.send(root, "dead", body)
	}
	b.send(root, "orders", "x")
	only := func(queue string, operation capability.Operation) broker.Caller {
		return b.as("acme", capability.Operations(operation), capability.Topics(capability.Topic(queue)))
	}
	for what, c := range map[string]broker.Caller{
		"who may only send": only("orders", capability.OpSend), "who may not send": only("dead", capability.OpDLQ),
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

func TestALateAckEndsWhatOthersHoldNow(t *testing.T) {
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
