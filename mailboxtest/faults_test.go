package mailboxtest_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/mailboxtest"
	"github.com/mailboxmq/mailbox/membox"
)

func newFaults(t *testing.T) (*mailboxtest.Faults, *mailbox.Mailbox[string]) {
	t.Helper()
	faults := mailboxtest.NewFaults(nil)
	t.Cleanup(func() { faults.Close() })
	return faults, open(t, faults)
}

// calls returns a call of each operation.
func calls(t *testing.T, m *mailbox.Mailbox[string]) map[string]func() error {
	queue := m.Queue()
	ctx := t.Context()
	return map[string]func() error{
		"send":               func() error { _, err := queue.Send(ctx, nil); return err },
		"receive":            func() error { _, err := queue.Receive(ctx, driver.ReceiveRequest{Max: 1}); return err },
		"ack":                func() error { return queue.Ack(ctx, nil) },
		"nack":               func() error { return queue.Nack(ctx, nil) },
		"extend":             func() error { _, err := queue.Extend(ctx, nil); return err },
		"purge":              func() error { _, err := queue.Purge(ctx); return err },
		"stats":              func() error { _, err := queue.Stats(ctx); return err },
		"dead-letter":        func() error { return queue.DeadLetter(ctx, nil) },
		"redrive":            func() error { _, err := queue.Redrive(ctx, nil, 0); return err },
		"discard":            func() error { _, err := queue.Discard(ctx, nil); return err },
		"purge dead letters": func() error { _, err := queue.PurgeDead(ctx); return err },
		"move":               func() error { _, err := queue.Move(ctx, "", 1); return err },
		"ack late":           func() error { return queue.AckLate(ctx, nil) },
		"extend late":        func() error { return queue.ExtendLate(ctx, nil) },
		"forget dedup keys":  func() error { return queue.ForgetDedup(ctx) },
		"pause":              func() error { return queue.Pause(ctx) },
		"throttle": func() error {
			err := queue.Throttle(ctx, "g", 0)
			if errors.Is(err, driver.ErrUnsupported) { // it was not prevented
				return nil
			}
			return err
		},
		"edit": func() error {
			_, err := queue.Edit(ctx, "id", driver.Edit{Ready: true})
			if errors.Is(err, driver.ErrNotFound) { // it was not prevented
				return nil
			}
			return err
		},
		"resume": func() error { return queue.Resume(ctx) },
		"usage":  func() error { _, err := queue.Usage(ctx); return err },
		"fire":   func() error { _, _, err := queue.Fire(ctx, driver.Firing{Name: "a", Revision: 1}); return err },
		"list schedules": func() (last error) {
			for _, last = range queue.Schedules(ctx, "") {
			}
			return last
		},
		"dead-letters": func() (last error) {
			for _, last = range queue.DeadLetters(ctx) {
			}
			return last
		},
		"peek": func() (last error) {
			for _, last = range queue.Peek(ctx, driver.Query{}) {
			}
			return last
		},
	}
}

func TestFaultHitsOnlyItsOperation(t *testing.T) {
	faults, m := newFaults(t)
	all := calls(t, m)
	for op := range all {
		for _, late := range []bool{false, true} {
			remove := faults.Add(mailboxtest.Fault{Op: op, Err: io.ErrUnexpectedEOF, Late: late})
			for other, call := range all {
				if other == op {
					expectEqual(t, string(op), call(), io.ErrUnexpectedEOF)
					continue
				}
				expectError(t, call(), nil)
			}
			remove()
			expectError(t, all[op](), nil)
		}
	}
	for op := range all {
		expectEqual(t, "calls of "+string(op), faults.Calls(op), 2*len(all)+2)
	}
	expectEqual(t, "calls", faults.Calls(""), 1+len(all)*(2*len(all)+2))
}

func TestFaultWithoutOperationHitsAll(t *testing.T) {
	faults, m := newFaults(t)
	faults.Add(mailboxtest.Fault{Err: mailbox.ErrUnavailable})
	for op, call := range calls(t, m) {
		err := call()
		if e, ok := errors.AsType[*mailbox.Error](err); !ok || e.Code != mailbox.ErrUnavailable || e.Op != string(op) || e.Queue != "orders" {
			t.Errorf("error of %s is %#v", op, err)
		}
	}
	_, err := mailbox.Open[string](t.Context(), faults, "orders", nil)
	expectError(t, err, mailbox.ErrUnavailable)
	faults.Clear()
	for _, call := range calls(t, m) {
		expectError(t, call(), nil)
	}
	expectError(t, m.Close(), nil)
}

