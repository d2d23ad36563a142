package host

import (
	"context"
	crand "crypto/rand"
	"encoding/binary"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/endings"
	"github.com/mailboxmq/mailbox/internal/engine"
	"github.com/mailboxmq/mailbox/internal/opening"
)

// Backend holds queues. It is a driver.Opener, a driver.Admin and a
// driver.Pinger, and safe for concurrent use.
type Backend struct {
	options  Options
	clock    clock
	groupKey uint64 // from Secret
	// latestTraits are the traits of the queue that was configured last.
	latestTraits atomic.Pointer[driver.Traits]

	observers    endings.Observers
	pendings     sync.Pool // of *Pending
	spareWaiters sync.Pool // of *waiter
	hashers      sync.Pool // of *blake3.Hasher, keyed with Secret

	// setup serialises creating, configuring and deleting queues, and Move. It is
	// locked before mu, and held while waiting for the journal.
	setup   sync.Mutex
	nextID  uint32              // guarded by setup
	sources map[string][]*queue // by their DeadLetterTo; guarded by setup

	mu     sync.Mutex // guards the fields below; not held while blocking
	queues map[string]*queue
	closed bool
}

// Options configure a Backend.
type Options struct {
	// Defaults is the configuration of queues that are opened without having been
	// configured, and provides the unset fields of a new queue's configuration.
	// Invalid defaults are reported when a queue is opened.
	Defaults driver.Config
	// MaxBodyBytes bounds bodies; 0 means driver.DefaultMaxBodyBytes. A negative
	// value is reported when a queue is opened.
	MaxBodyBytes int
	// Durability is what the queues promise.
	Durability driver.Durability
	// Journal records operations; nil means that messages are only in memory.
	Journal Journal
	// Secret keys the hashes of dedup keys. It must stay the same over the life of a
	// journal; all zeros mean a random secret.
	Secret [32]byte
	// Hold bounds the messages in memory if there is a journal.
	Hold engine.Limits
	// Wipe overwrites messages that are gone; see packed.wipe.
	Wipe bool
	// Now is the start of the time axis, after all times in the journal, and the wall time
	// of which Restore gets the counts.
	Now engine.Moment
	// Wall reads the wall clock; nil means time.Now.
	Wall func() time.Time
}

// New returns an empty backend. It does no I/O.
func New(options Options) *Backend {
	b := &Backend{options: options, queues: make(map[string]*queue), sources: make(map[string][]*queue)}
	b.clock.init(options.Now.At, options.Wall)
	if b.options.Secret == [32]byte{} {
		_, _ = crand.Read(b.options.Secret[:]) // never fails, see crypto/rand
	}
	b.groupKey = binary.LittleEndian.Uint64(b.options.Secret[:])
	if b.options.Durability == "" {
		b.options.Durability = driver.DurabilityNone
	}
	if b.options.MaxBodyBytes == 0 {
		b.options.MaxBodyBytes = driver.DefaultMaxBodyBytes
	}
	return b
}

// groupHash spreads groups over shards. It is the same over the life of a journal,
// and clients cannot predict which groups share a shard: it is FNV-1a from a secret
// start, mixed at the end.
func (b *Backend) groupHash(group string) uint64 {
	hash := b.groupKey
	for i := range len(group) {
		hash = (hash ^ uint64(group[i])) * 0x100000001b3
	}
	hash ^= hash >> 32
	hash *= 0x9e3779b97f4a7c15
	return hash ^ hash>>29
}

// receiptSeal returns the secret in the receipts of a shard. It is the same over the
// life of a journal, and differs between shards.
func (b *Backend) receiptSeal(shard ShardID) uint64 {
	return (b.groupKey ^ uint64(shard.Queue)<<16 ^ uint64(shard.Shard)) * 0x9e3779b97f4a7c15
}

// OpenQueue returns a handle on the queue called name, and creates the queue if it
// does not exist. It does not block, unless it creates the queue while others are
// being configured. Codes: ErrInvalid, ErrClosed.
func (b *Backend) OpenQueue(ctx context.Context, name string) (driver.Queue, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := driver.CheckName(name); err != nil {
		return nil, err
	}
	q, err := b.find(name, "open")
	if err == nil && q == nil {
		b.setup.Lock()
		defer b.setup.Unlock()
		if q, err = b.find(name, "open"); err == nil && q == nil { // it was not created meanwhile
			q, err = b.createLocked(name, b.defaultsLocked(name), false)
		}
	}
	if err != nil {
		return nil, err
	}
	return newHandle(q), nil
}

