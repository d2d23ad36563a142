package broker

import (
	"context"
	"errors"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/server/internal/metrics"
)

// A topic is an open queue of the backend, with what the broker knows of it.
type topic struct {
	topicKey
	backend string // the name of the queue
	queue   driver.Queue
	// identity is that of the queue; empty if the backend does not tell.
	identity string
	leases   leaseTable
	order    orderBook
	meter    *metrics.Queue

	users    atomic.Int32 // calls that use the handle now
	lastUsed atomic.Int64 // on the broker's clock
	gone     atomic.Bool  // it is in no table any more
}

// traits are those of the queue, within the limits of the broker.
func (t *topic) traits(l *Limits) driver.Traits { return bounded(t.queue.Traits(), l) }

// bounded returns traits within the limits of the broker.
func bounded(traits driver.Traits, l *Limits) driver.Traits {
	traits.MaxBodyBytes = min(traits.MaxBodyBytes, l.MaxPayloadBytes)
	traits.MaxAttributes = min(traits.MaxAttributes, MaxAttributes)
	traits.MaxAttributeBytes = min(traits.MaxAttributeBytes, MaxAttributeBytes)
	traits.MaxBatch = min(traits.MaxBatch, driver.DefaultMaxBatch) // so that answers fit in the frames of every surface
	if l.MaxWait > 0 && (traits.MaxWait == 0 || traits.MaxWait > l.MaxWait) {
		traits.MaxWait = l.MaxWait
	}
	return traits
}

// lacks returns ErrUnsupported for op if has is false: the queue does not have the
// ability that op needs.
func (t *topic) lacks(has bool, op, detail string) error {
	if has {
		return nil
	}
	return &driver.Error{Code: driver.ErrUnsupported, Op: op, Queue: t.name, Detail: detail}
}

// lacksDeadLetters is lacks for operations on dead letters.
func (t *topic) lacksDeadLetters(op string) error {
	return t.lacks(t.queue.Traits().DeadLetters, op, "the backend keeps no dead letters")
}

type topicKey struct{ tenant, name string }

const topicShards = 16

// A topicTable holds the open topics. Handles cost little, so a topic stays open
// until room is needed for another one and nobody uses it or holds a lease.
type topicTable struct {
	seed   maphash.Seed
	open   atomic.Int64
	shards [topicShards]topicShard
}

type topicShard struct {
	mu     sync.RWMutex
	topics map[topicKey]*topic
}

func (t *topicTable) init() {
	t.seed = maphash.MakeSeed()
	for i := range t.shards {
		t.shards[i].topics = make(map[topicKey]*topic)
	}
}

func (t *topicTable) shard(key topicKey) *topicShard {
	return &t.shards[maphash.String(t.seed, key.name)%topicShards]
}

// acquire returns an open topic that is not closed before release.
func (s *topicShard) acquire(key topicKey) *topic {
	s.mu.RLock()
	defer s.mu.RUnlock()
	found := s.topics[key]
	if found != nil {
		found.users.Add(1)
	}
	return found
}

func (t *topic) release(now time.Duration) {
	t.lastUsed.Store(int64(now))
	if t.users.Add(-1) == 0 && t.gone.Load() {
		_ = t.queue.Close() // the last one who used it is done
	}
}

// all returns the topics that are open.
func (t *topicTable) all() []*topic {
	var topics []*topic
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.RLock()
		for _, found := range s.topics {
			topics = append(topics, found)
		}
		s.mu.RUnlock()
	}
	return topics
}

func (t *topicTable) closeAll() error {
	var errs []error
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		for key, found := range s.topics {
			errs = append(errs, found.queue.Close())
			delete(s.topics, key)
			t.open.Add(-1)
		}
		s.mu.Unlock()
	}
	return errors.Join(errs...)
}

