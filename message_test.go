package mailbox_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/backoff"
)

// held returns a message received from queue.
func held(t *testing.T, queue *fakeQueue) *mailbox.Message[string] {
	t.Helper()
	queue.receive = deliver([]driver.Delivery{delivery("1", `"tea"`)})
	m := mailbox.New[string]("orders", queue, nil)
	return mustReceive(t, m, 1)[0]
}

// everySettlement lists the ways to settle that every backend has.
var everySettlement = map[string]func(context.Context, *mailbox.Message[string]) error{
	"ack":     func(ctx context.Context, m *mailbox.Message[string]) error { return m.Ack(ctx) },
	"nack":    func(ctx context.Context, m *mailbox.Message[string]) error { return m.Nack(ctx, 0, nil) },
	"release": func(ctx context.Context, m *mailbox.Message[string]) error { return m.Release(ctx) },
	"put-back": func(ctx context.Context, m *mailbox.Message[string]) error {
		return m.PutBack(ctx, 0, nil)
	},
}

func TestSettlingTwiceIsErrSettledWithoutBackendCall(t *testing.T) {
	for name, settle := range everySettlement {
		t.Run(name, func(t *testing.T) {
			queue := newFake()
			message := held(t, queue)
			if message.Settled() {
				t.Error("a new message says that it is settled")
			}
			wantError(t, settle(t.Context(), message), nil)
			if !message.Settled() {
				t.Error("a settled message says that it is not")
			}
			before := queue.count()
			for _, again := range everySettlement {
				err := again(t.Context(), message)
				wantError(t, err, mailbox.ErrSettled)
				if e, ok := errors.AsType[*mailbox.Error](err); !ok || e.Queue != "orders" || e.MessageID != "1" || e.Detail == "" {
					t.Errorf("error is %#v", err)
				}
			}
			wantError(t, message.Extend(t.Context(), time.Second), mailbox.ErrSettled)
			wantError(t, mailbox.ErrorAt(mailbox.AckAll(t.Context(), message), 0), mailbox.ErrSettled)
			wantEqual(t, "calls of the backend", queue.count()-before, 0)
		})
	}
}

func TestFailedSettlingCanBeRepeated(t *testing.T) {
	for _, failure := range []error{errUnavailable, context.DeadlineExceeded, driver.ErrClosed} {
		queue := newFake()
		queue.ack = func(context.Context, []driver.Receipt) error { return failure }
		message := held(t, queue)
		wantEqual(t, "error", message.Ack(t.Context()), failure)
		if message.Settled() {
			t.Errorf("after %v the message says that it is settled", failure)
		}
		queue.ack = nil
		wantError(t, message.Ack(t.Context()), nil)
		wantError(t, message.Ack(t.Context()), mailbox.ErrSettled)
	}
}

func TestExpiredReceiptSettlesMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := onMemory(t, nil)
		mustSend(t, m, "tea")
		message := mustReceive(t, m, 1, mailbox.WithVisibility(time.Minute))[0]
		time.Sleep(time.Minute)
		wantError(t, message.Ack(t.Context()), mailbox.ErrReceiptExpired)
		if !message.Settled() {
			t.Error("the message says that it is not settled")
		}
		wantError(t, message.Ack(t.Context()), mailbox.ErrSettled)
		wantError(t, mustReceive(t, m, 1)[0].Ack(t.Context()), nil)
	})
}

func TestConcurrentSettlingHasOneWinner(t *testing.T) {
	m, _ := onMemory(t, nil)
	for range 50 {
		if _, err := m.Purge(t.Context()); err != nil {
			t.Fatal(err)
		}
		mustSend(t, m, "tea")
		message := mustReceive(t, m, 1)[0]
		var settled, extended [8]error
		var group sync.WaitGroup
		i := 0
		for range 2 {
			for _, settle := range everySettlement {
				result := &settled[i]
				group.Go(func() { *result = settle(t.Context(), message) })
				i++
			}
		}
		for i := range extended {
			group.Go(func() { extended[i] = message.Extend(t.Context(), time.Minute) })
		}
		group.Wait()
		won := 0
		for _, err := range settled[:i] {
			if err == nil {
				won++
				continue
			}
			wantError(t, err, mailbox.ErrSettled)
		}
		wantEqual(t, "settlements that won", won, 1)
		for _, err := range extended {
			if err != nil {
				wantError(t, err, mailbox.ErrSettled)
			}
		}
	}
}

