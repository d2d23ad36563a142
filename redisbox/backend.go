package redisbox

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/redis/rueidis"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/redisbox/internal/shard"
)

// Backend holds queues in Redis. It is a driver.Opener, a driver.Admin and a
// driver.Pinger, and safe for concurrent use. Any number of processes can use
// the same queues.
type Backend struct {
	server     *shard.Server
	options    Options
	durability driver.Durability
	oneServer  bool        // no cluster, so that a script can use all keys
	slotKeys   []string    // the slots of all buckets
	answers    atomic.Bool // it has a reply store

	mu      sync.Mutex // guards the fields below
	queues  map[string]*queue
	replies []*replyStore
	closed  bool
}

var (
	_ driver.Opener     = (*Backend)(nil)
	_ driver.Admin      = (*Backend)(nil)
	_ driver.Pinger     = (*Backend)(nil)
	_ driver.Observable = (*Backend)(nil)
)

// Open returns a backend for the queues in the servers that client talks to: a single
// server, one watched by sentinels, or a cluster. The caller keeps the client, and
// closes it after the backend.
//
// It reads the settings of the servers, and blocks for that; cancelling ctx abandons it.
// Codes: ErrInvalid (an option), ErrUnsupported (the servers are too old or, with
// Options.Strict, would lose messages), ErrUnauthenticated, ErrForbidden (the server
// refuses the client, or a command), ErrUnavailable. Any call on the backend can return
// the latter three, and ErrConflict where another program has written to the keys of a
// queue.
func Open(ctx context.Context, client rueidis.Client, options *Options) (*Backend, error) {
	b := &Backend{options: options.withDefaults(), queues: make(map[string]*queue)}
	if err := b.options.check(); err != nil {
		return nil, err
	}
	b.server = shard.NewServer(client, shard.Options{
		Prefix: b.options.Prefix, Replicas: b.options.Replicas, ReplicaTimeout: b.options.ReplicaTimeout,
		RetryFor: b.options.RetryFor, Logger: b.options.Logger,
	})
	for i := range shard.Buckets {
		b.slotKeys = append(b.slotKeys, shard.BucketTag(b.options.Prefix, i)+"slots")
	}
	if err := b.inspect(ctx); err != nil {
		return nil, driver.Annotate(err, "", "open")
	}
	return b, nil
}

// OpenQueue returns a handle on the queue called name, and creates the queue if it does
// not exist. It blocks for a round trip or two. Codes: ErrInvalid, ErrClosed,
// ErrUnavailable, ErrFull (it does not exist, and the server is out of memory).
func (b *Backend) OpenQueue(ctx context.Context, name string) (driver.Queue, error) {
	q, err := b.enter(ctx, name)
	if err != nil {
		return nil, driver.Annotate(err, name, "open")
	}
	return newHandle(q), nil
}

// DefaultTraits returns the traits of a queue that OpenQueue creates. It does no I/O,
// and creates none.
func (b *Backend) DefaultTraits() driver.Traits { return b.newSettings(b.options.Defaults, 0).Traits }

// enter opens a queue, or joins the handles that have it open in this process.
func (b *Backend) enter(ctx context.Context, name string) (*queue, error) {
	if err := b.checkOpen(ctx, name); err != nil {
		return nil, err
	}
	config := b.options.Defaults
	if config.DeadLetterTo == name {
		config.DeadLetterTo = "" // dead letters of the target stay there
	}
	config, err := b.resolve(name, config, nil)
	if err != nil {
		return nil, err
	}
	if !b.knows(name) {
		if err := b.prepare(ctx, name, config); err != nil && !b.isThere(ctx, name, err) {
			return nil, err
		}
	}
	state, err := b.openFirst(ctx, name, config)
	if err != nil {
		return nil, err
	}
	q, isNew, err := b.join(name, state)
	if err == nil && isNew {
		if err = b.adopt(ctx, name, state); err != nil {
			b.leave(q)
		}
	}
	return q, err
}

func (b *Backend) checkOpen(ctx context.Context, name string) error {
	if err := driver.CheckName(name); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return &driver.Error{Code: driver.ErrClosed}
	}
	return ctx.Err()
}

