package diskbox

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/engine"
	"github.com/mailboxmq/mailbox/internal/host"
	"github.com/mailboxmq/mailbox/internal/store"
	"github.com/mailboxmq/mailbox/internal/testing/storetest"
)

// sleepyClock is the clock of a machine that was suspended for a while. The time since boot
// includes that; programs do not notice it.
type sleepyClock struct{ slept *atomic.Int64 }

func (sleepyClock) boot() string { return "one boot" }
func (c sleepyClock) uptime() time.Duration {
	return bubbleClock{}.uptime() + time.Duration(c.slept.Load())
}

// A lease made after the machine slept must not end by a restart.
func TestSuspendingTheMachineEndsNothingEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var slept atomic.Int64
		disk := storetest.NewDisk()
		open := func() *Backend {
			b, err := Open(t.Context(), "queues", &Options{fs: disk.FS(), boot: sleepyClock{&slept}, small: true})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = b.Close() })
			return b
		}
		b := open()
		q := openQueue(t, b, "a")
		time.Sleep(time.Second)
		slept.Add(int64(8 * time.Hour)) // a laptop overnight
		time.Sleep(time.Second)
		send(t, q, driver.Outgoing{Body: []byte("later"), Delay: 10 * time.Minute}, driver.Outgoing{Body: []byte("once"), DedupKey: "k"})
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		b = open()
		q = openQueue(t, b, "a")
		sent, err := q.Send(t.Context(), []driver.Outgoing{{Body: []byte("once"), DedupKey: "k"}})
		if err != nil || !sent[0].Duplicate {
			t.Errorf("a repeated send right after a restart: %+v, %v", sent, err)
		}
		expectStats(t, q, driver.Stats{Ready: 1, Delayed: 1})
	})
}

// A snapshot of a virtual machine that is started again has the same boot, and less time since.
// Then deadlines come late by no more than in another boot.
func TestOlderSnapshotOfTheMachineDoesNotTurnTimeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var slept atomic.Int64
		disk := storetest.NewDisk()
		open := func() *Backend {
			b, err := Open(t.Context(), "queues", &Options{fs: disk.FS(), boot: sleepyClock{&slept}, small: true})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = b.Close() })
			return b
		}
		slept.Store(int64(8 * time.Hour))
		b := open()
		send(t, openQueue(t, b, "a"), driver.Outgoing{Body: []byte("later"), Delay: 10 * time.Minute})
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		slept.Store(0)
		q := openQueue(t, open(), "a")
		time.Sleep(11 * time.Minute)
		expectStats(t, q, driver.Stats{Ready: 1})
	})
}

// A testMachine is a machine whose wall clock can be set, and that can be rebooted.
type testMachine struct {
	t      *testing.T
	disk   *storetest.Disk
	boots  int
	booted time.Duration // of the first boot until the latest
	ahead  atomic.Int64  // what the wall clock was set forward
}

func (m *testMachine) boot() string                { return fmt.Sprint("boot ", m.boots) }
func (m *testMachine) uptime() time.Duration       { return bubbleClock{}.uptime() - m.booted }
func (m *testMachine) wall() time.Time             { return time.Now().Add(time.Duration(m.ahead.Load())) }
func (m *testMachine) setWall(ahead time.Duration) { m.ahead.Store(int64(ahead)) }

// restart opens the disk of the machine again; reboot says that the machine was down.
func (m *testMachine) restart(b *Backend, reboot bool) *Backend {
	if b != nil {
		if err := b.Close(); err != nil {
			m.t.Fatal(err)
		}
	}
	if reboot {
		m.boots, m.booted = m.boots+1, bubbleClock{}.uptime()
	}
	b, err := Open(m.t.Context(), "queues", &Options{fs: m.disk.FS(), boot: m, wall: m.wall, small: true})
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { _ = b.Close() })
	return b
}

func newTestMachine(t *testing.T) *testMachine { return &testMachine{t: t, disk: storetest.NewDisk()} }

func TestDueTimeFollowsWallClockAcrossRestarts(t *testing.T) {
	for _, reboot := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			m := newTestMachine(t)
			b := m.restart(nil, false)
			q := openQueue(t, b, "a")
			at := time.Now().Add(time.Hour)
			// More than a window holds, so that most are in the backlog.
			for range 200 {
				send(t, q, driver.Outgoing{Body: []byte("first"), DeliverAt: at}, driver.Outgoing{Body: []byte("second"), DeliverAt: at.Add(time.Hour)})
			}
			expectStats(t, q, driver.Stats{Delayed: 400})

			// Set while the process was down.
			m.setWall(50 * time.Minute)
			b = m.restart(b, reboot)
			q = openQueue(t, b, "a")
			expectStats(t, q, driver.Stats{Delayed: 400})
			time.Sleep(10*time.Minute - time.Nanosecond)
			expectStats(t, q, driver.Stats{Delayed: 400})
			time.Sleep(time.Nanosecond)
			expectStats(t, q, driver.Stats{Ready: 200, Delayed: 200})
			lease(t, q, 10, time.Minute)

			// Set back: the clock is read again, and what was ready is not lost.
			m.setWall(0)
			b = m.restart(b, reboot)
			q = openQueue(t, b, "a")
			expectStats(t, q, driver.Stats{Delayed: 390, InFlight: 10})
			time.Sleep(50 * time.Minute)
			expectStats(t, q, driver.Stats{Ready: 200, Delayed: 200})
			time.Sleep(time.Hour)
			expectStats(t, q, driver.Stats{Ready: 400})

			// Acked and nacked messages leave nothing behind that a later start counts. Five of them
			// were delivered before, as five that wait.
			m.setWall(-3 * time.Hour)
			for i, d := range lease(t, q, 10, time.Minute) {
				var err error
				if i%2 == 0 {
					err = q.Ack(t.Context(), []driver.Receipt{d.Receipt})
				} else {
					err = q.Nack(t.Context(), []driver.Nack{{Receipt: d.Receipt}})
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			b = m.restart(b, reboot)
			q = openQueue(t, b, "a")
			expectStats(t, q, driver.Stats{Ready: 10, Delayed: 385})
			if _, err := q.Purge(t.Context()); err != nil {
				t.Fatal(err)
			}
			q = openQueue(t, m.restart(b, reboot), "a")
			expectStats(t, q, driver.Stats{})
		})
	}
}

