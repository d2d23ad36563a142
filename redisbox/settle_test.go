package redisbox

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/redistest"
)

// The same with single nacks of many callers.
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
