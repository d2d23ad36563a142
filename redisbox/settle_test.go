package redisbox

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
	"github.com/mailboxmq/mailbox/redisbox/internal/shard"
)

// TestManyWorkersNackOneMessageEach: nacks of single callers share calls, and each nack
// splits a bundle.
func TestManyWorkersNackOneMessageEach(t *testing.T) {
	t.Parallel()
	b := open(t, connect(t, redistest.SharedServer(t).ClientOption()), &Options{Prefix: redistest.Prefix(t)})
	q := openQueue(t, b)
	const workers, each = 600, 16
	for range workers {
		send(t, q, strings.Split(strings.Repeat("a", each), "")...)
	}
	nacks := make([]driver.Nack, workers)
	for i := range nacks {
		nacks[i] = driver.Nack{Receipt: receive(t, q, each, hold)[0].Receipt}
	}
	var group sync.WaitGroup
	errs := make([]error, workers)
	for i := range nacks {
		group.Go(func() { errs[i] = q.Nack(t.Context(), nacks[i:i+1]) })
	}
	group.Wait()
	failed := 0
	for _, err := range errs {
		if err != nil {
			if failed++; failed == 1 {
				t.Errorf("nack: %v", err)
			}
		}
	}
	got, err := q.Stats(t.Context())
	if err != nil || got != (driver.Stats{Ready: workers, InFlight: workers * (each - 1)}) {
		t.Errorf("%d nacks failed; stats: %+v, %v", failed, got, err)
	}
}

// VIS-2, DLQ-1, CNT-1: many nacks in one call change only the nacked messages: the others
// can still be acked, and when all are acked the queue is empty.
func TestMessagesAreAckedAfterManyNacks(t *testing.T) {
	t.Parallel()
	b := open(t, connect(t, redistest.SharedServer(t).ClientOption()), &Options{Prefix: redistest.Prefix(t)})
	q := configured(t, b, driver.Config{MaxMessages: 300*16 + 1})
	const workers, each = 300, 16
	for range workers {
		send(t, q, strings.Split(strings.Repeat("a", each), "")...)
	}
	nacks := make([]driver.Nack, workers)
	var rest []driver.Receipt
	for i := range nacks {
		got := receive(t, q, each, hold)
		nacks[i] = driver.Nack{Receipt: got[0].Receipt, Cause: "downstream is gone"}
		rest = append(rest, receiptsFrom(got[1:])...)
	}
	if err := q.Nack(t.Context(), nacks); err != nil {
		t.Errorf("nack: %v", err)
	}
	wantStats(t, q, driver.Stats{Ready: workers, InFlight: workers * (each - 1)})
	expired := 0
	for chunk := range slices.Chunk(rest, 256) {
		if batch, ok := errors.AsType[*driver.BatchError](q.Ack(t.Context(), chunk)); ok {
			for _, err := range batch.Errs {
				if err != nil {
					expired++
				}
			}
		}
	}
	if expired > 0 {
		t.Errorf("%d of %d leases that have %v left are over", expired, len(rest), hold)
	}
	wrong := 0
	for {
		got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 256, Visibility: hold})
		if err != nil {
			t.Fatal(err)
		}
		if len(got) == 0 {
			break
		}
		for _, d := range got {
			if d.Deliveries != 2 || d.LastError == "" {
				wrong++
			}
		}
		if err := q.Ack(t.Context(), receiptsFrom(got)); err != nil {
			t.Fatal(err)
		}
	}
	if wrong > 0 {
		t.Errorf("%d nacked messages have lost their delivery count and cause", wrong)
	}
	if got, err := q.Stats(t.Context()); err != nil || got != (driver.Stats{}) {
		t.Errorf("at the end: %+v, %v", got, err)
	}
	if _, err := q.Send(t.Context(), []driver.Outgoing{{}, {}}); err != nil {
		t.Errorf("room for %d: %v", workers*each+1, err)
	}
}

func receiptsFrom(got []driver.Delivery) (receipts []driver.Receipt) {
	for _, d := range got {
		receipts = append(receipts, d.Receipt)
	}
	return receipts
}

