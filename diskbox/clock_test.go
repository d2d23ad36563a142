package diskbox

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
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
