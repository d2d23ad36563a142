package redisbox

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/redis/rueidis"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/endings"
)

// Backend holds queues in Redis. It is a driver.Opener, a driver.Admin and a
// driver.Pinger, and safe for concurrent use. Any number of processes can use
// the same queues.
type Backend struct {
	client     rueidis.Client
	options    Options
	durability driver.Durability
	oneServer  bool     // no cluster, so that a script can use all keys
	slotKeys   []string // the slots of all buckets
	running    goroutines
	closing    chan struct{} // closed by Close
	observers  endings.Observers
	answers    atomic.Bool // it has a reply store

	mu      sync.Mutex // guards the fields below
	queues  map[string]*queue
	replies []*Replies
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
	b := &Backend{
		client: client, options: options.withDefaults(),
		closing: make(chan struct{}), queues: make(map[string]*queue),
	}
	if err := b.options.check(); err != nil {
		return nil, err
	}
	for i := range buckets {
		b.slotKeys = append(b.slotKeys, bucketTag(b.options.Prefix, i)+"slots")
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
func (b *Backend) DefaultTraits() driver.Traits { return b.newSettings(b.options.Defaults, 0).traits }

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
	state, err := b.look(ctx, name)
	return err == nil && state.status == "ok"
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
	_, err := request(ctx, b, func(ctx context.Context) (int64, error) {
		return b.client.Do(ctx, b.client.B().Sadd().Key(registry(b.options.Prefix)).Member(name).Build()).AsInt64()
	})
	if b.isThere(ctx, name, err) { // and so in the registry
		return nil
	}
	return err
}

// join returns the queue that all handles of this process share, and counts one more
// handle.
func (b *Backend) join(name string, state *opened) (q *queue, isNew bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, false, &driver.Error{Code: driver.ErrClosed}
	}
	q = b.queues[name]
	if q == nil || q.incarnation != state.incarnation || q.isEnded.Load() {
		if q != nil {
			q.end(driver.ErrNotFound)
		}
		q, isNew = newQueue(b, name, state), true
		b.queues[name] = q
	}
	for _, s := range q.shards {
		s.clock.saw(0, state.wall, 0)
	}
	q.handles++
	return q, isNew, nil
}

// leave closes one handle on a queue; the last one ends the watching of its shards.
func (b *Backend) leave(q *queue) {
	b.mu.Lock()
	q.handles--
	last := q.handles == 0
	if last && b.queues[q.name] == q {
		delete(b.queues, q.name)
	}
	b.mu.Unlock()
	if last {
		q.stopWatching()
	}
}

// opened is the answer of open.lua.
type opened struct {
	status      string
	incarnation string
	version     int64
	config      driver.Config
	wall        float64
}

// existing returns the configuration in force, or nil.
func (o *opened) existing() *driver.Config {
	if o.status != "ok" {
		return nil
	}
	return &o.config
}

// look reads the settings of a queue. The status is missing if it does not exist.
func (b *Backend) look(ctx context.Context, name string) (*opened, error) {
	return b.openShard(ctx, name, 0, "l", "", 0, driver.Config{})
}

// openFirst opens the first shard, creating it if necessary, after finishing an
// interrupted deletion.
func (b *Backend) openFirst(ctx context.Context, name string, config driver.Config) (*opened, error) {
	return b.afterDeletion(ctx, name, func() (*opened, error) {
		return b.openShard(ctx, name, 0, "o", newIncarnation(), 0, config)
	})
}

// configureFirst configures the first shard, creating it if necessary. The status is
// changed if the configuration has changed since existing was read.
func (b *Backend) configureFirst(ctx context.Context, name string, existing *opened, config driver.Config) (*opened, error) {
	incarnation, version := newIncarnation(), int64(0)
	if existing.status == "ok" {
		incarnation, version = existing.incarnation, existing.version
	}
	return b.afterDeletion(ctx, name, func() (*opened, error) {
		return b.openShard(ctx, name, 0, "c", incarnation, version, config)
	})
}

// newIncarnation returns the random end of a name that tells a new queue from others
// that were called the same, see open.lua.
func newIncarnation() string { return strconv.FormatUint(rand.Uint64(), 36) }