// Across a reboot, a delay counts the time that the machine was down by the wall clock, and a
// lease does not.
func TestDelayCountsDowntimeByWallClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTestMachine(t)
		b := m.restart(nil, false)
		q := openQueue(t, b, "a")
		send(t, q, driver.Outgoing{Body: []byte("leased")})
		lease(t, q, 1, 10*time.Minute)
		send(t, q, driver.Outgoing{Body: []byte("delayed"), Delay: 10 * time.Minute})
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(4 * time.Minute)
		b = m.restart(nil, true)
		q = openQueue(t, b, "a")
		time.Sleep(5*time.Minute + 59*time.Second)
		expectStats(t, q, driver.Stats{Delayed: 1, InFlight: 1})
		time.Sleep(time.Second)
		expectStats(t, q, driver.Stats{Ready: 1, InFlight: 1})

		// A clock that went back moves nothing, and a second reboot does not move leases twice.
		m.setWall(-time.Hour)
		b = m.restart(b, true)
		q = openQueue(t, b, "a")
		expectStats(t, q, driver.Stats{Ready: 1, InFlight: 1})
		m.setWall(5 * time.Hour)
		q = openQueue(t, m.restart(b, true), "a")
		time.Sleep(4*time.Minute - time.Second)
		expectStats(t, q, driver.Stats{Ready: 1, InFlight: 1})
		time.Sleep(time.Second)
		expectStats(t, q, driver.Stats{Ready: 2})
	})
}

func TestWaitingReceiveNoticesStepOfWallClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTestMachine(t)
		q := openQueue(t, m.restart(nil, false), "a")
		send(t, q, driver.Outgoing{Body: []byte("a"), DeliverAt: m.wall().Add(time.Hour)})
		start := time.Now()
		time.AfterFunc(10*time.Minute, func() { m.setWall(2 * time.Hour) })
		got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 1, Visibility: time.Minute, Wait: 2 * time.Hour})
		if waited := time.Since(start); err != nil || len(got) != 1 || waited < 10*time.Minute || waited > 10*time.Minute+3*time.Second {
			t.Errorf("received %d messages after %v, %v", len(got), waited, err)
		}
	})
}

// A version that knows no due times leaves index records behind; see alarm.go.
func TestStaleAlarmsOfOlderVersionsAreRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTestMachine(t)
		b := m.restart(nil, false)
		q := openQueue(t, b, "a")
		send(t, q, driver.Outgoing{Body: []byte("a"), DeliverAt: m.wall().Add(time.Hour)})
		b.journal.mu.Lock()
		for seq := range uint64(3) { // as if it had acked messages
			b.journal.batch.Set(appendDueKey(nil, alarmKind, host.ShardID{Queue: 1}, engine.Instant(m.wall().Add(time.Hour).UnixNano()), 100+seq), nil)
		}
		b.journal.mu.Unlock()
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		m.rewriteClock()
		b = m.restart(nil, false)
		expectStats(t, openQueue(t, b, "a"), driver.Stats{Delayed: 1})
		expectStats(t, openQueue(t, m.restart(b, false), "a"), driver.Stats{Delayed: 1})
	})
}

// rewriteClock writes the clock record of a version that records no wall time.
func (m *testMachine) rewriteClock() {
	o := Options{fs: m.disk.FS(), boot: m, small: true}
	s, err := store.Open(m.t.Context(), "queues", o.storeOptions(store.SyncEach()))
	if err != nil {
		m.t.Fatal(err)
	}
	a, err := readAxis(m, m.wall, s)
	if err != nil {
		m.t.Fatal(err)
	}
	var w writer
	w.begin(clockKey)
	w.buf = a.appendRecord(w.buf)
	w.buf = w.buf[:len(w.buf)-len(wallMark)-8]
	batch := s.NewBatch()
	batch.Set(clockKey, w.end())
	if err := errors.Join(s.Commit(batch, true), s.Close()); err != nil {
		m.t.Fatal(err)
	}
}
