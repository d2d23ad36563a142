package diskbox

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/driver/drivertest"
	"github.com/mailboxmq/mailbox/internal/engine"
	"github.com/mailboxmq/mailbox/internal/host"
	"github.com/mailboxmq/mailbox/internal/store"
	"github.com/mailboxmq/mailbox/internal/testing/storetest"
	"github.com/mailboxmq/mailbox/membox"
)

type backend interface {
	driver.Opener
	driver.Admin
}

// configure creates a queue and opens it.
func configure(t *testing.T, b backend, name string, config driver.Config) driver.Queue {
	t.Helper()
	if err := b.ConfigureQueue(t.Context(), name, config); err != nil {
		t.Fatal(err)
	}
	return openQueue(t, b, name)
}

func lease(t *testing.T, q driver.Queue, n int, visibility time.Duration) []driver.Delivery {
	t.Helper()
	got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: n, Visibility: visibility})
	if err != nil || len(got) != n {
		t.Fatalf("received %d of %d: %v", len(got), n, err)
	}
	return got
}

func expectStats(t *testing.T, q driver.Queue, want driver.Stats) {
	t.Helper()
	got, err := q.Stats(t.Context())
	if err != nil || got != want {
		t.Errorf("holds %+v, %v; want %+v", got, err, want)
	}
}

// expectBodies receives all ready messages and checks their bodies.
func expectBodies(t *testing.T, q driver.Queue, want ...string) {
	t.Helper()
	got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 100, Visibility: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	var bodies []string
	for _, d := range got {
		bodies = append(bodies, string(d.Body))
	}
	if fmt.Sprint(bodies) != fmt.Sprint(want) {
		t.Errorf("delivered %q, want %q", bodies, want)
	}
}

// reopen closes a backend, lets some time pass, and opens it again.
func reopen(t *testing.T, m *machine, after time.Duration) *machine {
	t.Helper()
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	sound(t, m.disk)
	time.Sleep(after)
	return start(t, m.disk)
}

// Queues are restored one after the other. A message that died in the first while the store was
// closed goes to the second, which has dead letters of its own by then.
func TestDeathsWhileClosedMoveOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := start(t, storetest.NewDisk())
		a := configure(t, m, "a", driver.Config{MaxDeliveries: 1, DeadLetterTo: "b"})
		b := configure(t, m, "b", driver.Config{MaxDeliveries: 1})
		send(t, a, driver.Outgoing{Body: []byte("from a")})
		send(t, b, driver.Outgoing{Body: []byte("b1")}, driver.Outgoing{Body: []byte("b2")})
		lease(t, a, 1, time.Second)
		lease(t, b, 1, time.Second)
		m = reopen(t, m, 5*time.Second)
		a, b = openQueue(t, m, "a"), openQueue(t, m, "b")
		expectStats(t, a, driver.Stats{})
		expectStats(t, b, driver.Stats{Ready: 2, Dead: 1})
		expectBodies(t, b, "b2", "from a")
		m = reopen(t, m, 0)
		expectStats(t, openQueue(t, m, "b"), driver.Stats{InFlight: 2, Dead: 1})
	})
}

func TestRetentionKeepsDeadLettersOfClosedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := start(t, storetest.NewDisk())
		a := configure(t, m, "a", driver.Config{
			MaxDeliveries: 1, DeadLetterTo: "b", RetainDead: driver.Retention{Age: 5 * time.Second, Count: 1},
		})
		send(t, a, make([]driver.Outgoing, 3)...)
		lease(t, a, 3, time.Second)
		m = reopen(t, m, 20*time.Second)
		expectStats(t, openQueue(t, m, "a"), driver.Stats{})
		expectStats(t, openQueue(t, m, "b"), driver.Stats{Ready: 3})
	})
}

// slowJournal takes a second for every forwarded message, as a store that stalls does.
type slowJournal struct {
	*journal
	slow *atomic.Bool
}

func (s slowJournal) Ride() {
	s.journal.Ride()
	if s.slow.Load() {
		time.Sleep(time.Second)
	}
}

func TestDeathsMoveOnceWhileTimePasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := Options{fs: storetest.NewDisk().FS(), boot: bubbleClock{}, small: true, OnFail: func(error) {}}
		s, err := store.Open(t.Context(), "queues", o.storeOptions(store.SyncEach()))
		if err != nil {
			t.Fatal(err)
		}
		a := newAxis(o.boot, time.Now, nil)
		var slow atomic.Bool
		j := slowJournal{newJournal(s, a), &slow}
		b := host.New(host.Options{Journal: j, Secret: aSecret, Now: engine.Moment{At: a.now()}, Hold: o.hold()})
		q := configure(t, b, "a", driver.Config{
			MaxDeliveries: 1, DeadLetterTo: "b", RetainReady: driver.Retention{Age: 10 * time.Second},
		})
		send(t, q, make([]driver.Outgoing, 3)...)
		time.Sleep(8 * time.Second)
		lease(t, q, 3, 1500*time.Millisecond)
		slow.Store(true)
		time.Sleep(20 * time.Second)
		slow.Store(false)
		expectStats(t, q, driver.Stats{})
		expectStats(t, openQueue(t, b, "b"), driver.Stats{Ready: 3})
		if err := j.flush(); err != nil {
			t.Error(err)
		}
		for _, close := range []func() error{b.Close, s.Close} {
			if err := close(); err != nil {
				t.Error(err)
			}
		}
	})
}

// A dead letter that does not fit stays, even after a restart when there may be room: the
// decision was made when it died.
func TestDeadLetterThatDoesNotFitStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := start(t, storetest.NewDisk())
		a := configure(t, m, "a", driver.Config{DeadLetterTo: "b"})
		b := configure(t, m, "b", driver.Config{MaxMessages: 1})
		send(t, a, make([]driver.Outgoing, 2)...)
		for _, d := range lease(t, a, 2, time.Hour) {
			if err := a.DeadLetter(t.Context(), []driver.DeadLetterRequest{{Receipt: d.Receipt, Reason: driver.ReasonFatal}}); err != nil {
				t.Fatal(err)
			}
		}
		expectStats(t, a, driver.Stats{Dead: 1})
		expectStats(t, b, driver.Stats{Ready: 1})
		if _, err := b.Purge(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, crash := range []drivertest.Crash{drivertest.CrashClean, drivertest.CrashKill, drivertest.CrashPower} {
			m = restart(t, m, crash).(*machine)
			expectStats(t, openQueue(t, m, "a"), driver.Stats{Dead: 1})
			expectStats(t, openQueue(t, m, "b"), driver.Stats{})
		}
	})
}

// Dead letters that had to stay use up the room for dead letters. While the target has room
// that does not matter.
func TestKeptDeadLettersDoNotStopForwarding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := start(t, storetest.NewDisk())
		b := configure(t, m, "b", driver.Config{MaxMessages: 1})
		q := configure(t, m, "a", driver.Config{DeadLetterTo: "b", MaxDead: 2})
		deadLetter := func(n int) error {
			send(t, q, make([]driver.Outgoing, n)...)
			for _, d := range lease(t, q, n, time.Minute) {
				if err := q.DeadLetter(t.Context(), []driver.DeadLetterRequest{{Receipt: d.Receipt, Reason: driver.ReasonFatal}}); err != nil {
					return err
				}
			}
			return nil
		}
		if err := deadLetter(3); err != nil { // one is forwarded, two stay
			t.Fatal(err)
		}
		if _, err := b.Purge(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := deadLetter(1); err != nil {
			t.Errorf("the target is empty: %v", err)
		}
	})
}

func TestForwardedDeadLettersAreNotCountedAsKept(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) backend{
		"disk":   func(t *testing.T) backend { return start(t, storetest.NewDisk()) },
		"memory": func(*testing.T) backend { return membox.New(nil) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := open(t)
				q := configure(t, b, "a", driver.Config{DeadLetterTo: "b", MaxDead: 2, MaxDeliveries: 1})
				send(t, q, make([]driver.Outgoing, 10)...)
				var requests []driver.DeadLetterRequest
				for _, d := range lease(t, q, 5, time.Minute) {
					requests = append(requests, driver.DeadLetterRequest{Receipt: d.Receipt, Reason: driver.ReasonFatal})
				}
				if err := q.DeadLetter(t.Context(), requests); err != nil {
					t.Error(err)
				}
				lease(t, q, 5, time.Second)
				time.Sleep(2 * time.Second)
				expectStats(t, q, driver.Stats{})
				expectStats(t, openQueue(t, b, "b"), driver.Stats{Ready: 10})
			})
		})
	}
}
