package host

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/engine"
	"github.com/mailboxmq/mailbox/internal/ident"
)

// queue is the state that all handles of one queue share.
type queue struct {
	backend *Backend
	journal Journal // nil: in memory only
	id      uint32
	name    string
	shards  []*shard
	dedup   dedup
	waiters waiters

	schedules schedules

	settings atomic.Pointer[settings]
	nextSend atomic.Uint64 // spreads messages without a group over the shards
	nextTake atomic.Uint64 // spreads receives over the shards
	// lastSend is the latest of the started sends that are done one after the other.
	lastSend atomic.Pointer[sendTurn]

	// circular: dead letters of this queue can be forwarded back to it; paused: its shards
	// are. Guarded by setup.
	circular, paused bool
	throttled        map[string]int64 // the wall times until which groups are, and some that are past. Guarded by setup

	// isEnded: the queue was deleted or its backend closed. code says which; it is
	// written before.
	isEnded atomic.Bool
	endOnce sync.Once
	code    driver.Code
}

// settings is a configuration and the traits that follow from it.
type settings struct {
	config driver.Config  // as driver.Config.Stored returns it
	traits *driver.Traits // shared with other queues
}

func newQueue(b *Backend, id uint32, name string, config driver.Config) *queue {
	q := &queue{backend: b, journal: b.options.Journal, id: id, name: name}
	q.waiters.init(q)
	n := max(config.Shards, 1)
	for i := range n {
		sh := &shard{
			queue:  q,
			id:     ShardID{Queue: id, Shard: uint16(i)},
			engine: engine.New(splitConfig(config, n, i), ident.Nonce()),
		}
		sh.engine.SealReceipts(b.receiptSeal(sh.id))
		if q.journal != nil {
			sh.reader = q.journal.Reader(sh.id)
			sh.engine.SetBacklog(&backlog{Reader: sh.reader, shard: sh}, b.options.Hold)
			sh.setTarget(nil) // queues may forward to it before it is configured
		}
		q.shards = append(q.shards, sh)
	}
	q.settings.Store(&settings{config: config, traits: new(driver.Traits)})
	return q
}

// checkChange refuses changes that would move messages to other shards or orders.
func (q *queue) checkChange(config driver.Config) error {
	old := q.settings.Load().config
	fixed := func(field string, from, to any) error {
		return &driver.Error{
			Code: driver.ErrUnsupported, Op: "configure", Queue: q.name, Field: field,
			Detail: fmt.Sprintf("cannot change from %v to %v on an existing queue; delete it first", from, to),
		}
	}
	if max(config.Shards, 1) != len(q.shards) {
		return fixed("Shards", len(q.shards), max(config.Shards, 1))
	}
	if config.StrictGroups != old.StrictGroups {
		return fixed("StrictGroups", old.StrictGroups, config.StrictGroups)
	}
	if config.FairGroups != old.FairGroups {
		return fixed("FairGroups", old.FairGroups, config.FairGroups)
	}
	return nil
}

// configure applies a valid configuration; target is the queue DeadLetterTo, or nil.
func (q *queue) configure(config driver.Config, target *queue) {
	traits := q.backend.traitsOf(config, len(q.shards))
	settings := &settings{config: config, traits: q.backend.sharedTraits(traits)}
	q.settings.Store(settings)
	q.dedup.configure(settings)
	q.waiters.forwards.Store(target != nil)
	for i, sh := range q.shards {
		sh.lock()
		sh.setTarget(target)
		sh.engine.Configure(q.now(), splitConfig(config, len(q.shards), i))
		sh.unlock()
	}
	q.serve(nil)
}

// traitsOf returns what a queue with this configuration promises.
func (b *Backend) traitsOf(config driver.Config, shards int) driver.Traits {
	traits := driver.Traits{
		Ordering:      driver.OrderingFIFO,
		Durability:    b.options.Durability,
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
		Usage:         true,
		Pause:         true,
		Schedules:     true,
		Release:       true,
		DeliverAt:     true,
		Edit:          true,
		TTL:           true,
		UniqueKeys:    shards == 1 || !config.StrictGroups,
		Priorities:    !config.StrictGroups && !config.FairGroups,
		GroupLimits:   config.StrictGroups || config.FairGroups,
		Seals:         true,
		DedupWindow:   max(config.Effective().DedupWindow, 0), // Off: keys are refused
		MaxBodyBytes:  b.options.MaxBodyBytes,
		MaxAttributes: driver.MaxAttributes, MaxAttributeBytes: driver.MaxAttributeBytes,
		MaxBatch:      driver.DefaultMaxBatch,
		MaxDelay:      driver.DefaultMaxDelay,
		MaxVisibility: driver.DefaultMaxVisibility,
	}
	if shards > 1 {
		traits.Ordering = driver.OrderingPerShard
	}
	return traits
}

