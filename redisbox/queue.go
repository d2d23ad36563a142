package redisbox

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/waitlist"
	"github.com/mailboxmq/mailbox/redisbox/internal/shard"
	"github.com/mailboxmq/mailbox/redisbox/internal/transfer"
)

// queue is the state that all handles of one name in this process share. It is the owner of
// its shards.
type queue struct {
	*shard.Queue
	backend    *Backend
	watchers   []*shardWatcher       // by shard
	forwarders []*transfer.Forwarder // by shard
	waiters    waitlist.List

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

func newQueue(b *Backend, name string, state *shard.Opened) *queue {
	q := &queue{backend: b, ended: make(chan struct{})}
	q.Queue = shard.NewQueue(b.server, q, name, state, b.newSettings(state.Config, state.Version))
	for _, s := range q.Shards {
		q.watchers = append(q.watchers, newShardWatcher(q, s))
		q.forwarders = append(q.forwarders, transfer.NewForwarder(s, transfers{b}))
	}
	q.NoteTime(state)
	return q
}

// Gone, Answered, Ready, Waiting and OpenAgain are called by the shards; see shard.Owner.
func (q *queue) Gone() { q.end(driver.ErrNotFound) }

// Answered notes the next deadline, reads a configuration that has changed, and continues
// transfers.
func (q *queue) Answered(ctx context.Context, s *shard.Shard, a *shard.Answer, within bool) {
	q.watchers[s.Number].noteDeadline(ctx, a.Next)
	if a.Version != q.Settings.Load().Version {
		q.reload(ctx, s, a.Version)
	}
	if !within {
		q.forwarders[s.Number].Resume(ctx, a.ToForward)
	}
}

// Ready wakes as many waiting receives, and makes them begin with this shard.
func (q *queue) Ready(s *shard.Shard, n int) {
	q.nextTake.Store(uint64(s.Number))
	q.waiters.Wake(n)
}

// Waiting returns how many receives wait.
func (q *queue) Waiting() int { return q.waiters.Len() }

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

// shardFor returns the shard of a message: that of its unique key, that of its group, that of
// its dedup key, or the next one in turn.
func (q *queue) shardFor(msg *driver.Outgoing) *shard.Shard {
	switch {
	case len(q.Shards) == 1:
		return q.Shards[0]
	case msg.UniqueKey != "":
		return q.ShardOfUnique(msg.UniqueKey)
	case msg.Group != "" || q.Settings.Load().Config.StrictGroups:
		return q.ShardOf(msg.Group)
	case msg.DedupKey != "":
		return q.ShardOf(msg.DedupKey)
	}
	return q.Shards[q.nextSend.Add(1)%uint64(len(q.Shards))]
}

func (q *queue) failure(code driver.Code, op string) error {
	return &driver.Error{Code: code, Op: op, Queue: q.Name}
}

func (q *queue) full(detail string, wait time.Duration) error {
	return &driver.Error{Code: driver.ErrFull, Op: "send", Queue: q.Name, Detail: detail, RetryAfter: wait}
}

// named adds the queue and the operation to an error.
func (q *queue) named(err error, op string) error { return driver.Annotate(err, q.Name, op) }

// OpenAgain opens a shard of a queue that is open here: it migrates one with an earlier
// schema, and creates one that is missing on the server although the queue was not deleted:
// it was created shortly before a failover, or the server was emptied. Its messages are lost
// then, but the handles on it continue to work.
func (q *queue) OpenAgain(ctx context.Context, s *shard.Shard, missing bool) error {
	if err := q.openAgain(ctx, s); err != nil || !missing {
		return err
	}
	s.Clock.SawNew()
	q.Server.Logger.WarnContext(ctx, "a queue was missing on the server and has been created again",
		"queue", q.Name, "shard", s.Number)
	return nil
}

func (q *queue) openAgain(ctx context.Context, s *shard.Shard) error {
	current := q.Settings.Load()
	first, err := q.Server.OpenShard(ctx, q.Name, 0, "h", q.Incarnation, current.Version, current.Config)
	if err == nil && s.Number > 0 && first.Status == "ok" && first.Incarnation == q.Incarnation {
		// The other shards follow the configuration of the first.
		first, err = q.Server.OpenShard(ctx, q.Name, s.Number, "a", q.Incarnation, first.Version, first.Config)
	}
	if err != nil {
		return err
	}
	if first.Status != "ok" || first.Incarnation != q.Incarnation {
		q.end(driver.ErrNotFound)
		return &driver.Error{Code: driver.ErrNotFound}
	}
	return nil
}

// reload reads a configuration that another process has set, when a shard reports
// another version than the known one. It brings a shard that is behind the first up to
// date.
func (q *queue) reload(ctx context.Context, s *shard.Shard, version int64) {
	q.reloadMu.Lock()
	defer q.reloadMu.Unlock()
	if q.Settings.Load().Version == version {
		return // another goroutine was first
	}
	state, err := q.Server.Look(ctx, q.Name)
	if err != nil || state.Status != "ok" || state.Incarnation != q.Incarnation {
		return // the next call finds out why
	}
	if q.Settings.Load().Version < state.Version {
		q.Settings.Store(q.backend.newSettings(state.Config, state.Version))
	}
	if s.Number > 0 && version < state.Version {
		_, _ = q.Server.OpenShard(ctx, q.Name, s.Number, "a", q.Incarnation, state.Version, state.Config)
	}
}
