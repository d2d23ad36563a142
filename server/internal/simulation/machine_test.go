package simulation_test

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/diskbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/computer"
	"github.com/mailboxmq/mailbox/internal/keyring"
	"github.com/mailboxmq/mailbox/internal/testing/replytest"
	"github.com/mailboxmq/mailbox/internal/testing/storetest"
	"github.com/mailboxmq/mailbox/internal/verify"
	"github.com/mailboxmq/mailbox/server/internal/broker"
	"github.com/mailboxmq/mailbox/server/internal/oapapi"
)

// power is that of a machine from one boot to the next failure. What happens afterwards reaches
// neither the disk of the next boot nor a client.
type power struct {
	disk   *storetest.Disk
	faults *faults

	mu          sync.Mutex // guards the fields below
	fails       time.Time  // at an operation after this time, or when it is cut
	spared      int        // later operations that still take place
	image       *vfs.MemFS // what is left on the disk; not nil if the power is off
	connections []net.Conn
}

// off reports whether the power is off.
func (p *power) off() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.image != nil
}

// connect adds a connection, which the end of the power closes.
func (p *power) connect(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.connections = append(p.connections, c)
	return p.image == nil
}

// before is the hook of the disk.
func (p *power) before(storetest.Operation) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.image == nil && !time.Now().Before(p.fails) {
		if p.spared--; p.spared < 0 {
			p.failLocked("power failures during an operation")
		}
	}
	return nil
}

// cut ends the power, if it is on, and returns what is left on the disk.
func (p *power) cut() *vfs.MemFS {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.image == nil {
		p.failLocked("other power failures")
	}
	return p.image
}

func (p *power) failLocked(what string) {
	p.faults.mu.Lock()
	defer p.faults.mu.Unlock()
	p.faults.count[what]++
	p.image = p.disk.Image(p.faults.rng)
	for _, c := range p.connections {
		_ = c.Close()
	}
}

// A machine is the daemon's computer.
type machine struct {
	t      testing.TB
	faults *faults
	ring   *keyring.Ring
	token  string
	sync   diskbox.Sync
	daemon atomic.Pointer[daemon]

	boots int
	ahead time.Duration // of its wall clock, to that of the clients
}

// A daemon is mailboxd without its listeners, on one boot of a machine.
type daemon struct {
	power   *power
	backend *diskbox.Backend
	broker  *broker.Broker
	server  *oapapi.Server
}

func newMachine(t testing.TB, f *faults) *machine {
	t.Helper()
	ring := keyring.New(keyring.NewKey())
	token, err := ring.Mint("", capability.EveryOperation(), capability.Queues(capability.AnyQueue()), capability.ExpiresAt(time.Now().AddDate(1, 0, 0)))
	if err != nil {
		t.Fatal(err)
	}
	return &machine{t: t, faults: f, ring: ring, token: token.Reveal(), ahead: f.upTo(2*time.Hour) - time.Hour}
}

// start switches the machine on and starts the daemon. The power fails after it has been on for
// lasting.
func (m *machine) start(disk *storetest.Disk, lasting time.Duration) {
	m.t.Helper()
	m.boots++
	on, boot := time.Now(), fmt.Sprint("boot ", m.boots)
	d := &daemon{power: &power{disk: disk, faults: m.faults, fails: on.Add(lasting), spared: int(m.faults.upTo(8))}}
	disk.Before(d.power.before)
	ctx := computer.With(m.t.Context(), computer.Computer{
		FS:     disk.FS(),
		Boot:   func() string { return boot },
		Uptime: func() time.Duration { return time.Since(on) },
		Wall:   func() time.Time { return time.Now().Add(m.ahead) },
	})
	var err error
	d.backend, err = diskbox.Open(ctx, "queues", &diskbox.Options{
		Sync: m.sync, OnFail: func(err error) { m.t.Errorf("the store has failed: %v", err) },
	})
	if err != nil {
		m.t.Fatal(err)
	}
	d.broker, err = broker.New(broker.Options{
		Opener: d.backend, Replies: replytest.StoreOf(d.backend), Ring: m.ring, Verifier: verify.New(m.ring, nil),
		Limits: broker.Limits{MaxPayloadBytes: driver.DefaultMaxBodyBytes},
	})
	if err != nil {
		m.t.Fatal(err)
	}
	d.server = oapapi.New(oapapi.Options{Broker: d.broker})
	m.daemon.Store(d)
}

// fail cuts the power, and returns the disk of the next boot. The daemon ends without a word to
// its clients.
func (m *machine) fail() *storetest.Disk {
	m.t.Helper()
	d := m.daemon.Swap(nil)
	image := d.power.cut()
	m.end(d)
	return storetest.DiskFrom(image)
}

// end closes everything that a daemon has.
func (m *machine) end(d *daemon) {
	m.t.Helper()
	if err := errors.Join(d.server.Close(), d.broker.Close(), d.backend.Close()); err != nil {
		m.t.Error(err)
	}
}