// DefaultTraits returns the traits of a queue that is created by opening it.
func (b *Backend) DefaultTraits() driver.Traits {
	return b.traitsOf(b.options.Defaults, max(b.options.Defaults.Shards, 1))
}

// sharedTraits returns a pointer to equal traits that queues may share: most queues of a
// backend have the same.
func (b *Backend) sharedTraits(traits driver.Traits) *driver.Traits {
	if latest := b.latestTraits.Load(); latest != nil && *latest == traits {
		return latest
	}
	b.latestTraits.Store(&traits)
	return &traits
}

// splitConfig returns the share of shard i of n in the limits. The shares add up to the
// limits of the queue.
func splitConfig(config driver.Config, n, i int) driver.Config {
	for _, bound := range []*int{
		&config.MaxMessages, &config.MaxBytes, &config.MaxInFlight, &config.MaxDead,
		&config.RetainReady.Count, &config.RetainDead.Count,
	} {
		part := *bound / n
		if i < *bound%n {
			part++
		}
		*bound = part
	}
	return config
}

// setTarget makes the shard forward dead letters to target, or keep them if it is nil.
// The shard is locked, or not in use yet.
func (sh *shard) setTarget(target *queue) {
	sh.target = target
	sh.engine.RecordEffects(target != nil || sh.queue.journal != nil)
	if target == nil {
		sh.engine.ForwardDead(nil)
		return
	}
	sh.engine.ForwardDead(sh.targetHasRoom)
}

// targetHasRoom reports whether a small message would fit in the target. The engine of a
// locked shard calls it, so it does not block: a locked shard of the target counts as
// full, and the engine asks again later.
func (sh *shard) targetHasRoom() bool {
	if sh.target == sh.queue {
		return true
	}
	for _, to := range sh.target.shards {
		if to == sh.alongside || sh.holdsTarget {
			if to.engine.Fits(0) {
				return true
			}
			continue
		}
		if to.mu.TryLock() {
			fits := to.engine.Fits(0)
			to.mu.Unlock()
			if fits {
				return true
			}
		}
	}
	return false
}

// forgetTarget stops forwarding dead letters to target.
func (q *queue) forgetTarget(target *queue) {
	for _, sh := range q.shards {
		sh.lock()
		if sh.target == target {
			sh.setTarget(nil)
			q.waiters.forwards.Store(false)
		}
		sh.unlock()
	}
}

// end makes all later calls on all handles return code.
func (q *queue) end(code driver.Code) {
	q.endOnce.Do(func() {
		q.code = code
		q.isEnded.Store(true)
		q.waiters.stop()
		q.waiters.dismiss(nil, func(*handle) error { return q.failure(code, "receive") })
	})
}

// delete records the removal of an ended queue once no operation is staged in it. A
// journal ignores later records of the queue.
func (q *queue) delete() error {
	if q.journal == nil {
		return nil
	}
	for _, sh := range q.shards {
		if err := sh.lockUnstaged(); err != nil {
			return err
		}
		sh.unlock()
		defer func() {
			sh.lock()
			sh.allowStaging()
			sh.engine.LeaveRoom()
			sh.unlock()
		}()
	}
	return q.backend.durably(func(journal Journal) { journal.Deleted(q.id) })
}

// now returns the current time. Callers hold the lock of the shard they use it for, so
// that time does not run backwards in the shard.
func (q *queue) now() engine.Moment { return q.backend.clock.now() }

// shardFor returns the shard for a message: that of its unique key, that of its group, or the
// next in turn.
func (q *queue) shardFor(msg *driver.Outgoing) *shard {
	if msg.UniqueKey != "" && len(q.shards) > 1 {
		return q.keyShard(q.backend.digest(msg.UniqueKey))
	}
	if !q.takesTurns(msg.Group) {
		return q.groupShard(msg.Group)
	}
	return q.shards[q.nextSend.Add(1)%uint64(len(q.shards))]
}

// takesTurns reports whether messages of a group, which may be empty, are spread over the
// shards in turn, and not all in its groupShard.
func (q *queue) takesTurns(group string) bool {
	return len(q.shards) > 1 && group == "" && !q.settings.Load().config.StrictGroups
}

func (q *queue) groupShard(group string) *shard {
	if len(q.shards) == 1 {
		return q.shards[0]
	}
	return q.shards[q.backend.groupHash(group)%uint64(len(q.shards))]
}
