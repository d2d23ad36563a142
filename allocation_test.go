package mailbox_test

import (
	"context"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

func TestMailboxWithoutHooksAllocatesTwicePerCycle(t *testing.T) {
	volume.Measures(t)
	queue := newFake()
	sent, received := make([]driver.Sent, 1), []driver.Delivery{delivery("1", "tea")}
	queue.send = func(context.Context, []driver.Outgoing) ([]driver.Sent, error) { return sent, nil }
	queue.receive = func(context.Context, driver.ReceiveRequest) ([]driver.Delivery, error) { return received, nil }
	queue.calls = make([]string, 0, 100_000)
	m := mailbox.New("orders", queue, &mailbox.Options[[]byte]{Codec: mailbox.Bytes()})
	ctx, body, delay := t.Context(), []byte("tea"), time.Duration(len(t.Name()))
	// The message itself and the copy of its body. The average is rounded
	// down, so now and then a collected pool does not matter.
	allocations := testing.AllocsPerRun(1000, func() {
		if _, err := m.Send(ctx, body, mailbox.WithDelay(delay)); err != nil {
			t.Fatal(err)
		}
		messages, err := m.Receive(ctx, mailbox.WithVisibility(delay))
		if err != nil {
			t.Fatal(err)
		}
		if err := messages[0].Extend(ctx, delay); err != nil {
			t.Fatal(err)
		}
		if err := messages[0].Ack(ctx); err != nil {
			t.Fatal(err)
		}
	})
	if allocations > 2 {
		t.Errorf("a cycle takes %v allocations, want 2", allocations)
	}
}
