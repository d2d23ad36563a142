package diskbox

import (
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/driver/drivertest"
	"github.com/mailboxmq/mailbox/internal/testing/storetest"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

// power fails at some operation on the disk, or when it is cut. The machine continues
// afterwards, but its answers no longer reach clients.
type power struct {
	disk *storetest.Disk
	rng  *rand.Rand

	mu     sync.Mutex // guards the fields below
	fails  time.Time
	spared int        // later operations that still take place
	image  *vfs.MemFS // not nil if the power is off
}

// cut cuts the power, once. inUse reports that it was cut during an operation.
func (p *power) cut() (image *vfs.MemFS, inUse bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	inUse = p.image != nil
	if !inUse {
		p.image = p.disk.Image(p.rng)
	}
	return p.image, inUse
}

// before is the hook of the disk.
func (p *power) before(storetest.Operation) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.image == nil && !time.Now().Before(p.fails) {
		if p.spared--; p.spared < 0 {
			p.image = p.disk.Image(p.rng)
		}
	}
	return nil
}

// answer returns err, or an error if the power is off.
func (p *power) answer(err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.image != nil {
		return &driver.Error{Code: driver.ErrUnavailable, Detail: "the power is off"}
	}
	return err
}

// A pluggedMachine is a backend on a machine whose power can be cut.
type pluggedMachine struct {
	*Backend
	power *power
}

func (m *pluggedMachine) OpenQueue(ctx context.Context, name string) (driver.Queue, error) {
	q, err := m.Backend.OpenQueue(ctx, name)
	if err != nil {
		return nil, err
	}
	return &pluggedQueue{Queue: q, power: m.power}, nil
}

// A pluggedQueue is a queue whose answers are lost while the power is off.
type pluggedQueue struct {
	driver.Queue
	power *power
}

// heard returns an answer, or an error if the power is off.
func heard[T any](p *power, answer T, err error) (T, error) {
	if err := p.answer(err); err != nil {
		var nothing T
		if _, isBatch := errors.AsType[*driver.BatchError](err); isBatch {
			return answer, err
		}
		return nothing, err
	}
	return answer, nil
}

func (q *pluggedQueue) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	sent, err := q.Queue.Send(ctx, msgs)
	return heard(q.power, sent, err)
}

func (q *pluggedQueue) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	got, err := q.Queue.Receive(ctx, req)
	return heard(q.power, got, err)
}

func (q *pluggedQueue) Ack(ctx context.Context, receipts []driver.Receipt) error {
	return q.power.answer(q.Queue.Ack(ctx, receipts))
}

func (q *pluggedQueue) Nack(ctx context.Context, nacks []driver.Nack) error {
	return q.power.answer(q.Queue.Nack(ctx, nacks))
}

func (q *pluggedQueue) Extend(ctx context.Context, extensions []driver.Extension) ([]time.Duration, error) {
	granted, err := q.Queue.Extend(ctx, extensions)
	return granted, q.power.answer(err)
}

func (q *pluggedQueue) Purge(ctx context.Context) (int, error) {
	removed, err := q.Queue.Purge(ctx)
	return heard(q.power, removed, err)
}

func (q *pluggedQueue) Stats(ctx context.Context) (driver.Stats, error) {
	stats, err := q.Queue.Stats(ctx)
	return heard(q.power, stats, err)
}

func (q *pluggedQueue) DeadLetter(ctx context.Context, requests []driver.DeadLetterRequest) error {
	return q.power.answer(q.Queue.DeadLetter(ctx, requests))
}

func (q *pluggedQueue) Redrive(ctx context.Context, ids []string, limit int) (int, error) {
	moved, err := q.Queue.Redrive(ctx, ids, limit)
	return heard(q.power, moved, err)
}

func (q *pluggedQueue) Discard(ctx context.Context, ids []string) (int, error) {
	removed, err := q.Queue.Discard(ctx, ids)
	return heard(q.power, removed, err)
}

func (q *pluggedQueue) PurgeDead(ctx context.Context) (int, error) {
	removed, err := q.Queue.PurgeDead(ctx)
	return heard(q.power, removed, err)
}

// DeadLetters, Traits and Close make no promise that a power cut could break.
func (q *pluggedQueue) DeadLetters(ctx context.Context) iter.Seq2[driver.DeadLetter, error] {
	return q.Queue.DeadLetters(ctx)
}

func (q *pluggedQueue) Traits() driver.Traits { return q.Queue.Traits() }
func (q *pluggedQueue) Close() error          { return q.Queue.Close() }

// A pluggedBackend is restarted by RunConcurrent every three seconds. Shortly before that the
// power fails, at some operation.
type pluggedBackend struct {
	restarts int // after this number the power stays on
	rng      *rand.Rand

	cuts, inUse int // power cuts, and those during an operation
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
	disk.Before(m.power.before)
	var err error
	m.Backend, err = Open(t.Context(), "queues", &Options{
		fs: disk.FS(), boot: bubbleClock{}, small: true,
		OnFail: func(err error) { t.Errorf("the store has failed: %v", err) },
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
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	return p.start(t, storetest.DiskFrom(image))
}

func TestKeepsItsPromisesThroughPowerCutsUnderLoad(t *testing.T) {
	volume.Repeats(t)
	load := drivertest.Load{Producers: 8, Consumers: 8, Messages: 4000, Restarts: 12}
	if volume.RaceDetector { // which makes the engine slow
		load = drivertest.Load{Producers: 2, Consumers: 4, Messages: 300, Restarts: 6}
	}
	inUse := 0
	for seed, test := range []struct {
		name   string
		config driver.Config
	}{
		{"defaults", driver.Config{}},
		{"strict groups", driver.Config{StrictGroups: true}},
		{"fair groups", driver.Config{FairGroups: true}},
		{"several shards", driver.Config{Shards: 4}},
		{"several shards of strict groups", driver.Config{Shards: 4, StrictGroups: true}},
		{"tight bounds", driver.Config{MaxMessages: 600, MaxInFlight: 100, MaxHold: 20 * time.Second}},
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
	if inUse == 0 {
		t.Error("the power was never cut while it was needed")
	}
}