// useAny is use, whatever the caller is bound to.
func (c *Caller) useAny(ctx context.Context, op, name string, create bool) (*topic, error) {
	b := c.broker
	key := topicKey{c.tenant, name}
	shard := b.topics.shard(key)
	if found := shard.acquire(key); found != nil {
		return found, nil
	}
	backend, err := backendName(c.tenant, name)
	if err != nil {
		return nil, err
	}
	opened, err := c.open(ctx, op, backend, name, create)
	if err != nil {
		return nil, named(err, backend, name)
	}
	opened.tenant, opened.name = c.tenant, name
	return b.enter(key, opened)
}

// open opens a queue of the backend.
func (c *Caller) open(ctx context.Context, op, backend, name string, create bool) (*topic, error) {
	b := c.broker
	unclaim := func() {}
	if create {
		var err error
		if unclaim, err = c.claimTopic(ctx, op, backend, name); err != nil {
			return nil, err
		}
	} else if b.admin != nil {
		if _, err := b.admin.QueueConfig(ctx, backend); errors.Is(err, driver.ErrNotFound) {
			return nil, &driver.Error{Code: driver.ErrNotFound, Op: op, Queue: name, Detail: "queue does not exist; sending to it or configuring it creates it"}
		} else if err != nil {
			return nil, err
		}
	}
	b.roomForTopic()
	queue, err := b.opener.OpenQueue(ctx, backend)
	if err != nil {
		unclaim()
		return nil, err
	}
	b.census.add(backend, capability.TokenID{})
	return &topic{backend: backend, queue: queue, identity: queue.Identity()}, nil
}

// enter adds a topic that was opened. If somebody was faster, theirs is used.
func (b *Broker) enter(key topicKey, opened *topic) (*topic, error) {
	shard := b.topics.shard(key)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if found := shard.topics[key]; found != nil {
		found.users.Add(1)
		return found, opened.queue.Close()
	}
	opened.meter = b.metrics.Queue(opened.tenant, opened.name)
	opened.leases.pool, opened.leases.tenant = b.inFlight, opened.tenant
	opened.users.Store(1)
	opened.lastUsed.Store(int64(b.now()))
	shard.topics[key] = opened
	b.metrics.QueuesOpen.Set(float64(b.topics.open.Add(1)))
	return opened, nil
}

// roomForTopic closes a topic that rests if as many are open as there may be. Where
// none rests, one more is open: what exists can always be used, and what exists is
// bounded.
func (b *Broker) roomForTopic() {
	if b.topics.open.Load() < int64(b.limits.Load().MaxTopics) {
		return
	}
	now := b.now()
	for i := range b.topics.shards {
		if b.topics.shards[i].evict(now) {
			b.metrics.QueuesOpen.Set(float64(b.topics.open.Add(-1)))
			return
		}
	}
}

// evict closes the topic that rested longest, and reports whether there is one.
func (s *topicShard) evict(now time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	var victim *topic
	for _, t := range s.topics {
		if t.users.Load() > 0 || t.leases.expire(now) > 0 {
			continue
		}
		if victim == nil || t.lastUsed.Load() < victim.lastUsed.Load() {
			victim = t
		}
	}
	if victim == nil {
		return false
	}
	delete(s.topics, topicKey{victim.tenant, victim.name})
	_ = victim.queue.Close() // it is not in use, and nothing can be done about it
	return true
}

// forget drops a topic whose queue is gone. The caller uses it; the handle is
// closed when everybody has released it.
func (b *Broker) forget(t *topic) {
	key := topicKey{t.tenant, t.name}
	shard := b.topics.shard(key)
	shard.mu.Lock()
	known := shard.topics[key] == t
	if known {
		delete(shard.topics, key)
		b.metrics.QueuesOpen.Set(float64(b.topics.open.Add(-1)))
	}
	shard.mu.Unlock()
	b.census.remove(t.backend)
	if known {
		t.gone.Store(true) // before: who adds leases later sees it, and clears them
		t.leases.clear()
	}
}

// gone reports whether err says that the queue behind a handle was deleted, and
// drops the handle then.
func (b *Broker) gone(t *topic, err error) bool {
	if err == nil || !errors.Is(err, driver.ErrNotFound) {
		return false
	}
	b.forget(t)
	return true
}
