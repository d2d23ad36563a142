package redisbox

import (
	"testing"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/redistest"
)

// A receipt can name a message that was never delivered here: the receipt is from another
// queue, from which the message came.

// TestReceiptOfUndeliveredMessageChangesNothing in the same call, neither the place of
// the message nor its age.
func TestReceiptOfUndeliveredMessageChangesNothing(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"a", "l"} {
		b := open(t, connect(t, redistest.SharedServer(t).ClientOption()), &Options{Prefix: redistest.Prefix(t)})
		q := configured(t, b, driver.Config{RetainReady: driver.Retention{Count: 2}})
		ids := send(t, q, "a", "b")
		s := q.shards[0]
		settle := newSettleOp(t.Context(), s)
		settle.add(0, what, s.receipt(ids[0], 1, noncesPerCall), packDoubles(1))
		next := newSendOp(t.Context(), s)
		next.add(0, s.newID(), &driver.Outgoing{Body: []byte("c")}, q.special(&driver.Outgoing{}))
		if err := s.runDurably(t.Context(), &shardBatch{settles: []*settleOp{settle}, sends: []*sendOp{next}}, true); err != nil {
			t.Fatal(err)
		}
		if settle.codes != "x" {
			t.Errorf("the receipt got %q, want x", settle.codes)
		}
		wantStats(t, q, driver.Stats{Ready: 2, Dead: 1})
		if dead := deadLetters(t, q); len(dead) != 1 || string(dead[0].Body) != "a" {
			t.Errorf("the dead letters are %+v, want a", dead)
		}
		got := receive(t, q, 2, hold)
		if string(got[0].Body) != "b" || string(got[1].Body) != "c" {
			t.Errorf("got %s and %s, want b and c", got[0].Body, got[1].Body)
		}
		wantStats(t, q, driver.Stats{InFlight: 2, Dead: 1})
	}
}

// TestReceiptsOfEarlierVersionStayValid: their place had only the shard and a hash of the
// id.
func TestReceiptsOfEarlierVersionStayValid(t *testing.T) {
	t.Parallel()
	b := open(t, connect(t, redistest.SharedServer(t).ClientOption()), &Options{Prefix: redistest.Prefix(t)})
	q := configured(t, b, driver.Config{Shards: 3})
	send(t, q, "a", "b", "c", "d")
	var old []driver.Receipt
	for len(old) < 4 {
		got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 4 - len(old), Visibility: hold})
		if err != nil || len(got) == 0 {
			t.Fatalf("receive: got %d messages, error %v", len(got), err)
		}
		for _, d := range got {
			number := uint64(q.shardOfReceipt(d.Receipt).number)
			old = append(old, driver.Receipt{Handle: d.ID, Place: number<<48 | hash(d.ID)&(1<<48-1), Nonce: d.Receipt.Nonce})
		}
	}
	if _, err := q.Extend(t.Context(), []driver.Extension{{Receipt: old[0], Visibility: hold}}); err != nil {
		t.Errorf("extend: %v", err)
	}
	if err := q.Ack(t.Context(), old[:1]); err != nil {
		t.Errorf("ack: %v", err)
	}
	if err := q.AckLate(t.Context(), old[1:2]); err != nil {
		t.Errorf("late ack: %v", err)
	}
	if err := q.Nack(t.Context(), []driver.Nack{{Receipt: old[2]}}); err != nil {
		t.Errorf("nack: %v", err)
	}
	wantCode(t, q.AckLate(t.Context(), old[2:3]), driver.ErrReceiptExpired)
	wantStats(t, q, driver.Stats{Ready: 1, InFlight: 1})
	old[3].Place ^= 1 << 20
	wantCode(t, q.Ack(t.Context(), old[3:]), driver.ErrReceiptExpired)
}
