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
	wantError(t, err, nil)
	if sent[0].ID == sent[1].ID {
		t.Error("two messages have one id")
	}
	for _, s := range sent {
		if _, err := ulid.ParseStrict(s.ID); err != nil {
			t.Errorf("%q is not a ULID: %v", s.ID, err)
		}
	}
	messages, err := m.Receive(t.Context())
	wantError(t, err, nil)
	wantEqual(t, "messages", len(messages), 0)
	wantStats(t, m, mailbox.Stats{})
	removed, err := m.Purge(t.Context())
	wantError(t, err, nil)
	wantEqual(t, "removed", removed, 0)
}

func TestNullWaitsAsLongAsItIsAskedTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := open(t, mailboxtest.Null{})
		start := time.Now()
		_, err := m.Receive(t.Context(), mailbox.WithWait(time.Minute))
		wantError(t, err, nil)
		wantEqual(t, "time waited", time.Since(start), time.Minute)

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = m.Receive(ctx, mailbox.WithWait(time.Minute))
		wantEqual(t, "error", err, context.DeadlineExceeded)

		time.AfterFunc(time.Second, func() { m.Queue().Close() })
		_, err = m.Receive(t.Context(), mailbox.WithWait(time.Minute))
		wantError(t, err, mailbox.ErrClosed)
		_, err = m.Stats(t.Context())
		wantError(t, err, mailbox.ErrClosed)
		wantError(t, m.Close(), nil)
	})
}

func TestNullHoldsToTheLimits(t *testing.T) {
	m := open(t, mailboxtest.Null{})
	queue := m.Queue()
	_, err := queue.Send(t.Context(), []driver.Outgoing{{}, {Body: []byte(strings.Repeat("x", driver.DefaultMaxBodyBytes+1))}})
	wantError(t, driver.At(err, 0), nil)
	wantError(t, driver.At(err, 1), mailbox.ErrTooLarge)
	_, err = queue.Receive(t.Context(), driver.ReceiveRequest{Max: 0})
	wantError(t, err, mailbox.ErrInvalid)
	_, err = mailbox.Open[string](t.Context(), mailboxtest.Null{}, "", nil)
	wantError(t, err, mailbox.ErrInvalid)
	wantError(t, queue.Ack(t.Context(), make([]driver.Receipt, 1)), mailbox.ErrReceiptExpired)
	wantError(t, queue.Nack(t.Context(), make([]driver.Nack, 1)), mailbox.ErrReceiptExpired)
	_, err = queue.Extend(t.Context(), make([]driver.Extension, 1))
	wantError(t, err, mailbox.ErrReceiptExpired)
	wantError(t, queue.Ack(t.Context(), nil), nil)
	_, err = m.PurgeDead(t.Context())
	wantError(t, err, mailbox.ErrUnsupported)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	wantEqual(t, "error", queue.Ack(ctx, make([]driver.Receipt, 1)), context.Canceled)
	_, err = mailboxtest.Null{}.OpenQueue(ctx, "orders")
	wantEqual(t, "error", err, context.Canceled)
}
