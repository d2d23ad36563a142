package redisbox

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// queue is the state that all handles of one name in this process share. It is the owner of
// its shards.
type queue struct {
	*shardQueue
	backend    *Backend
	watchers   []*shardWatcher // by shard
	forwarders []*forwarder    // by shard
	waiters    waiters

	reloadMu  sync.Mutex    // serializes reload
	nextSend  atomic.Uint64 // spreads messages without a group over the shards
	nextTake  atomic.Uint64 // the shard to receive from first
	watchOnce sync.Once

	handles int // that are open; guarded by the backend's mutex

	// ended is closed when the queue is deleted or its backend closed; code says which,
	// and is set before.
	ended   chan struct{}
	isEnded atomic.Bool // whether ended is closed, cheaper to read
	endOnce sync.Once
	code    driver.Code
}

func newQueue(b *Backend, name string, state *opened) *queue {
	q := &queue{backend: b, ended: make(chan struct{})}
	q.shardQueue = newShardQueue(b.server, q, name, state, b.newSettings(state.config, state.version))
	for _, s := range q.shards {
		q.watchers = append(q.watchers, newShardWatcher(q, s))
		q.forwarders = append(q.forwarders, newForwarder(s, transfers{b}))
	}
	q.noteTime(state)
	return q
}

// Gone, Answered, Ready, Waiting and OpenAgain are called by the shards; see shardOwner.
func (q *queue) Gone() { q.end(driver.ErrNotFound) }

// Answered notes the next deadline, reads a configuration that has changed, and continues
// transfers.
func (q *queue) Answered(ctx context.Context, s *shard, a *answer, within bool) {
	q.watchers[s.number].noteDeadline(ctx, a.next)
	if a.version != q.settings.Load().version {
		q.reload(ctx, s, a.version)
	}
	if !within {
		q.forwarders[s.number].resume(ctx, a.toForward)
	}
}

// Ready wakes as many waiting receives, and makes them begin with this shard.
func (q *queue) Ready(s *shard, n int) {
	q.nextTake.Store(uint64(s.number))
	q.waiters.wake(n)
}

// Waiting returns how many receives wait.
func (q *queue) Waiting() int { return int(q.waiters.count.Load()) }

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
		for _, w := range q.watchers {
			w.start(ctx)
		}
	})
}

// stopWatching stops the shard watchers permanently.
func (q *queue) stopWatching() {
	q.watchOnce.Do(func() {}) // a later startWatching does nothing
	for _, w := range q.watchers {
		w.stop()
	}
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

// OpenAgain opens a shard of a queue that is open here: it migrates one with an earlier
// schema, and creates one that is missing on the server although the queue was not deleted:
// it was created shortly before a failover, or the server was emptied. Its messages are lost
// then, but the handles on it continue to work.
func (q *queue) OpenAgain(ctx context.Context, s *shard, missing bool) error {
	if err := q.openAgain(ctx, s); err != nil || !missing {
		return err
	}
	s.clock.sawNew()
	q.server.logger.WarnContext(ctx, "a queue was missing on the server and has been created again",
		"queue", q.name, "shard", s.number)
	return nil
}

func (q *queue) openAgain(ctx context.Context, s *shard) error {
	current := q.settings.Load()
	first, err := q.server.openShard(ctx, q.name, 0, "h", q.incarnation, current.version, current.config)
	if err == nil && s.number > 0 && first.status == "ok" && first.incarnation == q.incarnation {
		// The other shards follow the configuration of the first.
		first, err = q.server.openShard(ctx, q.name, s.number, "a", q.incarnation, first.version, first.config)
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
	state, err := q.server.look(ctx, q.name)
	if err != nil || state.status != "ok" || state.incarnation != q.incarnation {
		return // the next call finds out why
	}
	if q.settings.Load().version < state.version {
		q.settings.Store(q.backend.newSettings(state.config, state.version))
	}
	if s.number > 0 && version < state.version {
		_, _ = q.server.openShard(ctx, q.name, s.number, "a", q.incarnation, state.version, state.config)
	}
}