func TestFaultHitsOnlyItsQueue(t *testing.T) {
	faults, orders := newFaults(t)
	bills, err := mailbox.Open[string](t.Context(), faults, "bills", nil)
	expectError(t, err, nil)
	defer bills.Close()
	faults.Add(mailboxtest.Fault{Queue: "bills", Err: mailbox.ErrUnavailable})
	_, err = orders.Send(t.Context(), "tea")
	expectError(t, err, nil)
	_, err = bills.Send(t.Context(), "tea")
	expectError(t, err, mailbox.ErrUnavailable)
}

func TestFaultHitsEveryNthCall(t *testing.T) {
	faults, m := newFaults(t)
	faults.Add(mailboxtest.Fault{Op: "send", Err: mailbox.ErrFull, Every: 3, Times: 2})
	var failed []int
	for i := range 12 {
		if _, err := m.Send(t.Context(), "tea"); err != nil {
			failed = append(failed, i+1)
		}
	}
	expectSame(t, "calls that failed", failed, []int{3, 6})
	wantStats(t, m, mailbox.Stats{Ready: 10})
}

func TestLateFaultLosesOnlyTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		faults, m := newFaults(t)
		late := func(op string) {
			faults.Clear()
			faults.Add(mailboxtest.Fault{Op: op, Err: mailbox.ErrUnavailable, Late: true})
		}
		late("send")
		_, err := m.Send(t.Context(), "tea")
		expectError(t, err, mailbox.ErrUnavailable)
		wantStats(t, m, mailbox.Stats{Ready: 1})

		late("receive")
		_, err = m.Receive(t.Context(), mailbox.WithVisibility(time.Minute))
		expectError(t, err, mailbox.ErrUnavailable)
		wantStats(t, m, mailbox.Stats{InFlight: 1})
		faults.Clear()
		time.Sleep(time.Minute)
		message := mustReceive(t, m)

		late("ack")
		expectError(t, message.Ack(t.Context()), mailbox.ErrUnavailable)
		wantStats(t, m, mailbox.Stats{})
		faults.Clear()
		expectError(t, message.Ack(t.Context()), mailbox.ErrReceiptExpired)

		late("open")
		_, err = mailbox.Open[string](t.Context(), faults, "orders", nil)
		expectError(t, err, mailbox.ErrUnavailable)
	})
}

func TestDelayEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		faults, m := newFaults(t)
		faults.Add(mailboxtest.Fault{Op: "send", Delay: time.Second})
		faults.Add(mailboxtest.Fault{Delay: 2 * time.Second})
		start := time.Now()
		mustSend(t, m, "tea")
		expectEqual(t, "time of a send", time.Since(start), 3*time.Second)
		start = time.Now()
		wantStats(t, m, mailbox.Stats{Ready: 1})
		expectEqual(t, "time of others", time.Since(start), 2*time.Second)

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := m.Send(ctx, "milk")
		expectEqual(t, "error", err, context.DeadlineExceeded)
		wantStats(t, m, mailbox.Stats{Ready: 1})
	})
}

func TestNewFaultHitsWaitingReceive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		faults, m := newFaults(t)
		start := time.Now()
		time.AfterFunc(time.Second, func() {
			faults.Add(mailboxtest.Fault{Op: "send", Err: mailbox.ErrUnavailable})
			faults.Add(mailboxtest.Fault{Queue: "bills", Err: mailbox.ErrUnavailable})
		})
		time.AfterFunc(time.Minute, func() {
			faults.Add(mailboxtest.Fault{Op: "receive", Err: mailbox.ErrUnavailable})
		})
		_, err := m.Receive(t.Context(), mailbox.WithWait(time.Hour))
		expectError(t, err, mailbox.ErrUnavailable)
		expectEqual(t, "time of the error", time.Since(start), time.Minute)
	})
}

func TestOtherFaultLeavesReceiveWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		faults, m := newFaults(t)
		start := time.Now()
		time.AfterFunc(time.Minute, func() {
			faults.Add(mailboxtest.Fault{Op: "receive", Err: mailbox.ErrUnavailable, Every: 2})
		})
		messages, err := m.Receive(t.Context(), mailbox.WithWait(time.Hour))
		expectError(t, err, nil)
		expectEqual(t, "messages", len(messages), 0)
		expectEqual(t, "time waited", time.Since(start), time.Hour)

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		faults.Clear()
		_, err = m.Receive(ctx, mailbox.WithWait(time.Hour))
		expectEqual(t, "error", err, context.DeadlineExceeded)
	})
}