// isThere reports whether err, of prepare, only means that the server is out of memory,
// and the queue exists: a consumer that drains it must be able to open it.
func (b *Backend) isThere(ctx context.Context, name string, err error) bool {
	if !errors.Is(err, driver.ErrFull) {
		return false
	}
	state, err := b.server.Look(ctx, name)
	return err == nil && state.Status == "ok"
}

func (b *Backend) knows(name string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.queues[name] != nil
}

// prepare adds a queue to the registry, and creates the queue that its dead letters go
// to.
func (b *Backend) prepare(ctx context.Context, name string, config driver.Config) error {
	if target := config.DeadLetterTo; target != "" && target != name {
		defaults := b.options.Defaults
		defaults.DeadLetterTo = ""
		defaults, err := b.resolve(target, defaults, nil)
		if err != nil {
			return err
		}
		if err := b.prepare(ctx, target, defaults); err != nil {
			return err
		}
		state, err := b.openFirst(ctx, target, defaults)
		if err != nil {
			return err
		}
		if err := b.adopt(ctx, target, state); err != nil {
			return err
		}
	}
	_, err := shard.Request(ctx, b.server, func(ctx context.Context) (int64, error) {
		return b.server.Client.Do(ctx, b.server.Client.B().Sadd().Key(shard.Registry(b.options.Prefix)).Member(name).Build()).AsInt64()
	})
	if b.isThere(ctx, name, err) { // and so in the registry
		return nil
	}
	return err
}

// join returns the queue that all handles of this process share, and counts one more
// handle.
func (b *Backend) join(name string, state *shard.Opened) (q *queue, isNew bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, false, &driver.Error{Code: driver.ErrClosed}
	}
	q = b.queues[name]
	if q == nil || q.Incarnation != state.Incarnation || q.isEnded.Load() {
		if q != nil {
			q.end(driver.ErrNotFound)
		}
		q, isNew = newQueue(b, name, state), true
		b.queues[name] = q
	}
	q.NoteTime(state)
	q.handles++
	return q, isNew, nil
}

// leave closes one handle on a queue; the last one ends the watching of its shards.
func (b *Backend) leave(q *queue) {
	b.mu.Lock()
	q.handles--
	last := q.handles == 0
	if last && b.queues[q.Name] == q {
		delete(b.queues, q.Name)
	}
	b.mu.Unlock()
	if last {
		q.stopWatching()
	}
}

// openFirst opens the first shard, creating it if necessary, after finishing an
// interrupted deletion.
func (b *Backend) openFirst(ctx context.Context, name string, config driver.Config) (*shard.Opened, error) {
	return b.afterDeletion(ctx, name, func() (*shard.Opened, error) {
		return b.server.OpenShard(ctx, name, 0, "o", shard.NewIncarnation(), 0, config)
	})
}

// configureFirst configures the first shard, creating it if necessary. The status is
// changed if the configuration has changed since existing was read.
func (b *Backend) configureFirst(ctx context.Context, name string, existing *shard.Opened, config driver.Config) (*shard.Opened, error) {
	incarnation, version := shard.NewIncarnation(), int64(0)
	if existing.Status == "ok" {
		incarnation, version = existing.Incarnation, existing.Version
	}
	return b.afterDeletion(ctx, name, func() (*shard.Opened, error) {
		return b.server.OpenShard(ctx, name, 0, "c", incarnation, version, config)
	})
}

// afterDeletion calls open until the queue is not being deleted. It finishes an
// interrupted deletion.
func (b *Backend) afterDeletion(ctx context.Context, name string, open func() (*shard.Opened, error)) (*shard.Opened, error) {
	for {
		state, err := open()
		if err != nil || state.Status != "deleting" {
			return state, err
		}
		if err := b.remove(ctx, name, state); err != nil && !errors.Is(err, driver.ErrNotFound) {
			return nil, err
		}
	}
}