func TestConcurrentAcksHaveOneWinner(t *testing.T) {
	m, _ := onMemory(t, nil)
	for range 20 {
		mustSend(t, m, "tea")
		message := mustReceive(t, m, 1)[0]
		errs := make([]error, 20)
		var group sync.WaitGroup
		for i := range errs {
			group.Go(func() { errs[i] = message.Ack(t.Context()) })
		}
		group.Wait()
		won := 0
		for _, err := range errs {
			if err == nil {
				won++
				continue
			}
			wantError(t, err, mailbox.ErrSettled)
		}
		wantEqual(t, "acks that won", won, 1)
	}
	wantStats(t, m, mailbox.Stats{})
}

func TestSettlingDuringAnotherSettleIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := newFake()
		queue.ack = func(ctx context.Context, _ []driver.Receipt) error {
			if err := backoff.Pause(ctx, time.Minute); err != nil {
				return err
			}
			return errUnavailable
		}
		message := held(t, queue)
		done := make(chan error)
		go func() { done <- message.Ack(t.Context()) }()
		synctest.Wait()
		wantError(t, message.Nack(t.Context(), 0, nil), mailbox.ErrSettled)
		wantError(t, message.Extend(t.Context(), time.Minute), mailbox.ErrSettled)
		if message.Settled() {
			t.Error("the message says that it is settled before it is")
		}
		wantError(t, <-done, mailbox.ErrUnavailable)
		wantError(t, message.Nack(t.Context(), 0, nil), nil)
	})
}

func TestExtendAfterConcurrentAckIsErrSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := newFake()
		queue.extend = func(ctx context.Context, _ []driver.Extension) error {
			if err := backoff.Pause(ctx, time.Second); err != nil {
				return err
			}
			return &driver.BatchError{Errs: []error{driver.ErrReceiptExpired}}
		}
		message := held(t, queue)
		done := make(chan error)
		go func() { done <- message.Extend(t.Context(), time.Minute) }()
		synctest.Wait()
		wantError(t, message.Ack(t.Context()), nil)
		err := <-done
		wantError(t, err, mailbox.ErrSettled)
		if errors.Is(err, mailbox.ErrReceiptExpired) {
			t.Error("an extension that lost to the message's own ack looks like a lost message")
		}
	})
}

// VIS-5: an extension that is cut answers with the real deadline.
func TestGrantedReturnsGrantedDuration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, backend := onMemory(t, nil)
		wantError(t, backend.ConfigureQueue(t.Context(), "orders", driver.Config{MaxHold: time.Hour}), nil)
		mustSend(t, m, "tea")
		message := mustReceive(t, m, 1, mailbox.WithVisibility(time.Minute))[0]
		wantEqual(t, "granted before the first extension", message.Granted(), 0)
		wantError(t, message.Extend(t.Context(), 30*time.Minute), nil)
		wantEqual(t, "granted", message.Granted(), 30*time.Minute)
		time.Sleep(10 * time.Minute)
		wantError(t, message.Extend(t.Context(), 2*time.Hour), nil)
		wantEqual(t, "granted to an extension that is cut", message.Granted(), 50*time.Minute)
		wantError(t, message.Extend(t.Context(), 13*time.Hour), mailbox.ErrInvalid)
		wantEqual(t, "granted after an extension that failed", message.Granted(), 50*time.Minute)
	})
}

func TestLostLeaseIsReportedByExtendAndAck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := onMemory(t, nil)
		mustSend(t, m, "tea")
		message := mustReceive(t, m, 1, mailbox.WithVisibility(time.Minute))[0]
		wantError(t, message.Extend(t.Context(), time.Hour), nil)
		time.Sleep(59 * time.Minute)
		wantError(t, message.Extend(t.Context(), time.Hour), nil)
		time.Sleep(time.Hour)
		wantError(t, message.Extend(t.Context(), time.Hour), mailbox.ErrReceiptExpired)
		if message.Settled() {
			t.Error("extending settled the message")
		}
		// ErrSettled would sound as if the message had been dealt with.
		wantError(t, message.Ack(t.Context()), mailbox.ErrReceiptExpired)
	})
}

func TestNackMovesMessageToTailWithCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := onMemory(t, nil)
		mustSend(t, m, "first", "second")
		first := mustReceive(t, m, 1)[0]
		wantError(t, first.Nack(t.Context(), 0, errors.New("no milk")), nil)
		got := mustReceive(t, m, 2)
		wantSame(t, "bodies", bodies(got), []string{"second", "first"})
		wantEqual(t, "last error", got[1].LastError, "no milk")

		wantError(t, got[0].Ack(t.Context()), nil)
		wantError(t, got[1].Nack(t.Context(), time.Minute, nil), nil)
		wantStats(t, m, mailbox.Stats{Delayed: 1})
		time.Sleep(time.Minute)
		wantEqual(t, "body", mustReceive(t, m, 1)[0].Body, "first")
	})
}

func TestReleaseKeepsPlace(t *testing.T) {
	m, _ := onMemory(t, nil)
	mustSend(t, m, "first", "second")
	wantError(t, mustReceive(t, m, 1)[0].Release(t.Context()), nil)
	got := mustReceive(t, m, 2)
	wantSame(t, "bodies", bodies(got), []string{"first", "second"})
	wantEqual(t, "deliveries", got[0].Deliveries, 1)
}

func TestReleaseWithDelayKeepsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := onMemory(t, nil)
		mustSend(t, m, "first", "second")
		wantError(t, mustReceive(t, m, 1)[0].Release(t.Context(), nil, mailbox.WithDelay(time.Minute)), nil)
		wantStats(t, m, mailbox.Stats{Ready: 1, Delayed: 1})
		time.Sleep(time.Minute)
		got := mustReceive(t, m, 2)
		wantSame(t, "bodies", bodies(got), []string{"first", "second"})
		wantEqual(t, "deliveries", got[0].Deliveries, 1)
		wantField(t, got[0].Release(t.Context(), mailbox.WithDelay(-1)), mailbox.ErrInvalid, "Delay")
		wantField(t, got[0].PutBack(t.Context(), 13*time.Hour, nil), mailbox.ErrInvalid, "Delay")
	})
}

func TestPutBackGoesToTheTailUncounted(t *testing.T) {
	m, _ := onMemory(t, nil)
	mustSend(t, m, "first", "second")
	wantError(t, mustReceive(t, m, 1)[0].PutBack(t.Context(), 0, errors.New("not mine")), nil)
	got := mustReceive(t, m, 2)
	wantSame(t, "bodies", bodies(got), []string{"second", "first"})
	wantEqual(t, "deliveries", got[1].Deliveries, 1)
	wantEqual(t, "last error", got[1].LastError, "not mine")
	wantError(t, mailbox.PutBackAll(t.Context(), 0, nil, got...), nil)
	wantError(t, got[1].Ack(t.Context()), mailbox.ErrSettled)
	again := mustReceive(t, m, 2)
	wantSame(t, "bodies", bodies(again), []string{"second", "first"})
	wantEqual(t, "deliveries", again[0].Deliveries, 1)
}

// TestReleaseCountsWithoutTrait: the lease ends, or is cut to the delay, and a message that
// is put back is nacked.
func TestReleaseCountsWithoutTrait(t *testing.T) {
	queue := newFake()
	var extended []driver.Extension
	var nacked []driver.Nack
	queue.extend = func(_ context.Context, extensions []driver.Extension) error {
		extended = append(extended, extensions...)
		return nil
	}
	queue.nack = func(_ context.Context, nacks []driver.Nack) error {
		nacked = append(nacked, nacks...)
		return nil
	}
	wantError(t, held(t, queue).Release(t.Context()), nil)
	wantError(t, held(t, queue).Release(t.Context(), mailbox.WithDelay(time.Minute)), nil)
	wantError(t, held(t, queue).PutBack(t.Context(), time.Second, errors.New("not mine")), nil)
	wantEqual(t, "extensions", len(extended), 2)
	wantEqual(t, "visibility", extended[0].Visibility, 0)
	wantEqual(t, "visibility", extended[1].Visibility, time.Minute)
	wantEqual(t, "nacks", len(nacked), 1)
	wantEqual(t, "mode", nacked[0].Mode, driver.NackFailed)
	wantEqual(t, "delay", nacked[0].Delay, time.Second)
	wantEqual(t, "cause", nacked[0].Cause, "not mine")
}