// Owns reports whether a queue was opened with OpenQueue of this backend.
func (b *Backend) Owns(queue driver.Queue) bool {
	h, ok := queue.(*handle)
	return ok && h.backend == b
}

// find returns the queue called name, or nil if it does not exist.
func (b *Backend) find(name, op string) (*queue, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, &driver.Error{Code: driver.ErrClosed, Op: op, Queue: name}
	}
	return b.queues[name], nil
}

// link adds q to the sources of target, the queue that its dead letters are forwarded
// to; unlink removes it. Setup is locked.
func (b *Backend) link(q *queue, target string) {
	if target != "" {
		b.sources[target] = append(b.sources[target], q)
	}
}

func (b *Backend) unlink(q *queue) {
	target := q.settings.Load().config.DeadLetterTo
	left := slices.DeleteFunc(b.sources[target], func(other *queue) bool { return other == q })
	if len(left) == 0 {
		delete(b.sources, target)
		return
	}
	b.sources[target] = left
}

// defaultsLocked returns the configuration of a queue that was not configured. It is
// Defaults, but a queue that dead letters are forwarded to does not inherit
// DeadLetterTo.
func (b *Backend) defaultsLocked(name string) driver.Config {
	defaults := b.options.Defaults
	if defaults.DeadLetterTo == name {
		defaults.DeadLetterTo = ""
	}
	if len(b.sources[name]) > 0 {
		defaults.DeadLetterTo = ""
	}
	return defaults
}

// createLocked creates a queue. If durable is set it waits until the queue is
// durable; otherwise the queue becomes durable with its first message. Setup is
// locked.
func (b *Backend) createLocked(name string, asked driver.Config, durable bool) (*queue, error) {
	config, err := b.resolve(name, asked, nil)
	if err != nil {
		return nil, err
	}
	b.nextID++
	q := newQueue(b, b.nextID, name, config)
	target, err := b.targetLocked(q, config)
	if err != nil {
		return nil, err
	}
	if err := b.writeConfigLocked(q, config, durable); err != nil {
		return nil, err
	}
	if target == q { // before a message can die
		mark([]*queue{q}, true)
	}
	q.configure(config, target)
	b.mu.Lock()
	closed := b.closed
	if !closed {
		b.queues[name] = q
	}
	b.mu.Unlock()
	if closed {
		q.end(driver.ErrClosed)
		return nil, &driver.Error{Code: driver.ErrClosed, Op: "configure", Queue: name}
	}
	q.recordEndings()
	b.link(q, config.DeadLetterTo)
	mark(b.circle(q, target), true)
	for _, source := range b.sources[name] { // they kept their dead letters while it did not exist
		source.configure(source.settings.Load().config, q)
	}
	return q, nil
}

func (b *Backend) writeConfigLocked(q *queue, config driver.Config, durable bool) error {
	if durable {
		return b.durably(func(journal Journal) { journal.Configured(q.id, q.name, config, q.paused, q.throttled) })
	}
	if journal := q.journal; journal != nil {
		journal.Lock()
		journal.Configured(q.id, q.name, config, q.paused, q.throttled)
		journal.Unlock()
		journal.Ride()
	}
	return nil
}

// ConfigureQueue creates the queue or changes its configuration. Shards,
// StrictGroups and FairGroups are fixed when the queue is created. It does not
// block. Codes: ErrInvalid, ErrUnsupported, ErrClosed.
func (b *Backend) ConfigureQueue(ctx context.Context, name string, config driver.Config) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := driver.CheckName(name); err != nil {
		return err
	}
	if err := config.Validate(); err != nil {
		return err
	}
	b.setup.Lock()
	defer b.setup.Unlock()
	q, err := b.find(name, "configure")
	if err != nil {
		return err
	}
	if q == nil {
		_, err := b.createLocked(name, config, true)
		return err
	}
	if config, err = b.resolve(name, config, &q.settings.Load().config); err != nil {
		return err
	}
	if err := q.checkChange(config); err != nil {
		return err
	}
	target, err := b.targetLocked(q, config)
	if err != nil {
		return err
	}
	if err := b.writeConfigLocked(q, config, true); err != nil {
		return err
	}
	before, after := b.circle(q, b.targetOf(q)), b.circle(q, target)
	b.unlink(q)
	b.link(q, config.DeadLetterTo)
	mark(after, true)
	q.configure(config, target)
	mark(slices.DeleteFunc(before, func(one *queue) bool { return slices.Contains(after, one) }), false)
	return nil
}

