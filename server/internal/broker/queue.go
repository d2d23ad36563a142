package broker

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/completion"
	"github.com/mailboxmq/mailbox/server/internal/metrics"
)

// A queue is an open queue of the backend, with its leases and figures.
type queue struct {
	queueKey
	backend string // its name in the backend
	handle  driver.Queue
	started completion.Queue // handle, for operations that are not waited for
	// identity is empty if the backend has none.
	identity string
	leases   leaseTable
	order    orderMeter
	meter    *metrics.Queue
	flow     flow

	lastUsed atomic.Int64 // on the broker's clock
	users    atomic.Int32 // calls that use the handle now
	gone     atomic.Bool  // it was removed from the table
	linked   bool         // the reply store is on one server with the queue
	// slotPrefix is what the queue puts before the ids of the slots that it reads.
	slotPrefix string
	seals      bool // the backend keeps seals
}

// traits returns the traits of the queue, within the limits of the broker.
func (q *queue) traits(l *Limits) driver.Traits { return bounded(q.handle.Traits(), l) }

// bounded returns traits within the limits of the broker.
func bounded(traits driver.Traits, l *Limits) driver.Traits {
	traits.Seals = false // they are the broker's own
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
func (q *queue) lacks(has bool, op, detail string) error {
	if has {
		return nil
	}
	return &driver.Error{Code: driver.ErrUnsupported, Op: op, Queue: q.name, Detail: detail}
}

// lacksDeadLetters is lacks for operations on dead letters.
func (q *queue) lacksDeadLetters(op string) error {
	return q.lacks(q.handle.Traits().DeadLetters, op, "the backend keeps no dead letters")
}

type queueKey struct{ tenant, name string }

const queueShards = 16

// A queueTable holds the open queues. Handles cost little, so a queue stays open until
// another one needs the room; queues in use and queues with leases are never evicted.
type queueTable struct {
	seed   maphash.Seed
	open   atomic.Int64
	shards [queueShards]queueShard
}

type queueShard struct {
	mu     sync.RWMutex
	queues map[queueKey]*queue
}

func (t *queueTable) init() {
	t.seed = maphash.MakeSeed()
	for i := range t.shards {
		t.shards[i].queues = make(map[queueKey]*queue)
	}
}

func (t *queueTable) shard(key queueKey) *queueShard {
	return &t.shards[maphash.String(t.seed, key.name)%queueShards]
}

// find returns an open queue, or nil. It may be closed meanwhile.
func (t *queueTable) find(key queueKey) *queue {
	s := t.shard(key)
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.queues[key]
}

// acquire returns an open queue, which stays open until release, or nil.
func (s *queueShard) acquire(key queueKey) *queue {
	s.mu.RLock()
	defer s.mu.RUnlock()
	found := s.queues[key]
	if found != nil {
		found.users.Add(1)
	}
	return found
}

func (q *queue) release(now time.Duration) {
	q.lastUsed.Store(int64(now))
	if q.users.Add(-1) == 0 && q.gone.Load() {
		_ = q.handle.Close() // this was the last user
	}
}

// all returns the open queues.
func (t *queueTable) all() []*queue {
	var queues []*queue
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.RLock()
		for _, found := range s.queues {
			queues = append(queues, found)
		}
		s.mu.RUnlock()
	}
	return queues
}

func (t *queueTable) closeAll() error {
	var errs []error
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		for key, found := range s.queues {
			errs = append(errs, found.handle.Close())
			delete(s.queues, key)
			t.open.Add(-1)
		}
		s.mu.Unlock()
	}
	return errors.Join(errs...)
}

// useAny is use without the check of the binding.
func (c *Caller) useAny(ctx context.Context, op, name string, create bool) (*queue, error) {
	b := c.broker
	key := queueKey{c.tenant, name}
	shard := b.queues.shard(key)
	if found := shard.acquire(key); found != nil {
		return found, nil
	}
	backend, err := backendName(c.tenant, name)
	if err != nil {
		return nil, err
	}
	opened, err := c.open(ctx, op, backend, name, create)
	if err != nil {
		if rejection(err) == metricDegraded && ctx.Err() == nil && (op == "send" || op == "receive") {
			b.metrics.Rejected(metricDegraded) // those of a queue that is open are counted where they fail
		}
		return nil, named(err, backend, name)
	}
	opened.tenant, opened.name = c.tenant, name
	return b.enter(key, opened)
}

