package mailboxtest_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/mailboxtest"
)

func TestNullDropsWhatIsSent(t *testing.T) {
	m := open(t, mailboxtest.Null{})
	sent, err := m.SendAll(t.Context(), []string{"tea", "milk"}, mailbox.WithDedupKey("k"), mailbox.WithGroup("g"))
	expectError(t, err, nil)
	if sent[0].ID == sent[1].ID {
		t.Error("two messages have one id")
	}
	for _, s := range sent {
		if _, err := ulid.ParseStrict(s.ID); err != nil {
			t.Errorf("%q is not a ULID: %v", s.ID, err)
		}
	}
	messages, err := m.Receive(t.Context())
	expectError(t, err, nil)
	expectEqual(t, "messages", len(messages), 0)
	wantStats(t, m, mailbox.Stats{})
	removed, err := m.Purge(t.Context())
	expectError(t, err, nil)
	expectEqual(t, "removed", removed, 0)
}

func TestNullWaitsForWholeWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := open(t, mailboxtest.Null{})
		start := time.Now()
		_, err := m.Receive(t.Context(), mailbox.WithWait(time.Minute))
		expectError(t, err, nil)
		expectEqual(t, "time waited", time.Since(start), time.Minute)

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = m.Receive(ctx, mailbox.WithWait(time.Minute))
		expectEqual(t, "error", err, context.DeadlineExceeded)

		time.AfterFunc(time.Second, func() { m.Queue().Close() })
		_, err = m.Receive(t.Context(), mailbox.WithWait(time.Minute))
		expectError(t, err, mailbox.ErrClosed)
		_, err = m.Stats(t.Context())
		expectError(t, err, mailbox.ErrClosed)
		expectError(t, m.Close(), nil)
	})
}

func TestNullChecksLimits(t *testing.T) {
	m := open(t, mailboxtest.Null{})
	queue := m.Queue()
	_, err := queue.Send(t.Context(), []driver.Outgoing{{}, {Body: []byte(strings.Repeat("x", driver.DefaultMaxBodyBytes+1))}})
	expectError(t, driver.At(err, 0), nil)
	expectError(t, driver.At(err, 1), mailbox.ErrTooLarge)
	_, err = queue.Receive(t.Context(), driver.ReceiveRequest{Max: 0})
	expectError(t, err, mailbox.ErrInvalid)
	_, err = mailbox.Open[string](t.Context(), mailboxtest.Null{}, "", nil)
	expectError(t, err, mailbox.ErrInvalid)
	expectError(t, queue.Ack(t.Context(), make([]driver.Receipt, 1)), mailbox.ErrReceiptExpired)
	expectError(t, queue.Nack(t.Context(), make([]driver.Nack, 1)), mailbox.ErrReceiptExpired)
	_, err = queue.Extend(t.Context(), make([]driver.Extension, 1))
	expectError(t, err, mailbox.ErrReceiptExpired)
	expectError(t, queue.Ack(t.Context(), nil), nil)
	_, err = m.PurgeDead(t.Context())
	expectError(t, err, mailbox.ErrUnsupported)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	expectEqual(t, "error", queue.Ack(ctx, make([]driver.Receipt, 1)), context.Canceled)
	_, err = mailboxtest.Null{}.OpenQueue(ctx, "orders")
	expectEqual(t, "error", err, context.Canceled)
}
