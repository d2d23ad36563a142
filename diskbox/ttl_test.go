package diskbox

import (
	"errors"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/engine"
	"github.com/mailboxmq/mailbox/internal/host"
)

func TestTimeToLiveFollowsWallClockAcrossRestarts(t *testing.T) {
	volume.InFull(t)
	for _, reboot := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			m := newTestMachine(t)
			b := m.restart(nil, false)
			q := openQueue(t, b, "a")
			// More than a window holds, so that most are in the backlog.
			for range 200 {
				send(t, q, driver.Outgoing{Body: []byte("first"), TTL: time.Hour}, driver.Outgoing{Body: []byte("second"), TTL: time.Hour, Delay: time.Hour})
			}
			expectStats(t, q, driver.Stats{Ready: 200, Delayed: 200})
			held := lease(t, q, 10, 12*time.Hour)

			// Set while the process was down.
			m.setWall(50 * time.Minute)
			b = m.restart(b, reboot)
			q = openQueue(t, b, "a")
			time.Sleep(10*time.Minute - time.Nanosecond)
			expectStats(t, q, driver.Stats{Ready: 190, Delayed: 200, InFlight: 10})
			time.Sleep(time.Nanosecond)
			expectStats(t, q, driver.Stats{Delayed: 200, InFlight: 10, Dead: 190})
			if err := q.Nack(t.Context(), []driver.Nack{{Receipt: held[0].Receipt}}); err != nil {
				t.Fatal(err)
			}
			expectStats(t, q, driver.Stats{Delayed: 200, InFlight: 9, Dead: 191})

			// Downtime counts, and messages that have ended stay dead when the clock is set back.
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Hour)
			b = m.restart(nil, reboot)
			q = openQueue(t, b, "a")
			expectStats(t, q, driver.Stats{InFlight: 9, Dead: 391})
			m.setWall(-5 * time.Hour)
			q = openQueue(t, m.restart(b, reboot), "a")
			expectStats(t, q, driver.Stats{InFlight: 9, Dead: 391})
			if n, err := q.Redrive(t.Context(), nil, 0); n != 391 || err != nil {
				t.Fatalf("redrove %d messages, %v", n, err)
			}
			time.Sleep(time.Hour - time.Nanosecond)
			expectStats(t, q, driver.Stats{Ready: 391, InFlight: 9})
			time.Sleep(time.Nanosecond)
			expectStats(t, q, driver.Stats{InFlight: 9, Dead: 391})
		})
	}
}

// A version that knows no times to live leaves index records behind; see ttl.go.
func TestEndsOfRemovedMessagesAreSkipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTestMachine(t)
		b := m.restart(nil, false)
		q := openQueue(t, b, "a")
		b.journal.mu.Lock()
		for seq := range uint64(3) {
			b.journal.batch.Set(appendDueKey(nil, endKind, host.ShardID{Queue: 1}, engine.Instant(m.wall().UnixNano()), 100+seq), nil)
		}
		b.journal.mu.Unlock()
		send(t, q, driver.Outgoing{Body: []byte("a"), TTL: time.Hour})
		q = openQueue(t, m.restart(b, false), "a")
		time.Sleep(time.Minute)
		expectStats(t, q, driver.Stats{Ready: 1})
		time.Sleep(time.Hour)
		expectStats(t, q, driver.Stats{Dead: 1})
	})
}

