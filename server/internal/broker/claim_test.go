package broker_test

import (
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// TestClaimedDeadSourceIsNotMoveTarget sends a message with the attribute that a backend
// sets on a dead letter, and moves it without a target.
func TestClaimedDeadSourceIsNotMoveTarget(t *testing.T) {
	backend := membox.New(nil)
	t.Cleanup(func() { _ = backend.Close() })
	b := newBench(t, backend, broker.Limits{})
	const reserved = "mailbox.revocations"
	homes := []string{"orders", "~other~orders", "~acme~orders", broker.Reserved(reserved)}
	for _, home := range homes {
		if err := backend.ConfigureQueue(t.Context(), home, driver.Config{Shards: 1}); err != nil {
			t.Fatal(err)
		}
	}
	for _, tenant := range []string{"acme", ""} {
		c := b.as(tenant)
		for _, home := range append(homes, "{sent}orders", "no such queue") {
			message := driver.Outgoing{Body: []byte(home), Attributes: map[string]string{driver.AttributeDeadSource: home}}
			if _, err := c.Send(t.Context(), "orders.dead", []broker.Outgoing{{Outgoing: message}}); err != nil {
				t.Fatal(err)
			}
		}
		if moved, err := c.Move(t.Context(), "orders.dead", "", 0); err != nil || moved != 0 {
			t.Errorf("tenant %q: %d messages went where they claim to come from, %v", tenant, moved, err)
		}
		got, err := c.Receive(t.Context(), "orders.dead", driver.ReceiveRequest{Max: 10, Visibility: time.Minute})
		if err != nil || len(got) != len(homes)+2 {
			t.Errorf("tenant %q: %d messages are left, %v", tenant, len(got), err)
		}
		for i := range got {
			if claim := got[i].Attributes[driver.AttributeDeadSource]; claim != string(got[i].Body) {
				t.Errorf("tenant %q: sent with %q, and received with %q", tenant, got[i].Body, claim)
			}
		}
	}
}

// TestDeadLetterMovesHomeDespiteClaimedSource dead-letters a message whose sender claimed
// another source.
func TestDeadLetterMovesHomeDespiteClaimedSource(t *testing.T) {
	b := memory(t, broker.Limits{})
	c := b.as("acme")
	if err := c.Configure(t.Context(), "orders.dead", driver.Config{}); err != nil {
		t.Fatal(err)
	}
	if err := c.Configure(t.Context(), "orders", driver.Config{MaxDeliveries: 1, DeadLetterTo: "orders.dead"}); err != nil {
		t.Fatal(err)
	}
	message := driver.Outgoing{Body: []byte("x"), Attributes: map[string]string{driver.AttributeDeadSource: "elsewhere"}}
	if _, err := c.Send(t.Context(), "orders", []broker.Outgoing{{Outgoing: message}}); err != nil {
		t.Fatal(err)
	}
	got := b.receive(c, "orders", 1)
	if err := c.Nack(t.Context(), "orders", []broker.Nack{{Receipt: got[0].Receipt}}); err != nil {
		t.Fatal(err)
	}
	if moved, err := c.Move(t.Context(), "orders.dead", "", 0); err != nil || moved != 1 {
		t.Fatalf("%d messages moved, %v", moved, err)
	}
	if got := b.receive(c, "orders", 1); len(got) != 1 || string(got[0].Body) != "x" {
		t.Errorf("got %v", got)
	}
}
