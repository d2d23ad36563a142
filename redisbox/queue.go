package redisbox

import (
	"context"
	"hash/fnv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// queue is the state that all handles of one name in this process share.
type queue struct {
	backend *Backend
	name    string
	// incarnation tells this queue from others that had the same name.
	incarnation string
	shards      []*shard
	waiters     waiters

	settings  atomic.Pointer[settings]
	reloadMu  sync.Mutex    // serializes reload
	nextSend  atomic.Uint64 // spreads messages without a group over the shards
	nextTake  atomic.Uint64 // the shard to receive from first
	watchOnce sync.Once
	// namesSlots: messages name reply slots, which this process answers; see slotKeys.
	namesSlots atomic.Bool

	handles int // that are open; guarded by the backend's mutex

	// ended is closed when the queue is deleted or its backend closed; code says which,
	// and is set before.
	ended   chan struct{}
	isEnded atomic.Bool // whether ended is closed, cheaper to read
	endOnce sync.Once
	code    driver.Code
}

func newQueue(b *Backend, name string, state *opened) *queue {
	q := &queue{backend: b, name: name, incarnation: state.incarnation, ended: make(chan struct{})}
	q.settings.Store(b.newSettings(state.config, state.version))
	for i := range max(state.config.Shards, 1) {
		q.shards = append(q.shards, newShard(q, i))
	}
	return q
}

// end makes every handle return code from now on.
func (q *queue) end(code driver.Code) {
	q.endOnce.Do(func() {
		q.code = code
		q.isEnded.Store(true)
		close(q.ended)
		q.stopWatching()
	})
}

// startWatching starts the shard watchers, from the first receive on. Processes that
// only send watch no shard.
func (q *queue) startWatching(ctx context.Context) {
	q.watchOnce.Do(func() {
		for _, s := range q.shards {
			s.watcher.start(ctx)
		}
	})
}

// stopWatching stops the shard watchers permanently.
func (q *queue) stopWatching() {
	q.watchOnce.Do(func() {}) // a later startWatching does nothing
	for _, s := range q.shards {
		s.watcher.stop()
	}
}

// hash is stable: all processes must agree on the shard of a group or a key.
func hash(text string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text)) // a hash accepts any input
	return h.Sum64()
}

// shardOf returns the shard of a group or a dedup key.
func (q *queue) shardOf(text string) *shard {
	if len(q.shards) == 1 {
		return q.shards[0]
	}
	return q.shards[hash(text)%uint64(len(q.shards))]
}

// shardFor returns the shard of a message: that of its group, that of its key, or the
// next one in turn.
func (q *queue) shardFor(msg *driver.Outgoing) *shard {
	switch {
	case len(q.shards) == 1:
		return q.shards[0]
	case msg.Group != "" || q.settings.Load().config.StrictGroups:
		return q.shardOf(msg.Group)
	case msg.DedupKey != "":
		return q.shardOf(msg.DedupKey)
	}
	return q.shards[q.nextSend.Add(1)%uint64(len(q.shards))]
}

func (q *queue) failure(code driver.Code, op string) error {
	return &driver.Error{Code: code, Op: op, Queue: q.name}
}

func (q *queue) full(detail string, wait time.Duration) error {
	return &driver.Error{Code: driver.ErrFull, Op: "send", Queue: q.name, Detail: detail, RetryAfter: wait}
}

// named adds the queue and the operation to an error.
func (q *queue) named(err error, op string) error { return driver.Annotate(err, q.name, op) }

// heal creates a shard again that is missing on the server although the queue was not
// deleted: it was created shortly before a failover, or the server was emptied. Its
// messages are lost, but the handles on it continue to work.
func (q *queue) heal(ctx context.Context, s *shard) error {
	if err := q.openAgain(ctx, s); err != nil {
		return err
	}
	s.clock.sawNew()
	q.backend.options.Logger.WarnContext(ctx, "a queue was missing on the server and has been created again",
		"queue", q.name, "shard", s.number)
	return nil
}

// openAgain opens a shard of a queue that is open here: it creates a missing shard, and
// migrates one with an earlier schema.
func (q *queue) openAgain(ctx context.Context, s *shard) error {
	current := q.settings.Load()
	first, err := q.backend.openShard(ctx, q.name, 0, "h", q.incarnation, current.version, current.config)
	if err == nil && s.number > 0 && first.status == "ok" && first.incarnation == q.incarnation {
		// The other shards follow the configuration of the first.
		first, err = q.backend.openShard(ctx, q.name, s.number, "a", q.incarnation, first.version, first.config)
	}
	if err != nil {
		return err
	}
	if first.status != "ok" || first.incarnation != q.incarnation {
		q.end(driver.ErrNotFound)
		return &driver.Error{Code: driver.ErrNotFound}
	}
	return nil
}

// reload reads a configuration that another process has set, when a shard reports
// another version than the known one. It brings a shard that is behind the first up to
// date.
func (q *queue) reload(ctx context.Context, s *shard, version int64) {
	q.reloadMu.Lock()
	defer q.reloadMu.Unlock()
	if q.settings.Load().version == version {
		return // another goroutine was first
	}
	state, err := q.backend.look(ctx, q.name)
	if err != nil || state.status != "ok" || state.incarnation != q.incarnation {
		return // the next call finds out why
	}
	if q.settings.Load().version < state.version {
		q.settings.Store(q.backend.newSettings(state.config, state.version))
	}
	if s.number > 0 && version < state.version {
		_, _ = q.backend.openShard(ctx, q.name, s.number, "a", q.incarnation, state.version, state.config)
	}
}
