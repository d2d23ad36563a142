package mailboxtest_test

import (
	"errors"
	"fmt"
	"testing"

	"go.uber.org/goleak"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/driver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open opens the mailbox called orders.
func open(t *testing.T, backend driver.Opener) *mailbox.Mailbox[string] {
	t.Helper()
	orders, err := mailbox.Open[string](t.Context(), backend, "orders", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { orders.Close() })
	return orders
}

func mustSend(t *testing.T, m *mailbox.Mailbox[string], bodies ...string) {
	t.Helper()
	if _, err := m.SendAll(t.Context(), bodies); err != nil {
		t.Fatal(err)
	}
}

func mustReceive(t *testing.T, m *mailbox.Mailbox[string], options ...mailbox.ReceiveOption) *mailbox.Message[string] {
	t.Helper()
	messages, err := m.Receive(t.Context(), options...)
	if err != nil || len(messages) != 1 {
		t.Fatalf("received %d messages and error %v, want 1", len(messages), err)
	}
	return messages[0]
}

func expectError(t *testing.T, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("error is %v, want %v", err, target)
	}
}

func expectEqual[V comparable](t *testing.T, what string, got, want V) {
	t.Helper()
	if got != want {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

// expectSame compares values by how they print.
func expectSame(t *testing.T, what string, got, want any) {
	t.Helper()
	expectEqual(t, what, fmt.Sprintf("%q", got), fmt.Sprintf("%q", want))
}

func wantStats(t *testing.T, m *mailbox.Mailbox[string], want mailbox.Stats) {
	t.Helper()
	got, err := m.Stats(t.Context())
	expectError(t, err, nil)
	expectEqual(t, "stats", got, want)
}
