package host

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/engine"
	"github.com/mailboxmq/mailbox/internal/ident"
)

// queue is what all handles of one name share.
type queue struct {
	backend *Backend
	journal Journal // nil: in memory only
	id      uint32
	name    string
	shards  []*shard
	dedup   dedup
	waiters waiters

	settings atomic.Pointer[settings]
	nextSend atomic.Uint64 // spreads messages without a group over the shards
	nextTake atomic.Uint64 // spreads receives over the shards

	// circular: dead letters of this queue can come back to it. Setup guards it.
	circular bool

	// isEnded: the queue was deleted or its backend closed; code says which and
	// is written before.
	isEnded atomic.Bool
	endOnce sync.Once
	code    driver.Code
}

// settings is what a configuration comes down to.
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
			sh.setTarget(nil) // others may forward to it before it is configured
		}
		q.shards = append(q.shards, sh)
	}
	q.settings.Store(&settings{config: config, traits: new(driver.Traits)})
	return q
}

// checkChange refuses changes that would need messages to move.
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

// configure puts a valid configuration into force; target is the queue called
// DeadLetterTo.
func (q *queue) configure(config driver.Config, target *queue) {
	traits := q.backend.traitsOf(config, len(q.shards))
	settings := &settings{config: config, traits: q.backend.sharedTraits(traits)}
	q.settings.Store(settings)
	q.dedup.configure(settings)
	q.waiters.elsewhere.Store(target != nil)
	for i, sh := range q.shards {
		sh.lock()
		sh.setTarget(target)
		sh.engine.Configure(q.now(), splitConfig(config, len(q.shards), i))
		sh.unlock()
	}
	q.refresh()
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
		Move:          true,
		LateAck:       true,
		ForgetDedup:   true,
		Usage:         true,
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

// DefaultTraits returns what a queue promises that is made by opening it.
func (b *Backend) DefaultTraits() driver.Traits {
	return b.traitsOf(b.options.Defaults, max(b.options.Defaults.Shards, 1))
}

// sharedTraits returns traits that are the same, and that other queues may have:
// most queues of a backend have the same ones.
func (b *Backend) sharedTraits(traits driver.Traits) *driver.Traits {
	if latest := b.latestTraits.Load(); latest != nil && *latest == traits {
		return latest
	}
	b.latestTraits.Store(&traits)
	return &traits
}

// splitConfig returns the part of the bounds that falls to shard i of n. The
// parts add up to the whole.
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

// setTarget makes dead letters go to target, or stay if it is nil. The shard is
// locked, or not in use yet.
func (sh *shard) setTarget(target *queue) {
	sh.target = target
	sh.engine.RecordEffects(target != nil || sh.queue.journal != nil)
	if target == nil {
		sh.engine.ForwardDead(nil)
		return
	}
	sh.engine.ForwardDead(sh.targetHasRoom)
}

// targetHasRoom reports whether a small message would fit in the target. It is asked
// from within the engine of a shard that is locked, so it does not wait for others: a
// shard of the target that is in use counts as full, and is asked again later.
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

// forgetTarget keeps dead letters here from now on if they went to target.
func (q *queue) forgetTarget(target *queue) {
	for _, sh := range q.shards {
		sh.lock()
		if sh.target == target {
			sh.setTarget(nil)
			q.waiters.elsewhere.Store(false)
		}
		sh.unlock()
	}
}

// end makes every handle answer code from now on.
func (q *queue) end(code driver.Code) {
	q.endOnce.Do(func() {
		q.code = code
		q.isEnded.Store(true)
		q.waiters.stop()
		q.waiters.dismiss(nil)
	})
}

// delete writes down that an ended queue is gone, when nothing is on its way into
// it any more. A journal takes no notice of what is recorded about it later.
func (q *queue) delete() error {
	if q.journal == nil {
		return nil
	}
	for _, sh := range q.shards {
		if err := sh.lockSettled(); err != nil {
			return err
		}
		sh.unlock()
		defer func() {
			sh.lock()
			sh.settled()
			sh.unlock()
		}()
	}
	return q.backend.durably(func(journal Journal) { journal.Deleted(q.id) })
}

// now is the current time on the engines' axis. Callers hold the shard they
// use it for, so that time does not run backwards in it.
func (q *queue) now() engine.Moment { return q.backend.clock.now() }

// shardFor picks the shard of a message: that of its group, or the next.
func (q *queue) shardFor(msg *driver.Outgoing) *shard {
	if !q.takesTurns(msg.Group) {
		return q.groupShard(msg.Group)
	}
	return q.shards[q.nextSend.Add(1)%uint64(len(q.shards))]
}

// takesTurns reports whether messages of a group, or of none, go to one shard
// after the other, and not all to its groupShard.
func (q *queue) takesTurns(group string) bool {
	return len(q.shards) > 1 && group == "" && !q.settings.Load().config.StrictGroups
}

func (q *queue) groupShard(group string) *shard {
	if len(q.shards) == 1 {
		return q.shards[0]
	}
	return q.shards[q.backend.groupHash(group)%uint64(len(q.shards))]
}