// open opens a queue of the backend.
func (c *Caller) open(ctx context.Context, op, backend, name string, create bool) (*queue, error) {
	b := c.broker
	unclaim := func() {}
	if create {
		err := c.paceCreation(ctx, op, backend, name)
		if err != nil {
			return nil, err
		}
		if unclaim, err = c.claimQueue(ctx, op, backend, name); err != nil {
			return nil, err
		}
	} else if b.admin != nil {
		if _, err := b.admin.QueueConfig(ctx, backend); errors.Is(err, driver.ErrNotFound) {
			return nil, &driver.Error{Code: driver.ErrNotFound, Op: op, Queue: name, Detail: "queue does not exist; sending to it or configuring it creates it"}
		} else if err != nil {
			return nil, err
		}
	}
	b.roomForQueue()
	handle, err := b.opener.OpenQueue(ctx, backend)
	if err != nil {
		unclaim()
		return nil, err
	}
	b.census.add(backend, capability.TokenID{})
	started := completion.Of(handle) // to close it closes the handle
	q := &queue{
		backend: backend, handle: started, started: started, seals: handle.Traits().Seals, identity: handle.Identity(),
	}
	q.link(b.replies, handle)
	return q, nil
}

// A slotNamer is a reply store in a backend whose queues read the slots of the messages that they lease;
// see redisbox.
type slotNamer interface {
	NameSlots(queue driver.Queue, prefix string)
}

// link finds out whether the reply store is on one server with the queue, which then looks for slots under
// their names with the tenant.
func (q *queue) link(replies driver.ReplyStore, handle driver.Queue) {
	store, linked := replies.(driver.LinkedReplyStore)
	if q.linked = linked && store.LinkedTo(handle); !q.linked {
		return
	}
	key, _ := keyOf(q.backend)
	if namer, ok := replies.(slotNamer); ok && key.tenant != "" {
		q.slotPrefix = tenantMark + key.tenant + tenantMark
		namer.NameSlots(handle, q.slotPrefix)
	}
}

// enter adds an opened queue. If another caller has added it meanwhile, enter closes
// this one and returns the other.
func (b *Broker) enter(key queueKey, opened *queue) (*queue, error) {
	shard := b.queues.shard(key)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if found := shard.queues[key]; found != nil {
		found.users.Add(1)
		return found, opened.handle.Close()
	}
	opened.meter = b.metrics.Queue(opened.tenant, opened.name)
	opened.leases.pools, opened.leases.tenant = &b.leasePools, opened.tenant
	opened.users.Store(1)
	opened.lastUsed.Store(int64(b.now()))
	shard.queues[key] = opened
	b.metrics.QueuesOpen.Set(float64(b.queues.open.Add(1)))
	return opened, nil
}

// roomForQueue closes an idle queue if MaxQueues are open. If none is idle, one more
// is open: a queue that exists can always be used, and existing queues are bounded.
func (b *Broker) roomForQueue() {
	if b.queues.open.Load() < int64(b.limits.Load().MaxQueues) {
		return
	}
	now := b.now()
	for i := range b.queues.shards {
		if b.queues.shards[i].evict(now) {
			b.metrics.QueuesOpen.Set(float64(b.queues.open.Add(-1)))
			return
		}
	}
}

// evict closes the queue that was idle for longest, and reports whether there is one.
func (s *queueShard) evict(now time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	var victim *queue
	for _, q := range s.queues {
		if q.users.Load() > 0 || q.leases.expire(now) > 0 {
			continue
		}
		if victim == nil || q.lastUsed.Load() < victim.lastUsed.Load() {
			victim = q
		}
	}
	if victim == nil {
		return false
	}
	delete(s.queues, queueKey{victim.tenant, victim.name})
	victim.leases.forgetWorkers()
	_ = victim.handle.Close() // it is unused; the error changes nothing
	return true
}

