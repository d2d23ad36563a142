package diskbox

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/driver/drivertest"
	"github.com/mailboxmq/mailbox/internal/store/storetest"
)

// powerFS is a file system with a plug. When it is pulled, an image of the disk
// is taken, and nothing reaches the disk any more: who has been told that
// something is durable was told before.
type powerFS struct {
	vfs.FS
	power *power
}

// power fails at some operation after a while, or when it is cut.
type power struct {
	disk *storetest.Disk
	rng  *rand.Rand

	mu     sync.Mutex // guards the fields below; held by every operation
	fails  time.Time
	spared int        // operations after that which still succeed
	image  *vfs.MemFS // not nil: the power is off
}

var errPowerOff = errors.New("the power is off")

// cut pulls the plug, if nobody has. inUse says that somebody has.
func (p *power) cut() (image *vfs.MemFS, inUse bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	inUse = p.image != nil
	if !inUse {
		p.image = p.disk.Image(p.rng)
	}
	return p.image, inUse
}

func (p *power) isOff() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.image != nil
}

func (p *power) do(operation func() error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.image == nil && !time.Now().Before(p.fails) {
		if p.spared--; p.spared < 0 {
			p.image = p.disk.Image(p.rng)
		}
	}
	if p.image != nil {
		return errPowerOff
	}
	return operation()
}

func (fs *powerFS) open(open func() (vfs.File, error)) (f vfs.File, err error) {
	err = fs.power.do(func() error {
		f, err = open()
		return err
	})
	if err != nil {
		return nil, err
	}
	return &powerFile{File: f, power: fs.power}, nil
}

func (fs *powerFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return fs.open(func() (vfs.File, error) { return fs.FS.Create(name, category) })
}

func (fs *powerFS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return fs.open(func() (vfs.File, error) { return fs.FS.ReuseForWrite(oldname, newname, category) })
}

// OpenDir always succeeds: what is known about directories is in memory. Syncing
// them fails.
func (fs *powerFS) OpenDir(name string) (vfs.File, error) {
	f, err := fs.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return &powerFile{File: f, power: fs.power}, nil
}

func (fs *powerFS) Rename(oldname, newname string) error {
	return fs.power.do(func() error { return fs.FS.Rename(oldname, newname) })
}

func (fs *powerFS) Remove(name string) error {
	return fs.power.do(func() error { return fs.FS.Remove(name) })
}

func (fs *powerFS) MkdirAll(dir string, perm os.FileMode) error {
	return fs.power.do(func() error { return fs.FS.MkdirAll(dir, perm) })
}

type powerFile struct {
	vfs.File
	power *power
}

func (f *powerFile) Write(p []byte) (n int, err error) {
	err = f.power.do(func() error {
		n, err = f.File.Write(p)
		return err
	})
	return n, err
}

func (f *powerFile) Sync() error     { return f.power.do(f.File.Sync) }
func (f *powerFile) SyncData() error { return f.power.do(f.File.SyncData) }

// A pluggedMachine is a backend on a disk with a plug.
type pluggedMachine struct {
	*Backend
	power *power
}

// OpenQueue returns a queue that delivers nothing when the power is off.
func (m *pluggedMachine) OpenQueue(ctx context.Context, name string) (driver.Queue, error) {
	q, err := m.Backend.OpenQueue(ctx, name)
	if err != nil {
		return nil, err
	}
	return &pluggedQueue{Queue: q, DeadLetterer: q.(driver.DeadLetterer), Peeker: q.(driver.Peeker), power: m.power}, nil
}

type pluggedQueue struct {
	driver.Queue
	driver.DeadLetterer
	driver.Peeker
	power *power
}

func (q *pluggedQueue) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	if q.power.isOff() {
		return nil, &driver.Error{Code: driver.ErrUnavailable, Op: "receive", Err: errPowerOff}
	}
	return q.Queue.Receive(ctx, req)
}

// A pluggedBackend is restarted by RunConcurrent every three seconds. Shortly
// before that the power fails, at some operation.
type pluggedBackend struct {
	restarts int // after so many it goes on
	rng      *rand.Rand

	cuts, inUse int // how often power was cut, and while something was done
}

func (p *pluggedBackend) start(t testing.TB, disk *storetest.Disk) driver.Opener {
	t.Helper()
	m := &pluggedMachine{power: &power{
		disk: disk, rng: p.rng, spared: p.rng.IntN(8),
		fails: time.Now().Add(2400*time.Millisecond + time.Duration(p.rng.Int64N(int64(600*time.Millisecond)))),
	}}
	if p.cuts == p.restarts {
		m.power.fails = time.Now().Add(1000 * time.Hour)
	}
	var err error
	m.Backend, err = Open(t.Context(), "queues", &Options{
		fs: &powerFS{FS: disk.FS(), power: m.power}, boot: bubbleClock{}, small: true,
		OnFail: func(err error) {
			if !errors.Is(err, errPowerOff) {
				t.Errorf("the store has failed: %v", err)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func (p *pluggedBackend) restart(t testing.TB, old driver.Opener, _ drivertest.Crash) driver.Opener {
	m := old.(*pluggedMachine)
	image, inUse := m.power.cut()
	p.cuts++
	if inUse {
		p.inUse++
	}
	_ = m.Close() // says that the power is off
	return p.start(t, storetest.DiskFrom(image))
}

func TestKeepsItsPromisesThroughPowerCutsUnderLoad(t *testing.T) {
	load := drivertest.Load{Producers: 8, Consumers: 8, Messages: 4000, Restarts: 12}
	if raceDetector { // which makes the engine slow
		load = drivertest.Load{Producers: 3, Consumers: 6, Messages: 900, Restarts: 6}
	}
	inUse := 0
	for seed, test := range []struct {
		name   string
		config driver.Config
	}{
		{"defaults", driver.Config{}},
		{"strict groups", driver.Config{StrictGroups: true}},
		{"several shards", driver.Config{Shards: 4}},
		{"several shards of strict groups", driver.Config{Shards: 4, StrictGroups: true}},
		{"tight bounds", driver.Config{MaxMessages: 600, MaxInFlight: 100, MaxHold: 2}},
		{"few deliveries", driver.Config{MaxDeliveries: 3, MaxDead: 100}},
		{"a short memory", driver.Config{DedupWindow: 5 * time.Second}},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := &pluggedBackend{restarts: load.Restarts, rng: rand.New(rand.NewPCG(uint64(seed), 5))}
			backend := drivertest.Backend{
				Open:    func(t testing.TB) driver.Opener { return p.start(t, storetest.NewDisk()) },
				Restart: p.restart,
				Crashes: []drivertest.Crash{drivertest.CrashPower},
				Virtual: true,
			}
			load := load
			load.Config, load.Seed = test.config, uint64(1+seed)
			drivertest.RunConcurrent(t, backend, load)
			t.Logf("%d power cuts, %d of them in the middle of something", p.cuts, p.inUse)
			inUse += p.inUse
		})
	}
	if inUse < 10 {
		t.Errorf("the power was cut only %d times while it was needed", inUse)
	}
}