// An edit moves the end of a life, also in the index and of a message that waited for room among
// the dead letters.
func TestEditMovesEndOfLifeAcrossRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTestMachine(t)
		b := m.restart(nil, false)
		q := configure(t, b, "a", driver.Config{TTL: time.Hour, MaxDead: 1})
		sent, err := q.Send(t.Context(), make([]driver.Outgoing, 4))
		if err != nil {
			t.Fatal(err)
		}
		edit := func(i int, change driver.Edit, want driver.State) {
			t.Helper()
			if was, err := q.Edit(t.Context(), sent[i].ID, change); was != want || err != nil {
				t.Fatalf("message %d was %s, %v", i, was, err)
			}
		}
		edit(0, driver.Edit{DeliverAt: m.wall().Add(3 * time.Hour)}, driver.StateReady)
		edit(1, driver.Edit{DeliverAt: m.wall().Add(3 * time.Hour)}, driver.StateReady)
		edit(1, driver.Edit{Ready: true}, driver.StateDelayed)
		b = m.restart(b, false)
		q = openQueue(t, b, "a")
		time.Sleep(time.Hour)
		expectStats(t, q, driver.Stats{Ready: 2, Delayed: 1, Dead: 1}) // two wait for room
		expectBodies(t, q)
		expectStats(t, q, driver.Stats{Delayed: 3, Dead: 1})
		for _, i := range []int{1, 2, 3} { // one of them is dead
			if _, err := q.Edit(t.Context(), sent[i].ID, driver.Edit{Ready: true}); err != nil && !errors.Is(err, driver.ErrConflict) {
				t.Fatal(err)
			}
		}
		b = m.restart(b, true)
		q = openQueue(t, b, "a")
		expectStats(t, q, driver.Stats{Ready: 2, Delayed: 1, Dead: 1})
		if _, err := q.PurgeDead(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := b.ConfigureQueue(t.Context(), "a", driver.Config{MaxDead: 10}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour - time.Nanosecond)
		expectStats(t, q, driver.Stats{Ready: 2, Delayed: 1})
		time.Sleep(time.Nanosecond)
		expectStats(t, q, driver.Stats{Delayed: 1, Dead: 2})
		time.Sleep(time.Hour)
		expectStats(t, q, driver.Stats{Ready: 1, Dead: 2})
		time.Sleep(time.Hour - time.Nanosecond)
		expectStats(t, q, driver.Stats{Ready: 1, Dead: 2})
		time.Sleep(time.Nanosecond)
		expectStats(t, q, driver.Stats{Dead: 3})
		expectNoRecords(t, m.restart(b, false), messageKind, stateKind, placeKind, endKind)
	})
}

// expectNoRecords expects that the store has no records of some kinds.
func expectNoRecords(t *testing.T, b *Backend, kinds ...byte) {
	t.Helper()
	for _, kind := range kinds {
		it := b.store.Iterate([]byte{kind}, []byte{kind + 1})
		for it.Next() {
			t.Errorf("the record %x of kind %c is left", it.Key(), kind)
		}
		if err := it.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// Nothing of a message with a time to live stays in the store after it was acked, dropped,
// discarded, moved or purged.
func TestTimeToLiveLeavesNoRecordBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTestMachine(t)
		b := m.restart(nil, false)
		q := configure(t, b, "a", driver.Config{TTL: time.Minute, MaxDead: 1})
		openQueue(t, b, "b")
		send(t, q, make([]driver.Outgoing, 6)...)
		for _, d := range lease(t, q, 2, time.Hour) {
			if err := q.Ack(t.Context(), []driver.Receipt{d.Receipt}); err != nil {
				t.Fatal(err)
			}
		}
		if n, err := q.Move(t.Context(), "b", 1); n != 1 || err != nil {
			t.Fatalf("moved %d, %v", n, err)
		}
		time.Sleep(time.Minute)
		expectStats(t, q, driver.Stats{Ready: 2, Dead: 1}) // two wait for room
		expectBodies(t, q)
		expectStats(t, q, driver.Stats{Delayed: 2, Dead: 1})
		if err := b.ConfigureQueue(t.Context(), "a", driver.Config{DropExpired: true}); err != nil {
			t.Fatal(err)
		}
		expectStats(t, q, driver.Stats{Dead: 1})
		for _, name := range []string{"a", "b"} {
			q := openQueue(t, b, name)
			if _, err := q.PurgeDead(t.Context()); err != nil {
				t.Fatal(err)
			}
			expectStats(t, q, driver.Stats{})
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		b = m.restart(nil, false)
		expectNoRecords(t, b, messageKind, stateKind, leaseKind, endKind, deadKind, deadIDKind)
	})
}
