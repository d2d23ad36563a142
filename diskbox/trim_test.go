package diskbox

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/storetest"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

// countRecords counts the records of a kind.
func countRecords(t *testing.T, m *machine, kind byte) (n int) {
	t.Helper()
	if err := m.journal.flush(); err != nil {
		t.Fatal(err)
	}
	it := m.store.Iterate([]byte{kind}, []byte{kind + 1})
	for it.Next() {
		n++
	}
	if err := it.Close(); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestDueRecordsDoNotPileUp has a queue with one message, which is nacked with a delay over and
// over. Nothing else is sent.
func TestDueRecordsDoNotPileUp(t *testing.T) {
	volume.InFull(t)
	synctest.Test(t, func(t *testing.T) {
		m := start(t, storetest.NewDisk())
		q := configure(t, m.Backend, "orders", driver.Config{MaxDeliveries: driver.Off})
		send(t, q, driver.Outgoing{Body: []byte("tea")})
		for range 2 * sweepEvery {
			got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 1, Visibility: time.Hour, Wait: time.Hour})
			if err != nil || len(got) != 1 {
				t.Fatal(got, err)
			}
			if err := q.Nack(t.Context(), []driver.Nack{{Receipt: got[0].Receipt, Delay: 10 * time.Second}}); err != nil {
				t.Fatal(err)
			}
		}
		if n := countRecords(t, m, dueKind); n > sweepEvery+100 {
			t.Errorf("there are %d notes of when one message is due", n)
		}
	})
}

// TestSweepKeepsFutureDueRecords: the sweep removes due-time records up to the shard's current
// time, while most delayed messages are only on disk.
func TestSweepKeepsFutureDueRecords(t *testing.T) {
	volume.InFull(t)
	synctest.Test(t, func(t *testing.T) {
		m := start(t, storetest.NewDisk())
		q := configure(t, m.Backend, "orders", driver.Config{MaxDeliveries: driver.Off})
		const waiting = 500
		for n := range waiting {
			send(t, q, driver.Outgoing{Body: fmt.Append(nil, n), Delay: 14*time.Minute + time.Duration(n)*100*time.Millisecond})
		}
		send(t, q, driver.Outgoing{Body: []byte("again and again")})
		for range sweepEvery + 200 { // while the others are delayed
			got := receive(t, q, 1)
			if err := q.Nack(t.Context(), []driver.Nack{{Receipt: got[0].Receipt, Delay: 100 * time.Millisecond}}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if n := countRecords(t, m, dueKind); n > sweepEvery {
			t.Errorf("nothing was swept: there are %d notes", n)
		}
		if stats, err := q.Stats(t.Context()); err != nil || stats != (driver.Stats{Ready: 1, Delayed: waiting}) {
			t.Errorf("there are %+v, %v", stats, err)
		}
		time.Sleep(15 * time.Minute)
		if got := receive(t, q, waiting+1); len(got) != waiting+1 {
			t.Errorf("received %d", len(got))
		}
	})
}
