package diskbox

import (
	"context"
	crand "crypto/rand"
	"iter"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/computer"
	"github.com/mailboxmq/mailbox/internal/engine"
	"github.com/mailboxmq/mailbox/internal/host"
	"github.com/mailboxmq/mailbox/internal/slotstore"
	"github.com/mailboxmq/mailbox/internal/store"
)

// Backend holds queues in a directory. It is a driver.Opener, a driver.Admin
// and a driver.Pinger, and safe for concurrent use. One process at a time can
// have a directory open.
type Backend struct {
	host    *host.Backend
	store   *store.Store
	journal *journal
	slots   *slotstore.Store

	closeOnce sync.Once
	closeErr  error
}

var (
	_ driver.Opener     = (*Backend)(nil)
	_ driver.Admin      = (*Backend)(nil)
	_ driver.Pinger     = (*Backend)(nil)
	_ driver.Observable = (*Backend)(nil)
)

// Open opens the queues in dir, and creates dir if it does not exist. It restores the
// queues as they were left, and blocks until that is done; cancelling ctx abandons it. Codes: ErrInvalid (an option that is not allowed,
// or not a directory), ErrConflict (open in another process, or not ours),
// ErrIntegrity (damaged files; nothing is changed), ErrUnavailable.
func Open(ctx context.Context, dir string, options *Options) (*Backend, error) {
	var o Options
	if options != nil {
		o = *options
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	if c, ok := computer.From(ctx); ok {
		o.fs, o.boot, o.wall, o.small = c.FS, simulatedClock{c}, c.Wall, true
	}
	if o.boot == nil {
		o.boot = kernelClock{}
	}
	if o.wall == nil {
		o.wall = time.Now
	}
	var opened atomic.Pointer[Backend]
	if tell := o.OnFail; tell != nil {
		o.OnFail = func(err error) {
			if b := opened.Load(); b != nil {
				b.host.WakeAll() // waiting receivers return the error
				b.slots.WakeAll()
			}
			tell(err)
		}
	}
	policy, durability := o.policy()
	s, err := store.Open(ctx, dir, o.storeOptions(policy))
	if err != nil {
		return nil, err
	}
	b, err := assemble(s, o, durability)
	if err != nil {
		_ = s.Close()
		return nil, err
	}
	opened.Store(b)
	return b, nil
}

func assemble(s *store.Store, o Options, durability driver.Durability) (*Backend, error) {
	axis, err := readAxis(o.boot, o.wall, s)
	if err != nil {
		return nil, err
	}
	now := engine.Moment{At: axis.now(), Wall: o.wall().UnixNano()}
	recovered, err := recoverAll(s, axis, now)
	if err != nil {
		return nil, err
	}
	j := newJournal(s, axis)
	j.adopt(recovered)
	if j.secret == [32]byte{} {
		if j.secret = o.secret; j.secret == [32]byte{} {
			_, _ = crand.Read(j.secret[:]) // never fails, see crypto/rand
		}
		j.meta()
		if err := j.flush(); err != nil {
			return nil, err
		}
	}
	if recovered.closed {
		j.opened()
		if err := j.flush(); err != nil {
			return nil, err
		}
	}
	recovered.orphans.log(o.Logger)
	h := host.New(host.Options{
		Defaults: o.Defaults, MaxBodyBytes: o.MaxBodyBytes, Durability: durability,
		Journal: j, Secret: j.secret, Now: now, Wall: o.wall, Hold: o.hold(),
	})
	var queues []host.RestoredQueue
	for _, id := range slices.Sorted(maps.Keys(recovered.queues)) {
		queues = append(queues, *recovered.queues[id])
	}
	j.mu.Lock()
	axis.running = h.Now
	j.mu.Unlock()
	h.Restore(queues, recovered.lastID, recovered.crashed)
	slots := newSlots(j, h, &o)
	slots.Restore(recovered.slots)
	return &Backend{host: h, store: s, journal: j, slots: slots}, nil
}

// OpenQueue returns a handle on the queue called name, and creates the queue if it does
// not exist. It does not block. Codes: ErrInvalid, ErrClosed.
func (b *Backend) OpenQueue(ctx context.Context, name string) (driver.Queue, error) {
	return b.host.OpenQueue(ctx, name)
}

// DefaultTraits returns the traits of a queue that is created by opening it. It does no
// I/O, and creates nothing.
func (b *Backend) DefaultTraits() driver.Traits { return b.host.DefaultTraits() }

// ConfigureQueue creates the queue or changes its configuration. Shards,
// StrictGroups and FairGroups are fixed when the queue is created. It blocks until
// the change is durable. Codes: ErrInvalid, ErrUnsupported, ErrUnavailable, ErrClosed.
func (b *Backend) ConfigureQueue(ctx context.Context, name string, config driver.Config) error {
	return b.host.ConfigureQueue(ctx, name, config)
}

// QueueConfig returns the configuration in force, with nothing unset. It does not block. Codes:
// ErrNotFound.
func (b *Backend) QueueConfig(ctx context.Context, name string) (driver.Config, error) {
	return b.host.QueueConfig(ctx, name)
}

// Queues lists the names of all queues, in order.
func (b *Backend) Queues(ctx context.Context) iter.Seq2[string, error] { return b.host.Queues(ctx) }

// ScheduledQueues lists the queues that have schedules; see driver.ScheduleLister.
func (b *Backend) ScheduledQueues(ctx context.Context) iter.Seq2[driver.ScheduledQueue, error] {
	return b.host.ScheduledQueues(ctx)
}

// DeleteQueue removes a queue with all its messages. It blocks until that is durable.
// Codes: ErrNotFound, ErrUnavailable.
func (b *Backend) DeleteQueue(ctx context.Context, name string) error {
	return b.host.DeleteQueue(ctx, name)
}

// Ping returns nil if the store is taking writes. Codes: ErrClosed,
// ErrUnavailable (also while the disk hangs), ErrFull (the disk is nearly full).
func (b *Backend) Ping(ctx context.Context) error {
	if err := b.host.Ping(ctx); err != nil {
		return err
	}
	health := b.store.Health()
	if health.Failed != nil {
		return &driver.Error{Code: driver.ErrUnavailable, Op: "ping", Err: health.Failed}
	}
	if health.DiskHangs {
		return &driver.Error{Code: driver.ErrUnavailable, Op: "ping", Detail: "an operation on the disk does not return; see the log for the file"}
	}
	return b.store.Admit()
}

// Space is the free space of the volume of a backend. All fields are 0 if the file system
// does not report it.
type Space struct {
	VolumeBytes, FreeBytes, ReserveBytes uint64
	// SendsRefused says that less than the reserve is free, or was until now.
	SendsRefused bool
}

// Space returns the free space, at most a quarter of a second old.
func (b *Backend) Space() Space {
	h := b.store.Health()
	return Space{h.TotalBytes, h.FreeBytes, h.ReserveBytes, h.WritesRefused}
}

// Observe calls f for every ending until stop is called; see driver.Observable.
func (b *Backend) Observe(f func(driver.Ending)) (stop func()) { return b.host.Observe(f) }

// Close ends all queues and the reply store, and leaves them on disk. Calls that wait return
// ErrClosed, and so do all later calls. Closing twice is fine.
func (b *Backend) Close() error {
	b.closeOnce.Do(func() {
		_ = b.host.Close()
		b.slots.Close()
		b.journal.closed()
		b.closeErr = b.journal.flush()
		if err := b.store.Close(); b.closeErr == nil {
			b.closeErr = err
		}
	})
	return b.closeErr
}