func TestSettlingBeyondTraitsIsRefusedWithoutBackendCall(t *testing.T) {
	queue := newFake()
	message := held(t, queue)
	before := queue.count()
	wantField(t, message.Nack(t.Context(), -1, nil), mailbox.ErrInvalid, "Delay")
	wantField(t, message.Nack(t.Context(), 13*time.Hour, nil), mailbox.ErrInvalid, "Delay")
	wantField(t, message.Extend(t.Context(), 13*time.Hour), mailbox.ErrInvalid, "Visibility")
	wantField(t, message.DeadLetter(t.Context(), "bored", nil), mailbox.ErrInvalid, "Reason")
	wantError(t, message.DeadLetter(t.Context(), mailbox.ReasonFatal, nil), mailbox.ErrUnsupported)
	wantEqual(t, "calls of the backend", queue.count()-before, 0)
	wantError(t, message.Ack(t.Context()), nil)
}

func TestLongCauseIsCut(t *testing.T) {
	m, _ := onMemory(t, nil)
	mustSend(t, m, "tea")
	cause := errors.New(strings.Repeat("ä", driver.MaxCauseBytes))
	wantError(t, mustReceive(t, m, 1)[0].Nack(t.Context(), 0, cause), nil)
	wantEqual(t, "last error", mustReceive(t, m, 1)[0].LastError, strings.Repeat("ä", driver.MaxCauseBytes/2))
}

type teapotError struct{ cause error }

func (e *teapotError) Error() string { return "I am a teapot" }
func (e *teapotError) Unwrap() error { return e.cause }

func TestDeadLetterHasReasonAndCause(t *testing.T) {
	teapot := &teapotError{io.EOF}
	for _, died := range []struct {
		cause     error
		text, typ string
	}{
		{nil, "", ""},
		{teapot, "I am a teapot", "*github.com/mailboxmq/mailbox_test.teapotError"},
		{fmt.Errorf("brew: %w", teapot), "brew: I am a teapot", "*github.com/mailboxmq/mailbox_test.teapotError"},
		{errors.Join(fmt.Errorf("%w and %w", teapot, io.EOF), io.EOF), "I am a teapot and EOF\nEOF", "*github.com/mailboxmq/mailbox_test.teapotError"},
		{fmt.Errorf("brew: %w", nil), "brew: %!w(<nil>)", "*fmt.wrapError"},
	} {
		m, _ := onMemory(t, nil)
		mustSend(t, m, "tea")
		message := mustReceive(t, m, 1)[0]
		wantError(t, message.DeadLetter(t.Context(), mailbox.ReasonFatal, died.cause), nil)
		wantError(t, message.Ack(t.Context()), mailbox.ErrSettled)
		wantStats(t, m, mailbox.Stats{Dead: 1})
		for letter, err := range m.DeadLetters(t.Context()) {
			wantError(t, err, nil)
			wantEqual(t, "reason", letter.Reason, mailbox.ReasonFatal)
			wantEqual(t, "text", letter.LastError, died.text)
			wantEqual(t, "type", letter.ErrorType, died.typ)
		}
	}
}

func TestUnreceivedMessageCannotBeSettled(t *testing.T) {
	made := &mailbox.Message[string]{ID: "1", Body: "tea"}
	for name, settle := range everySettlement {
		t.Run(name, func(t *testing.T) { wantError(t, settle(t.Context(), made), mailbox.ErrInvalid) })
	}
	wantError(t, made.Extend(t.Context(), 0), mailbox.ErrInvalid)
	var none *mailbox.Message[string]
	wantError(t, mailbox.ErrorAt(mailbox.AckAll(t.Context(), made, none), 1), mailbox.ErrInvalid)
}