// afterDeletion calls open until the queue is not being deleted. It finishes an
// interrupted deletion.
func (b *Backend) afterDeletion(ctx context.Context, name string, open func() (*opened, error)) (*opened, error) {
	for {
		state, err := open()
		if err != nil || state.status != "deleting" {
			return state, err
		}
		if err := b.remove(ctx, name, state); err != nil && !errors.Is(err, driver.ErrNotFound) {
			return nil, err
		}
	}
}

// adopt makes all shards but the first follow it.
func (b *Backend) adopt(ctx context.Context, name string, first *opened) error {
	n := max(first.config.Shards, 1)
	errs := make([]error, n)
	var group sync.WaitGroup
	for i := 1; i < n; i++ {
		group.Go(func() {
			state, err := b.openShard(ctx, name, i, "a", first.incarnation, first.version, first.config)
			if err == nil && state.status != "ok" {
				err = &driver.Error{Code: driver.ErrNotFound, Detail: "was deleted meanwhile"}
			}
			errs[i] = err
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

// openShard calls open.lua.
func (b *Backend) openShard(ctx context.Context, name string, shard int, what, queue string, version int64, config driver.Config) (*opened, error) {
	n := max(config.Shards, 1)
	reply, err := b.try(ctx, openScript, shardKeys(b.options.Prefix, name, shard), []string{
		what, queue, strconv.FormatInt(version, 10), strconv.Itoa(n), packConfig(config, n, shard), stored(config, shard),
	})
	if err != nil {
		return nil, err
	}
	return readOpened(reply)
}

func readOpened(reply []rueidis.RedisMessage) (*opened, error) {
	var state opened
	var err error
	if len(reply) == 0 {
		return nil, unreadableAnswer(nil)
	}
	if state.status, err = reply[0].ToString(); err != nil {
		return nil, unreadableAnswer(err)
	}
	if state.status == "schema" {
		number, err := schemaOf(reply)
		if err != nil {
			return nil, unreadableAnswer(err)
		}
		return nil, newerSchema(number)
	}
	if len(reply) < 5 {
		return &state, nil
	}
	if state.incarnation, err = reply[1].ToString(); err != nil {
		return nil, unreadableAnswer(err)
	}
	if state.version, err = reply[2].AsInt64(); err != nil {
		return nil, unreadableAnswer(err)
	}
	settings, err := reply[3].ToString()
	if err != nil {
		return nil, unreadableAnswer(err)
	}
	if state.config, err = parseStored(settings); err != nil {
		return nil, unreadableAnswer(err)
	}
	wall, err := reply[4].AsInt64()
	if err != nil {
		return nil, unreadableAnswer(err)
	}
	state.wall = float64(wall)
	return &state, nil
}

// Durability returns what messages survive, by the settings of the servers when the
// backend was opened; see driver.Traits.
func (b *Backend) Durability() driver.Durability { return b.durability }

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
	_, err := callCancellable(ctx, b, ctx.Done() != nil, func() (int64, error) {
		key := []string{registry(b.options.Prefix)}
		n, err := b.client.Do(ctx, command(b.client, pingScript, key, nil, false)).AsInt64()
		if isNoScript(err) {
			n, err = b.client.Do(ctx, command(b.client, pingScript, key, nil, true)).AsInt64()
		}
		return n, err
	})
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return driver.Annotate(asDriverError(err), "", "ping")
}

// Close ends all handles and waits until running calls have been answered. Waiting
// receives return ErrClosed, and so do all later calls. Messages stay on the server, and
// the client stays open. Closing twice is fine.
func (b *Backend) Close() error {
	b.mu.Lock()
	if !b.closed {
		b.closed = true
		close(b.closing)
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
	b.running.wait()
	return nil
}

// goroutines counts goroutines that can be waited for. Unlike a WaitGroup it allows new
// ones to start during wait.
type goroutines struct {
	mu    sync.Mutex // guards the fields below
	size  int
	empty chan struct{} // closed when size becomes 0; nil if no wait is running
}

func (g *goroutines) start(f func()) {
	g.mu.Lock()
	g.size++
	g.mu.Unlock()
	go func() {
		defer g.done()
		f()
	}()
}

func (g *goroutines) done() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.size--
	if g.size == 0 && g.empty != nil {
		close(g.empty)
		g.empty = nil
	}
}

func (g *goroutines) wait() {
	g.mu.Lock()
	if g.size == 0 {
		g.mu.Unlock()
		return
	}
	if g.empty == nil {
		g.empty = make(chan struct{})
	}
	empty := g.empty
	g.mu.Unlock()
	<-empty
}
