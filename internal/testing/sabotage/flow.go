package sabotage

import (
	"cmp"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/driver/drivertest"
	"github.com/mailboxmq/mailbox/internal/host"
	"github.com/mailboxmq/mailbox/internal/keyring"
	"github.com/mailboxmq/mailbox/internal/testing/faulty"
	"github.com/mailboxmq/mailbox/internal/testing/workertest"
)

// A Wire is a surface of the daemon and a client of it.
type Wire struct {
	// Open returns a client of a new daemon with these keys in front of a backend. Closing the client
	// ends the daemon.
	Open   func(t testing.TB, backend Backend, ring *keyring.Ring) driver.Opener
	ByName bool // see drivertest.Backend
	// Hides are the saboteurs, and the rules whose saboteurs, do not show through this wire, and why.
	Hides map[string]string
}

// Backend returns the wire with a daemon in front of an empty memory backend, in virtual time.
func (w Wire) Backend() drivertest.Backend {
	return w.behind(func(backend driver.Opener) driver.Opener { return backend })
}

// behind is Backend with a memory backend in a wrapper. A restart ends the daemon, and starts one in
// front of the same memory backend.
func (w Wire) behind(wrap func(driver.Opener) driver.Opener) drivertest.Backend {
	var mu sync.Mutex // guards memories
	memories := make(map[driver.Opener]*memory)
	start := func(t testing.TB, m *memory) driver.Opener {
		opener := w.Open(t, wrap(m).(Backend), m.ring)
		mu.Lock()
		defer mu.Unlock()
		memories[opener] = m
		return opener
	}
	open := func(t testing.TB, wall func() time.Time) driver.Opener {
		m := &memory{host.New(host.Options{Wall: wall}), keyring.New(keyring.NewKey())}
		t.Cleanup(func() { _ = m.Backend.Close() }) // always nil
		return start(t, m)
	}
	return drivertest.Backend{
		Open:          func(t testing.TB) driver.Opener { return open(t, nil) },
		OpenWithClock: open,
		Restart: func(t testing.TB, old driver.Opener, _ drivertest.Crash) driver.Opener {
			mu.Lock()
			m := memories[old]
			mu.Unlock()
			if err := old.(io.Closer).Close(); err != nil {
				t.Error(err)
			}
			return start(t, m)
		},
		Virtual: true,
		ByName:  w.ByName,
	}
}

// memory is a memory backend that outlives the daemon in front of it, and the keys of that.
type memory struct {
	*host.Backend
	ring *keyring.Ring
}

// Close does nothing.
func (*memory) Close() error { return nil }

// noWire is the backend itself.
var noWire = Wire{Open: func(_ testing.TB, backend Backend, _ *keyring.Ring) driver.Opener { return backend }}

// ExpectFlowCaught checks that the suite sees through a wire the saboteurs of the rules of time and
// flow: of the cases that notice one on the backend itself, one must notice it through the wire.
func ExpectFlowCaught(t *testing.T, wire Wire) {
	t.Helper()
	var faults []Fault
	var saboteurs []faulty.Saboteur
	for _, s := range faulty.All() {
		if isFlow(s.Breaks) {
			reason := cmp.Or(hidden[s.Name], wire.Hides[s.Name], wire.Hides[s.Breaks])
			faults = append(faults, Fault{s.Name, slices.Concat([]string{s.Breaks}, s.Also), reason})
			saboteurs = append(saboteurs, s)
		}
	}
	for name := range Merged(hidden, wire.Hides) {
		if !slices.ContainsFunc(faults, func(f Fault) bool { return f.Name == name || f.Breaks[0] == name }) {
			t.Errorf("there is no saboteur %s, which is said to be hidden", name)
		}
	}
	ExpectCaught(t, faults, func(t *testing.T, fault int) {
		runOnBoth(t, wire, saboteurs[fault].Wrap, &faults[fault])
	})
}

// isFlow reports whether a rule says which message goes next, whether, and when.
func isFlow(rule string) bool {
	return strings.HasPrefix(rule, "TIME-") || strings.HasPrefix(rule, "FLOW-") || rule == "SND-2" || rule == "RET-1"
}

// enough is how many of the cases that notice a fault are tried through a wire, unless it is hidden.
const enough = 4

// runOnBoth runs the cases of a fault on the backend, and those that fail through a wire, until one
// fails there too. Of a hidden fault it runs all.
func runOnBoth(t *testing.T, wire Wire, wrap func(driver.Opener) driver.Opener, fault *Fault) {
	noticed := make(map[string]bool)
	t.Run("backend", func(t *testing.T) {
		run(t, noWire.behind(wrap), noticed, func(name string) bool {
			return fault.Has(name) && (fault.Hidden != "" || len(noticed) < enough)
		})
	})
	if len(noticed) == 0 {
		t.Error("no case notices the fault on the backend")
	}
	t.Run("wire", func(t *testing.T) {
		caught := make(map[string]bool)
		run(t, wire.behind(wrap), caught, func(name string) bool {
			return noticed[name] && (fault.Hidden != "" || len(caught) == 0)
		})
	})
}

// run runs cases on a backend, and adds to failed the names of those that fail.
func run(t *testing.T, b drivertest.Backend, failed map[string]bool, only func(name string) bool) {
	running := ""
	check := func(c testing.TB) {
		c.Cleanup(func() {
			if c.Failed() {
				failed[running] = true
			}
		})
	}
	open, openWithClock := b.Open, b.OpenWithClock
	b.Only = func(name string) bool {
		running = name
		return only(name)
	}
	b.Open = func(c testing.TB) driver.Opener { check(c); return open(c) }
	b.OpenWithClock = func(c testing.TB, wall func() time.Time) driver.Opener { check(c); return openWithClock(c, wall) }
	drivertest.Run(t, b)
	workertest.Run(t, b)
}