func TestExpireEndsADelivery(t *testing.T) {
	faults, m := newFaults(t)
	mustSend(t, m, "first", "second")
	message := mustReceive(t, m)
	expectError(t, faults.Expire(t.Context(), m.Name(), message.Receipt), nil)
	expectError(t, message.Ack(t.Context()), mailbox.ErrReceiptExpired)
	expectError(t, faults.Expire(t.Context(), m.Name(), message.Receipt), mailbox.ErrReceiptExpired)
	again := mustReceive(t, m)
	expectEqual(t, "body, at its old place", again.Body, "first")
	expectEqual(t, "deliveries", again.Deliveries, 2)
	expectError(t, again.Ack(t.Context()), nil)
	expectError(t, faults.Expire(t.Context(), "", message.Receipt), mailbox.ErrInvalid)
}

func TestInjectedMessageHasEarlierDeliveries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		faults, m := newFaults(t)
		mustSend(t, m, "before")
		long := time.Now().Add(-time.Hour).UTC()
		id, err := faults.Inject(t.Context(), m.Name(), mailboxtest.Injection{
			Outgoing:   driver.Outgoing{Body: []byte(`"old"`), ReplyTo: "answers"},
			Deliveries: 5, LastError: "no milk", FirstReceivedAt: long,
		})
		expectError(t, err, nil)
		expectEqual(t, "first body", mustReceive(t, m, mailbox.WithVisibility(time.Hour)).Body, "before")

		old := mustReceive(t, m)
		expectSame(t, "message", []any{old.ID, old.Body, old.ReplyTo, old.Deliveries, old.LastError, old.FirstReceivedAt},
			[]any{id, "old", "answers", 5, "no milk", long})
		expectError(t, old.Nack(t.Context(), 0, errors.New("no sugar")), nil)
		again := mustReceive(t, m)
		expectEqual(t, "deliveries", again.Deliveries, 6)
		expectEqual(t, "last error", again.LastError, "no sugar")
		time.Sleep(mailbox.DefaultVisibility)
		expectError(t, again.Ack(t.Context()), mailbox.ErrReceiptExpired)
		last := mustReceive(t, m)
		expectEqual(t, "deliveries", last.Deliveries, 7)
		expectError(t, last.Ack(t.Context()), nil)
		wantStats(t, m, mailbox.Stats{InFlight: 1})
	})
}

func TestRedriveRemovesInjectedDeliveries(t *testing.T) {
	faults, m := newFaults(t)
	for _, body := range []string{`"a"`, `"b"`} {
		_, err := faults.Inject(t.Context(), m.Name(), mailboxtest.Injection{Outgoing: driver.Outgoing{Body: []byte(body)}, Deliveries: 9})
		expectError(t, err, nil)
		message := mustReceive(t, m)
		expectError(t, message.DeadLetter(t.Context(), mailbox.ReasonFatal, nil), nil)
	}
	for letter, err := range m.DeadLetters(t.Context()) {
		expectError(t, err, nil)
		expectEqual(t, "deliveries of a dead letter", letter.Deliveries, 9)
	}
	moved, err := m.RedriveAll(t.Context(), 1)
	expectError(t, err, nil)
	expectEqual(t, "moved", moved, 1)
	expectEqual(t, "deliveries after the redrive", mustReceive(t, m).Deliveries, 1)
	for peeked, err := range m.Peek(t.Context(), mailbox.Query{States: []mailbox.State{mailbox.StateDead}}) {
		expectError(t, err, nil)
		expectEqual(t, "deliveries of the other", peeked.Deliveries, 9)
	}
}

func TestInjectRefusesWhatSendRefuses(t *testing.T) {
	faults, m := newFaults(t)
	_, err := faults.Inject(t.Context(), m.Name(), mailboxtest.Injection{Outgoing: driver.Outgoing{Delay: -1}})
	expectError(t, err, mailbox.ErrInvalid)
	_, err = faults.Inject(t.Context(), m.Name(), mailboxtest.Injection{Deliveries: -1})
	expectError(t, err, mailbox.ErrInvalid)
	_, err = faults.Inject(t.Context(), "", mailboxtest.Injection{})
	expectError(t, err, mailbox.ErrInvalid)
	wantStats(t, m, mailbox.Stats{})
}

func TestFaultsClosesOnlyItsOwnBackend(t *testing.T) {
	backend := membox.New(nil)
	defer backend.Close()
	faults := mailboxtest.NewFaults(backend)
	expectError(t, faults.Close(), nil)
	mustSend(t, open(t, faults), "tea")

	own := mailboxtest.NewFaults(nil)
	expectError(t, own.Close(), nil)
	_, err := mailbox.Open[string](t.Context(), own, "orders", nil)
	expectError(t, err, mailbox.ErrClosed)
}