// One call does a bounded amount of work, however many messages the queue has: the
// server runs no other call meanwhile.
func TestLoweringMaxDeliveriesDoesNotBlockServer(t *testing.T) {
	t.Parallel()
	server := redistest.Standalone(t)
	b := open(t, connect(t, server.ClientOption()), nil)
	q := openQueue(t, b)
	const n = 10_000
	for range n / 1000 {
		send(t, q, strings.Split(strings.Repeat("a", 1000), "")...)
	}
	var nacks []driver.Nack
	for len(nacks) < n {
		got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 256, Visibility: hold})
		if err != nil || len(got) == 0 {
			t.Fatal(len(got), err)
		}
		for _, d := range got {
			nacks = append(nacks, driver.Nack{Receipt: d.Receipt})
		}
	}
	if err := q.Nack(t.Context(), nacks); err != nil {
		t.Fatal(err)
	}
	if err := b.ConfigureQueue(t.Context(), "orders", driver.Config{MaxDeliveries: 1}); err != nil {
		t.Fatal(err)
	}
	before := scriptCalls(t, server)
	if _, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 1, Visibility: hold}); err != nil {
		t.Error(err)
	}
	wantStats(t, q, driver.Stats{Dead: n})
	if calls := scriptCalls(t, server) - before; calls < n/1000 {
		t.Errorf("%d messages died in %d calls", n, calls)
	}
}

// scriptCalls returns how many scripts a server has run by hash.
func scriptCalls(t *testing.T, server *redistest.Server) (calls int) {
	t.Helper()
	info, err := server.Info(t.Context(), "commandstats")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscanf(info["cmdstat_evalsha"], "calls=%d,", &calls); err != nil {
		t.Fatalf("%q: %v", info["cmdstat_evalsha"], err)
	}
	return calls
}

// TestReceiptOfUndeliveredMessageChangesNothing: a receipt of another queue, from which
// a message came, can name a message that was never delivered here. It changes neither
// the place nor the age of the message, also not for other operations of the call.
func TestReceiptOfUndeliveredMessageChangesNothing(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"a", "l"} {
		b := open(t, connect(t, redistest.SharedServer(t).ClientOption()), &Options{Prefix: redistest.Prefix(t)})
		q := configured(t, b, driver.Config{RetainReady: driver.Retention{Count: 2}})
		ids := send(t, q, "a", "b")
		s := q.Shards[0]
		settle := shard.NewSettleOp(t.Context(), s)
		settle.Add(0, what, s.Receipt(ids[0], 1, shard.NoncesPerCall), shard.PackDoubles(1))
		next := shard.NewSendOp(t.Context(), s)
		next.Add(0, s.NewID(), &driver.Outgoing{Body: []byte("c")}, q.Special(&driver.Outgoing{}))
		if err := s.RunDurably(t.Context(), &shard.Batch{Settles: []*shard.SettleOp{settle}, Sends: []*shard.SendOp{next}}, true); err != nil {
			t.Fatal(err)
		}
		if settle.Codes != "x" {
			t.Errorf("the receipt got %q, want x", settle.Codes)
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
			number := uint64(q.ShardOfReceipt(d.Receipt).Number)
			old = append(old, driver.Receipt{Handle: d.ID, Place: number<<48 | shard.Hash(d.ID)&(1<<48-1), Nonce: d.Receipt.Nonce})
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

func TestLateAckIsOneCallPerBatch(t *testing.T) {
	w := newWiretapped(t, driver.Config{})
	send(t, w, make([]string, 200)...)
	var receipts []driver.Receipt
	for _, d := range receive(t, w, 200, hold) {
		receipts = append(receipts, d.Receipt)
		if len(receipts)%2 == 0 { // the others are in time
			if _, err := w.Extend(t.Context(), []driver.Extension{{Receipt: d.Receipt}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.heard()
	if err := w.AckLate(t.Context(), receipts); err != nil {
		t.Fatal(err)
	}
	w.wantRequests(t, "late ack", 1)
	wantStats(t, w, driver.Stats{})
}

// TestForeignHandleLeavesOtherAcksAlone: acks of one bundle share an argument, in which ids
// have one length. A receipt with a handle of another length is refused before that.
func TestForeignHandleLeavesOtherAcksAlone(t *testing.T) {
	t.Parallel()
	q := openQueue(t, open(t, connect(t, redistest.SharedServer(t).ClientOption()), &Options{Prefix: redistest.Prefix(t)}))
	send(t, q, "a", "b", "c")
	got := receive(t, q, 3, hold)
	foreign := driver.Receipt{Handle: got[1].ID + "0", Nonce: got[1].Receipt.Nonce}
	foreign.Place = shard.Hash(foreign.Handle) & (1<<shard.OldPlaceBits - 1)
	err := q.Ack(t.Context(), []driver.Receipt{got[0].Receipt, foreign, got[2].Receipt})
	batch, ok := errors.AsType[*driver.BatchError](err)
	if !ok {
		t.Fatalf("ack: got %v, want an error for one of three", err)
	}
	for i, failure := range batch.Errs {
		if want := i == 1; (failure != nil) != want {
			t.Errorf("receipt %d: got %v", i, failure)
		}
	}
	wantCode(t, batch.Errs[1], driver.ErrReceiptExpired)
	wantStats(t, q, driver.Stats{InFlight: 1})
}
