package redisbox

import (
	"context"
	"hash/fnv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// queue is what all handles of one name in this process share.
type queue struct {
	backend *Backend
	name    string
	// incarnation tells this queue from others that had the same name before.
	incarnation string
	shards      []*shard
	waiters     waiters

	settings atomic.Pointer[settings]
	reloadMu sync.Mutex    // one at a time reads the settings anew
	nextSend atomic.Uint64 // spreads messages without a group over the shards
	nextTake atomic.Uint64 // the shard to look at first
	minding  sync.Once

	handles int // open ones; guarded by the backend's mutex

	// ended is closed when the queue is deleted or its backend closed; code says
	// which and is written before.
	ended   chan struct{}
	isEnded atomic.Bool // what ended says, cheaper to ask
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

// end makes every handle answer code from now on.
func (q *queue) end(code driver.Code) {
	q.endOnce.Do(func() {
		q.code = code
		q.isEnded.Store(true)
		close(q.ended)
		q.rest()
	})
}

// mind has the shards of the queue watched, from the first receive on. Processes
// that only send watch nothing.
func (q *queue) mind(ctx context.Context) {
	q.minding.Do(func() {
		for _, s := range q.shards {
			s.minder.start(ctx)
		}
	})
}

// rest ends the watching.
func (q *queue) rest() {
	q.minding.Do(func() {}) // not to be begun any more
	for _, s := range q.shards {
		s.minder.stop()
	}
}

// hash is stable: all processes must agree on where a group or a key belongs.
func hash(text string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text)) // a hash takes everything
	return h.Sum64()
}

// shardOf is the shard that a group or a dedup key belongs to.
func (q *queue) shardOf(text string) *shard {
	if len(q.shards) == 1 {
		return q.shards[0]
	}
	return q.shards[hash(text)%uint64(len(q.shards))]
}

// shardFor picks the shard of a message: that of its group, that of its key, or
// the next.
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
func (q *queue) named(err error, op string) error { return named(err, q.name, op) }

// heal brings back a shard that is not on the server any more although nobody
// has deleted the queue: it was created shortly before a failover, or somebody
// has emptied the server. What was in it is lost, but whoever has it open need
// not be.
func (q *queue) heal(ctx context.Context, s *shard) error {
	if err := q.openAgain(ctx, s); err != nil {
		return err
	}
	s.clock.sawNew()
	q.backend.options.Logger.WarnContext(ctx, "a queue was missing on the server and has been created anew",
		"queue", q.name, "shard", s.number)
	return nil
}

// openAgain opens a shard of a queue that is open here: it is created if it is
// missing, and migrated if it has an earlier schema.
func (q *queue) openAgain(ctx context.Context, s *shard) error {
	current := q.settings.Load()
	first, err := q.backend.openShard(ctx, q.name, 0, "h", q.incarnation, current.version, current.config)
	if err == nil && s.number > 0 && first.status == "ok" && first.incarnation == q.incarnation {
		// The first shard knows what the others should be like.
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

// reload learns a configuration that another process has set, when a shard says
// that it has another version than we know. A shard that is behind the first is
// brought forward.
func (q *queue) reload(ctx context.Context, s *shard, version int64) {
	q.reloadMu.Lock()
	defer q.reloadMu.Unlock()
	if q.settings.Load().version == version {
		return // somebody was faster
	}
	state, err := q.backend.look(ctx, q.name)
	if err != nil || state.status != "ok" || state.incarnation != q.incarnation {
		return // the next call finds out what has happened
	}
	if q.settings.Load().version < state.version {
		q.settings.Store(q.backend.newSettings(state.config, state.version))
	}
	if s.number > 0 && version < state.version {
		_, _ = q.backend.openShard(ctx, q.name, s.number, "a", q.incarnation, state.version, state.config)
	}
}