// targetLocked returns the queue config.DeadLetterTo, and creates it if it does not
// exist. It returns nil if the field is empty.
func (b *Backend) targetLocked(q *queue, config driver.Config) (*queue, error) {
	switch config.DeadLetterTo {
	case "":
		return nil, nil
	case q.name:
		return q, nil
	}
	target, err := b.find(config.DeadLetterTo, "configure")
	if err == nil && target == nil {
		defaults := b.defaultsLocked(config.DeadLetterTo)
		defaults.DeadLetterTo = "" // q is not among the queues yet
		return b.createLocked(config.DeadLetterTo, defaults, false)
	}
	return target, err
}

// resolve completes config as it is stored. existing is the configuration in force,
// or nil.
func (b *Backend) resolve(name string, config driver.Config, existing *driver.Config) (driver.Config, error) {
	if err := opening.CheckOption("MaxBodyBytes", int64(b.options.MaxBodyBytes)); err != nil {
		return config, err
	}
	for _, given := range []driver.Config{config, b.options.Defaults} {
		if err := given.Validate(); err != nil {
			return config, err
		}
	}
	config = config.Resolve(existing, b.options.Defaults).Stored()
	return config, checkConfig(name, config)
}

// checkConfig refuses limits that cannot be split over the shards.
func checkConfig(name string, config driver.Config) error {
	shards := max(config.Shards, 1)
	for _, bound := range []struct {
		field string
		value int
	}{
		{"MaxMessages", config.MaxMessages},
		{"MaxBytes", config.MaxBytes},
		{"MaxInFlight", config.MaxInFlight},
		{"MaxDead", config.MaxDead},
		{"RetainReady.Count", config.RetainReady.Count},
		{"RetainDead.Count", config.RetainDead.Count},
	} {
		if bound.value > 0 && bound.value < shards {
			return &driver.Error{
				Code: driver.ErrInvalid, Op: "configure", Queue: name, Field: bound.field,
				Detail: fmt.Sprintf("%d cannot be split over %d shards; use at least 1 a shard", bound.value, shards),
			}
		}
	}
	return nil
}

// QueueConfig returns the configuration in force, with nothing unset. Codes:
// ErrNotFound.
func (b *Backend) QueueConfig(ctx context.Context, name string) (driver.Config, error) {
	if err := ctx.Err(); err != nil {
		return driver.Config{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	q := b.queues[name]
	if q == nil {
		return driver.Config{}, &driver.Error{Code: driver.ErrNotFound, Op: "configure", Queue: name}
	}
	return q.settings.Load().config.Effective(), nil
}

// Queues lists the names of all queues, in order.
func (b *Backend) Queues(ctx context.Context) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		b.mu.Lock()
		names := slices.Sorted(maps.Keys(b.queues))
		b.mu.Unlock()
		for _, name := range names {
			if err := ctx.Err(); err != nil {
				yield("", err)
				return
			}
			if !yield(name, nil) {
				return
			}
		}
	}
}

// DeleteQueue removes a queue with all its messages. Codes: ErrNotFound.
func (b *Backend) DeleteQueue(ctx context.Context, name string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	b.setup.Lock()
	defer b.setup.Unlock()
	b.mu.Lock()
	q := b.queues[name]
	b.mu.Unlock()
	if q == nil {
		return &driver.Error{Code: driver.ErrNotFound, Op: "delete", Queue: name}
	}
	circle := b.circle(q, b.targetOf(q))
	b.mu.Lock()
	delete(b.queues, name)
	b.mu.Unlock()
	b.unlink(q)
	for _, source := range b.sources[name] {
		source.forgetTarget(q)
	}
	if len(circle) > 1 {
		mark(circle[1:], false) // q itself may still be its own target until it ends
	}
	q.end(driver.ErrNotFound)
	return q.named(q.delete(), "delete")
}

// Ping returns nil until the backend is closed.
func (b *Backend) Ping(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return &driver.Error{Code: driver.ErrClosed, Op: "ping"}
	}
	return nil
}

// Close ends all queues and releases their messages. Waiting receives return
// ErrClosed, and so do all later calls. Closing twice is fine.
func (b *Backend) Close() error {
	b.mu.Lock()
	b.closed = true
	queues := slices.Collect(maps.Values(b.queues))
	clear(b.queues)
	b.mu.Unlock()
	for _, q := range queues {
		q.end(driver.ErrClosed)
	}
	return nil
}

// allQueues returns the queues that exist, in no order.
func (b *Backend) allQueues() []*queue {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(maps.Values(b.queues))
}