// forget removes a queue that was deleted in the backend. The caller holds it; the last
// release closes its handle.
func (b *Broker) forget(q *queue) {
	key := queueKey{q.tenant, q.name}
	shard := b.queues.shard(key)
	shard.mu.Lock()
	known := shard.queues[key] == q
	if known {
		delete(shard.queues, key)
		b.metrics.QueuesOpen.Set(float64(b.queues.open.Add(-1)))
	}
	shard.mu.Unlock()
	if known { // otherwise it was forgotten before, and there may be another one of its name
		b.census.remove(q.backend)
		q.gone.Store(true) // before clear: a receive that adds leases later sees it and clears them
		q.leases.clear()
		q.leases.forgetWorkers()
	}
}

// gone reports whether err says that the queue was deleted, and forgets it then. An error that names
// a field or a message says that something in the queue does not exist.
func (b *Broker) gone(q *queue, err error) bool {
	if err == nil || !errors.Is(err, driver.ErrNotFound) {
		return false
	}
	if e, ok := err.(*driver.Error); ok && (e.Field != "" || e.MessageID != "") { //nolint:errorlint // a batch has an error for each message
		return false
	}
	b.forget(q)
	return true
}

// Strict reports whether a queue has strict groups, so that one receive must not be
// divided among several receivers. It is true for a queue that is not open. It does
// not authorise, because it reveals nothing to a client, and does no I/O.
func (c Caller) Strict(name string) bool {
	key := queueKey{c.tenant, name}
	q := c.broker.queues.shard(key).acquire(key)
	if q == nil {
		return true
	}
	defer q.release(c.broker.now())
	return q.handle.Traits().StrictGroups
}

// tenantMark stands before and after the tenant in the backend's name of a queue.
// Names of tenants cannot contain it.
const tenantMark = "~"

// backendName returns the name of a queue in the backend: "~tenant~queue". A queue of
// no tenant keeps its name, unless the name begins with a tilde: then the tenant is
// empty, as in "~~~queue". So no two queues share a name, and no tenant can name a
// queue of another.
func backendName(tenant, queue string) (string, error) {
	if err := driver.CheckName(queue); err != nil {
		return "", err
	}
	if tenant == "" && !strings.HasPrefix(queue, tenantMark) {
		return queue, nil
	}
	name := tenantMark + tenant + tenantMark + queue
	if len(name) > driver.MaxNameBytes {
		limit := driver.MaxNameBytes - len(name) + len(queue)
		return "", &driver.Error{
			Code: driver.ErrInvalid, Op: "open", Field: "name",
			Detail: fmt.Sprintf("has %d bytes, at most %d are allowed beside the name of the tenant", len(queue), limit),
		}
	}
	return name, nil
}

// queueName reverses backendName. ok is false for queues of other tenants.
func queueName(tenant, name string) (queue string, ok bool) {
	if tenant == "" && !strings.HasPrefix(name, tenantMark) {
		return name, true
	}
	return strings.CutPrefix(name, tenantMark+tenant+tenantMark)
}

// keyOf reverses backendName for any tenant. ok is false for the reserved queues of the
// daemon.
func keyOf(name string) (key queueKey, ok bool) {
	rest, marked := strings.CutPrefix(name, tenantMark)
	if !marked {
		return queueKey{name: name}, true
	}
	tenant, queue, ok := strings.Cut(rest, tenantMark)
	return queueKey{tenant, queue}, ok
}

// Reserved returns the backend's name for a queue of the daemon itself. No queue of a
// tenant can have it: those names have a second tilde. what must not contain one.
func Reserved(what string) string { return tenantMark + what }

func isReserved(name string) bool {
	rest, marked := strings.CutPrefix(name, tenantMark)
	return marked && !strings.Contains(rest, tenantMark)
}

// BackendName returns the name of a queue in the backend, for programs that use the
// backend directly. The error is ErrInvalid for an invalid name.
func (b *Broker) BackendName(tenant, queue string) (string, error) { return backendName(tenant, queue) }
