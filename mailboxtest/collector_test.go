package mailboxtest_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/driver/drivertest"
	"github.com/mailboxmq/mailbox/mailboxtest"
	"github.com/mailboxmq/mailbox/membox"
)

func TestCollectorRemembersSentMessages(t *testing.T) {
	collector := mailboxtest.NewCollector(nil)
	orders := open(t, collector)
	bills, err := mailbox.Open(t.Context(), collector, "bills", &mailbox.Options[int]{})
	expectError(t, err, nil)
	defer bills.Close()

	mustSend(t, orders, "tea")
	bill, err := bills.Send(t.Context(), 350, mailbox.WithAttribute("k", "v"), mailbox.WithDelay(time.Minute))
	expectError(t, err, nil)
	mustSend(t, orders, "milk")

	sent := collector.Sent()
	expectEqual(t, "number of messages", len(sent), 3)
	expectSame(t, "second message", sent[1], mailboxtest.Collected{
		Queue: "bills", ID: bill.ID, Outgoing: driver.Outgoing{
			Body: []byte("350"), Attributes: map[string]string{"k": "v"}, Delay: time.Minute,
		},
	})
	bodies, err := mailboxtest.Bodies(mailbox.JSON[string](), collector.Sent("orders"))
	expectError(t, err, nil)
	expectSame(t, "orders", bodies, []string{"tea", "milk"})
	if _, err := mailboxtest.Bodies(mailbox.JSON[string](), sent); err == nil {
		t.Error("a number was decoded as text")
	}
	expectEqual(t, "messages to other queues", len(collector.Sent("elsewhere")), 0)
	collector.Reset()
	expectEqual(t, "messages after a reset", len(collector.Sent()), 0)
}

func TestCollectorSkipsFailedSends(t *testing.T) {
	backend := membox.New(&membox.Options{Defaults: driver.Config{MaxMessages: 2}})
	collector := mailboxtest.NewCollector(backend)
	m := open(t, collector)
	_, err := m.SendAll(t.Context(), []string{"a", "b", "c"})
	expectError(t, mailbox.ErrorAt(err, 2), mailbox.ErrFull)
	expectEqual(t, "messages", len(collector.Sent()), 2)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = m.Send(ctx, "d")
	expectError(t, err, context.Canceled)
	expectEqual(t, "messages", len(collector.Sent()), 2)
}

func TestCollectorKeepsCopies(t *testing.T) {
	collector := mailboxtest.NewCollector(nil)
	m, err := mailbox.Open(t.Context(), collector, "orders", &mailbox.Options[[]byte]{Codec: mailbox.Bytes()})
	expectError(t, err, nil)
	body, attributes := []byte("tea"), map[string]string{"k": "v"}
	_, err = m.Send(t.Context(), body, mailbox.WithAttributes(attributes))
	expectError(t, err, nil)
	copy(body, "XXX")
	attributes["k"] = "changed"
	sent := collector.Sent()[0]
	expectEqual(t, "body", string(sent.Body), "tea")
	expectEqual(t, "attribute", sent.Attributes["k"], "v")
}

func TestCollectorKeepsAbilitiesOfBackend(t *testing.T) {
	backend := membox.New(nil)
	collector := mailboxtest.NewCollector(backend)
	m := open(t, collector)
	first, err := m.Send(t.Context(), "tea", mailbox.WithDedupKey("k"))
	expectError(t, err, nil)
	_, err = m.Send(t.Context(), "tea", mailbox.WithDedupKey("k"))
	expectError(t, err, nil)
	sent := collector.Sent()
	expectEqual(t, "duplicate", sent[1].Duplicate && sent[1].ID == first.ID && !sent[0].Duplicate, true)

	expectError(t, mustReceive(t, m).DeadLetter(t.Context(), mailbox.ReasonFatal, nil), nil)
	for peeked, err := range m.Peek(t.Context(), mailbox.Query{}) {
		expectError(t, err, nil)
		expectEqual(t, "state", peeked.State, mailbox.StateDead)
	}
	expectError(t, backend.Close(), nil)
	_, err = mailbox.Open[string](t.Context(), collector, "orders", nil)
	expectError(t, err, mailbox.ErrClosed)
}

func TestDoublesPassEveryMethodOn(t *testing.T) {
	drivertest.RunWrapper(t, func(behind driver.Opener) driver.Opener { return mailboxtest.NewCollector(behind) })
	drivertest.RunWrapper(t, func(behind driver.Opener) driver.Opener { return mailboxtest.NewFaults(behind) })
}

func TestCollectorWaitsForMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		collector := mailboxtest.NewCollector(nil)
		m := open(t, collector)
		start := time.Now()
		for _, at := range []time.Duration{time.Second, time.Minute} {
			time.AfterFunc(at, func() { mustSend(t, m, at.String()) })
		}
		sent, err := collector.Wait(t.Context(), 2, "orders")
		expectError(t, err, nil)
		expectEqual(t, "messages", len(sent), 2)
		expectEqual(t, "time waited", time.Since(start), time.Minute)

		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		sent, err = collector.Wait(ctx, 3)
		expectEqual(t, "error", err, context.DeadlineExceeded)
		expectEqual(t, "messages", len(sent), 2)
	})
}
