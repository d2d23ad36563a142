package mailbox_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/driver"
)

// heldBatch returns n messages received from queue, with ids "0", "1", ….
func heldBatch(t *testing.T, name string, queue *fakeQueue, n int) []*mailbox.Message[string] {
	t.Helper()
	queue.traits.MaxBatch = max(n, 1)
	var batch []driver.Delivery
	for i := range n {
		batch = append(batch, delivery(fmt.Sprint(i), `"tea"`))
	}
	queue.receive = deliver(batch)
	messages := mustReceive(t, mailbox.New[string](name, queue, nil), n)
	queue.traits.MaxBatch = fakeTraits.MaxBatch
	return messages
}

// acks makes queue note the handles of each ack call.
func acks(queue *fakeQueue, answer func(receipts []driver.Receipt) error) *[][]string {
	var calls [][]string
	queue.ack = func(_ context.Context, receipts []driver.Receipt) error {
		var handles []string
		for _, receipt := range receipts {
			handles = append(handles, receipt.Handle)
		}
		calls = append(calls, handles)
		return answer(receipts)
	}
	return &calls
}

func succeed([]driver.Receipt) error { return nil }

func TestAckAllKeepsPositionsAcrossMailboxes(t *testing.T) {
	left, right := newFake(), newFake()
	l, r := heldBatch(t, "left", left, 3), heldBatch(t, "right", right, 2)
	wantError(t, l[1].Ack(t.Context()), nil)
	leftCalls := acks(left, func([]driver.Receipt) error {
		return &driver.BatchError{Errs: []error{nil, driver.ErrReceiptExpired}}
	})
	rightCalls := acks(right, func([]driver.Receipt) error { return errUnavailable })

	err := mailbox.AckAll(t.Context(), r[0], l[0], l[1], nil, l[2], r[1], l[0])
	wantSame(t, "calls on the left", *leftCalls, [][]string{{"0", "2"}})
	wantSame(t, "calls on the right", *rightCalls, [][]string{{"0", "1"}})
	if batch, ok := errors.AsType[*mailbox.BatchError](err); !ok || len(batch.Errs) != 7 {
		t.Fatalf("error is %#v, want a BatchError of 7", err)
	}
	for i, want := range []error{
		mailbox.ErrUnavailable, nil, mailbox.ErrSettled, mailbox.ErrInvalid,
		mailbox.ErrReceiptExpired, mailbox.ErrUnavailable, mailbox.ErrSettled,
	} {
		wantError(t, mailbox.ErrorAt(err, i), want)
	}
	wantEqual(t, "settled", l[0].Settled() && l[2].Settled() && !r[0].Settled() && !r[1].Settled(), true)
}

func TestAckAllSplitsByMaxBatch(t *testing.T) {
	queue := newFake()
	messages := heldBatch(t, "orders", queue, 25)
	calls := acks(queue, succeed)
	wantError(t, mailbox.AckAll(t.Context(), messages...), nil)
	wantEqual(t, "number of calls", len(*calls), 3)
	wantSame(t, "last step", (*calls)[2], []string{"20", "21", "22", "23", "24"})
	wantError(t, mailbox.AckAll[string](t.Context()), nil)
}

func TestAckAllStopsAfterFailedCall(t *testing.T) {
	queue := newFake()
	messages := heldBatch(t, "orders", queue, 25)
	step := 0
	calls := acks(queue, func([]driver.Receipt) error {
		if step++; step == 2 {
			return errUnavailable
		}
		return nil
	})
	err := mailbox.AckAll(t.Context(), messages...)
	wantEqual(t, "number of calls", len(*calls), 2)
	for i, message := range messages {
		want := error(nil)
		if i >= 10 {
			want = mailbox.ErrUnavailable
		}
		wantError(t, mailbox.ErrorAt(err, i), want)
		wantEqual(t, "settled", message.Settled(), i < 10)
	}
	wantError(t, mailbox.AckAll(t.Context(), messages[10:]...), nil)
}

func TestNackAllReleaseAllAndExtendAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := onMemory(t, nil)
		mustSend(t, m, "a", "b", "c", "d", "e", "f")
		got := mustReceive(t, m, 6, mailbox.WithVisibility(time.Minute))
		wantError(t, mailbox.NackAll(t.Context(), 10*time.Second, errors.New("no milk"), got[0], got[1]), nil)
		wantError(t, mailbox.ReleaseAll(t.Context(), got[3], got[2]), nil)
		wantError(t, mailbox.ExtendAll(t.Context(), time.Hour, got[4], got[5]), nil)
		wantError(t, mailbox.ErrorAt(mailbox.ExtendAll(t.Context(), time.Hour, got[4], got[0]), 1), mailbox.ErrSettled)
		wantStats(t, m, mailbox.Stats{Ready: 2, Delayed: 2, InFlight: 2})
		wantSame(t, "released, in their own place", bodies(mustReceive(t, m, 2)), []string{"c", "d"})
		time.Sleep(10 * time.Second)
		nacked := mustReceive(t, m, 2)
		wantSame(t, "nacked", bodies(nacked), []string{"a", "b"})
		wantEqual(t, "last error", nacked[1].LastError, "no milk")
		time.Sleep(59 * time.Minute)
		wantError(t, mailbox.AckAll(t.Context(), got[4], got[5]), nil)

		err := mailbox.NackAll(t.Context(), -1, nil, nacked...)
		wantField(t, mailbox.ErrorAt(err, 1), mailbox.ErrInvalid, "Delay")
	})
}
