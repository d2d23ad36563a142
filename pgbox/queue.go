package pgbox

import (
	"context"
	"crypto/md5" // spreads groups over shards, as the function shard_of does
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/waitlist"
)

// queue is the state that all handles of one name in this process share.
type queue struct {
	backend     *Backend
	name        string
	qid         int32
	incarnation string
	settings    atomic.Pointer[settings]
	shards      []*shard
	sends       gatherer[*sendOp]
	acks        gatherer[*ackOp]
	waiters     waitlist.List

	nextSend   atomic.Uint64 // spreads messages without a group over the shards
	nextTake   atomic.Uint64 // the shard to receive from first
	keyRoom    atomic.Int64  // how many dedup keys can be used before they are counted again
	uniqueRoom atomic.Int64  // keyRoom for unique keys
	ruled      atomic.Int64  // the version of the configuration with which the server refused the short way

	inbox inbox

	timerMu sync.Mutex // guards the fields below
	timer   *time.Timer
	timerAt time.Time
	sources bool // other queues send dead letters here

	handles int // that are open; guarded by the backend's mutex

	// ended is closed when the queue is deleted or its backend closed; code says which, and is
	// set before.
	ended   chan struct{}
	isEnded atomic.Bool // whether ended is closed, cheaper to read
	endOnce sync.Once
	code    driver.Code
}

// settings are a configuration, as driver.Config.Stored returns it, and what follows from it.
type settings struct {
	config  driver.Config
	traits  driver.Traits
	version int64
}

// isPlain reports whether calls can try the short ways of the functions send_plain and take.
func (q *queue) isPlain() bool {
	settings := q.settings.Load()
	c := &settings.config
	return q.ruled.Load() != settings.version && !c.StrictGroups && !c.FairGroups && c.MaxMessages == 0 && c.MaxBytes == 0 && c.MaxInFlight == 0 &&
		c.RetainReady == driver.Retention{} && c.RetainDead == driver.Retention{} && c.TTL == 0
}

// newSettings returns a configuration with its traits.
func (b *Backend) newSettings(config driver.Config, version int64) *settings {
	traits := driver.Traits{
		Ordering:      driver.OrderingFIFO,
		Durability:    b.protection.Load().durability,
		ExactStats:    true,
		Groups:        true,
		StrictGroups:  config.StrictGroups,
		FairGroups:    config.FairGroups,
		DeadLetters:   true,
		Peek:          true,
		PeekCursor:    true,
		PeekLast:      true,
		Move:          true,
		LateAck:       true,
		ForgetDedup:   true,
		Pause:         true,
		Release:       true,
		DeliverAt:     true,
		Edit:          true,
		TTL:           true,
		Priorities:    !config.StrictGroups && !config.FairGroups,
		GroupLimits:   config.StrictGroups || config.FairGroups,
		UniqueKeys:    config.Shards <= 1 || !config.StrictGroups,
		Schedules:     true,
		Usage:         true,
		DedupWindow:   max(config.Effective().DedupWindow, 0),
		MaxBodyBytes:  b.options.MaxBodyBytes,
		MaxAttributes: driver.MaxAttributes, MaxAttributeBytes: driver.MaxAttributeBytes,
		MaxBatch:      driver.DefaultMaxBatch,
		MaxDelay:      driver.DefaultMaxDelay,
		MaxVisibility: driver.DefaultMaxVisibility,
	}
	if config.Shards > 1 {
		traits.Ordering = driver.OrderingPerShard
	}
	return &settings{config: config, traits: traits, version: version}
}

func newQueue(b *Backend, name string, found *stored) *queue {
	q := &queue{backend: b, name: name, qid: found.qid, incarnation: found.incarnation, ended: make(chan struct{})}
	q.settings.Store(b.newSettings(found.config, found.version))
	q.sends = gatherer[*sendOp]{start: b.start, size: (*sendOp).size, perform: q.performSends}
	q.acks = gatherer[*ackOp]{start: b.start, size: (*ackOp).size, perform: q.performAcks}
	for n := range max(found.config.Shards, 1) {
		q.shards = append(q.shards, newShard(q, n))
	}
	return q
}

// adopt takes over a configuration that was read, if it is newer.
func (q *queue) adopt(found *stored) {
	if found.version > q.settings.Load().version {
		q.settings.Store(q.backend.newSettings(found.config, found.version))
	}
}

// note reads the configuration again if a call reports another version of it.
func (q *queue) note(ctx context.Context, version int64) {
	if version <= q.settings.Load().version {
		return
	}
	found, err := q.backend.look(ctx, q.name)
	if err == nil && found != nil && found.qid == q.qid {
		q.adopt(found)
	}
}

// end makes every handle return code from now on.
func (q *queue) end(code driver.Code) {
	q.endOnce.Do(func() {
		q.code = code
		q.isEnded.Store(true)
		close(q.ended)
		q.stopTimer()
	})
}

// gone ends a queue that another process has deleted.
func (q *queue) gone() {
	q.end(driver.ErrNotFound)
	q.backend.mu.Lock()
	q.backend.forgetLocked(q)
	q.backend.mu.Unlock()
}

// changed wakes receives that wait on the queue.
func (q *queue) changed(ctx context.Context, n int) {
	q.waiters.Wake(n)
	q.backend.notices.announce(ctx, q.qid)
}

// shardFor returns the shard of a message: that of its unique key, that of its group, that of its
// dedup key, or the next one in turn.
func (q *queue) shardFor(msg *driver.Outgoing) int32 {
	switch {
	case len(q.shards) == 1:
		return 0
	case msg.UniqueKey != "":
		return q.shardOf(string(uniqueDigest(msg.UniqueKey)))
	case msg.Group != "" || q.settings.Load().config.StrictGroups:
		return q.shardOf(msg.Group)
	case msg.DedupKey != "":
		return q.shardOf(msg.DedupKey)
	}
	return int32(q.nextSend.Add(1) % uint64(len(q.shards)))
}

// shardOf is the function shard_of.
func (q *queue) shardOf(text string) int32 {
	sum := md5.Sum([]byte(text))
	return (int32(sum[0])<<16 | int32(sum[1])<<8 | int32(sum[2])) % int32(len(q.shards))
}

func (q *queue) failure(code driver.Code, op string) error {
	return &driver.Error{Code: code, Op: op, Queue: q.name}
}

// named adds the queue and the operation to an error.
func (q *queue) named(err error, op string) error { return driver.Annotate(err, q.name, op) }

// call calls a function of the database, for whose text args begin with the number of the queue.
func (q *queue) call(ctx context.Context, r request, read func(pgx.Rows) error) error {
	r.sql, r.args = q.backend.sql(r.sql), append([]any{q.qid}, r.args...)
	err := q.backend.call(ctx, r, read)
	if e, ok := err.(*driver.Error); ok && e.Code == driver.ErrNotFound {
		q.gone()
	}
	return err
}