// adopt makes all shards but the first follow it.
func (b *Backend) adopt(ctx context.Context, name string, first *shard.Opened) error {
	n := max(first.Config.Shards, 1)
	errs := make([]error, n)
	var group sync.WaitGroup
	for i := 1; i < n; i++ {
		group.Go(func() {
			state, err := b.server.OpenShard(ctx, name, i, "a", first.Incarnation, first.Version, first.Config)
			if err == nil && state.Status != "ok" {
				err = &driver.Error{Code: driver.ErrNotFound, Detail: "was deleted meanwhile"}
			}
			errs[i] = err
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

// transfers finds the queues of a backend for package transfer.
type transfers struct{ *Backend }

// Target returns the queue of that name, or nil.
func (b transfers) Target(ctx context.Context, name string) (*shard.Queue, error) {
	state, err := b.server.Look(ctx, name)
	if err != nil || state.Status != "ok" {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if q := b.queues[name]; q != nil && q.Incarnation == state.Incarnation && !q.isEnded.Load() {
		return q.Queue, nil
	}
	return newQueue(b.Backend, name, state).Queue, nil
}

// DeadLetterTo returns where the queue of that name forwards its dead letters, or "".
func (b transfers) DeadLetterTo(ctx context.Context, name string) (string, error) {
	state, err := b.server.Look(ctx, name)
	if err != nil || state.Status != "ok" {
		return "", err
	}
	return state.Config.DeadLetterTo, nil
}

// StartForwarding makes a shard forward its dead letters. It does not wait.
func (b transfers) StartForwarding(ctx context.Context, s *shard.Shard) {
	s.Queue.Owner.(*queue).forwarders[s.Number].Start(ctx)
}

// Ping returns nil if the server that has the registry of queues answers and accepts
// writes. It blocks for a round trip and does not retry. Codes: ErrClosed,
// ErrUnavailable, ErrFull (out of memory).
func (b *Backend) Ping(ctx context.Context) error {
	b.mu.Lock()
	closed := b.closed
	b.mu.Unlock()
	if closed {
		return &driver.Error{Code: driver.ErrClosed, Op: "ping"}
	}
	_, err := shard.CallCancellable(ctx, b.server, ctx.Done() != nil, func() (int64, error) {
		key := []string{shard.Registry(b.options.Prefix)}
		n, err := b.server.Client.Do(ctx, shard.Command(b.server.Client, shard.PingScript, key, nil, false)).AsInt64()
		if shard.IsNoScript(err) {
			n, err = b.server.Client.Do(ctx, shard.Command(b.server.Client, shard.PingScript, key, nil, true)).AsInt64()
		}
		return n, err
	})
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return driver.Annotate(shard.AsDriverError(err), "", "ping")
}

// Close ends all handles and waits until running calls have been answered. Waiting
// receives return ErrClosed, and so do all later calls. Messages stay on the server, and
// the client stays open. Closing twice is fine.
func (b *Backend) Close() error {
	b.mu.Lock()
	if !b.closed {
		b.closed = true
		b.server.Close()
	}
	for _, q := range b.queues {
		q.end(driver.ErrClosed)
	}
	clear(b.queues)
	for _, r := range b.replies {
		r.stop()
	}
	b.replies = nil
	b.mu.Unlock()
	b.server.Running.Wait()
	return nil
}

// Observe calls f for every ending in a call of this process, until
// stop is called; see driver.Observable.
func (b *Backend) Observe(f func(driver.Ending)) (stop func()) { return b.server.Observers.Add(f) }

// newSettings returns a configuration with its traits.
func (b *Backend) newSettings(config driver.Config, version int64) *shard.Settings {
	traits := driver.Traits{
		Ordering:      driver.OrderingFIFO,
		Durability:    b.durability,
		ExactStats:    true,
		Groups:        true,
		StrictGroups:  config.StrictGroups,
		DeadLetters:   true,
		Peek:          true,
		PeekCursor:    true,
		Move:          true,
		LateAck:       true,
		ForgetDedup:   true,
		Pause:         true,
		Schedules:     true,
		Release:       true,
		DeliverAt:     true,
		Edit:          true,
		TTL:           true,
		Priorities:    !config.StrictGroups,
		UniqueKeys:    config.Shards <= 1 || !config.StrictGroups,
		Usage:         true,
		DedupWindow:   shard.DedupWindow(config),
		MaxBodyBytes:  b.options.MaxBodyBytes,
		MaxAttributes: driver.MaxAttributes, MaxAttributeBytes: driver.MaxAttributeBytes,
		MaxBatch:      driver.DefaultMaxBatch,
		MaxDelay:      driver.DefaultMaxDelay,
		MaxVisibility: driver.DefaultMaxVisibility,
	}
	if config.Shards > 1 {
		traits.Ordering = driver.OrderingPerShard
	}
	return &shard.Settings{Config: config, Traits: traits, Version: version}
}
