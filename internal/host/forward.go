package host

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/engine"
)

// A dead letter is forwarded to the target queue in one step, under the locks of both
// shards. Queues may forward to each other in a circle, or to themselves, so shards are
// locked in a global order: by the number of the queue, then by that of the shard. A
// goroutine that holds the later one tries to lock the earlier one; if it is locked, the
// goroutine unlocks its own and locks both in order. In between, the dead letters are
// ordinary dead letters of their source, which retention does not remove.

// before reports whether sh is locked before other if both are locked.
func (sh *shard) before(other *shard) bool {
	return cmp.Or(cmp.Compare(sh.id.Queue, other.id.Queue), cmp.Compare(sh.id.Shard, other.id.Shard)) < 0
}

// lockTargetLocked locks all shards of the target queue if there are dead letters to
// forward, and returns the queue; nil means that nothing was locked. The shard may be
// unlocked in between.
func (sh *shard) lockTargetLocked() *queue {
	for sh.target != nil && sh.target != sh.queue && sh.engine.HasLeaving() {
		target := sh.target
		if !target.tryLockShards(sh.queue.id < target.id) {
			sh.mu.Unlock()
			target.tryLockShards(true)
			sh.mu.Lock()
		}
		if sh.target == target {
			sh.holdsTarget = true
			return target
		}
		target.unlockShards()
	}
	return nil
}

func (sh *shard) unlockTargetLocked(target *queue) {
	sh.holdsTarget = false
	target.unlockShards()
}

// tryLockShards locks all shards of a queue, or none. It blocks only if wait is set.
func (q *queue) tryLockShards(wait bool) bool {
	for i, sh := range q.shards {
		if wait {
			sh.mu.Lock()
			continue
		}
		if !sh.mu.TryLock() {
			for _, locked := range q.shards[:i] {
				locked.mu.Unlock()
			}
			return false
		}
	}
	return true
}

// unlockShards unlocks all shards without handling their effects, because the caller
// holds another shard.
func (q *queue) unlockShards() {
	for _, sh := range q.shards {
		sh.mu.Unlock()
	}
}

// forwarding forwards dead letters from one shard to its target. Both are locked.
type forwarding struct {
	from    *shard
	own     []*engine.Entry // staged in from itself, if the queue is its own target
	reached []*shard        // shards of the target that dead letters were meant for
}

// forwardOrKeep forwards a dead letter to the target queue, or keeps it here if there is
// no target any more, the target is full, or the dead letter is damaged. It reports
// whether it was forwarded.
func (f *forwarding) forwardOrKeep(death engine.Effect) bool {
	sh := f.from
	if sh.target != nil && !death.Entry.Is(engine.Damaged) && f.forward(death) {
		return true
	}
	sh.engine.KeepDead(death.Entry)
	if journal := sh.queue.journal; journal != nil && death.Recorded {
		journal.Lock()
		journal.Kept(sh.id, death.Entry)
		journal.Unlock()
	}
	return false
}

// forward sends a message that has just died to the target queue. It returns false if
// the target is full. A message that is forwarded to its own queue stays in its shard
// and always fits, because it was counted there before.
func (f *forwarding) forward(death engine.Effect) bool {
	sh, dead := f.from, death.Entry
	extra := forwardedExtra(sh.queue.name, dead)
	to := sh
	now := sh.engine.Present(sh.queue.now())
	if sh.target != sh.queue {
		to = sh.target.arrivalShard(extra)
		if !slices.Contains(f.reached, to) {
			f.reached = append(f.reached, to)
			defer to.queue.serveSoon()
		}
		now = to.queue.now()
		if to.engine.Room(now, len(dead.Body)) != nil {
			return false
		}
	}
	if extra.Unique != nil && to.keyRoomLocked() != nil {
		extra.Unique = nil // it must arrive all the same
	}
	content := dead.Content
	content.Extra = extra
	e := to.engine.StageSend(now, content, 0)
	if journal := sh.queue.journal; journal != nil {
		journal.Lock()
		if !death.Recorded {
			journal.Died(sh.id, dead) // removes the message from the queue
		}
		journal.Discarded(sh.id, dead)
		journal.Sent(to.id, e)
		journal.Unlock()
		journal.Ride()
	}
	sh.engine.RemoveForwarded(dead)
	if to == sh {
		f.own = append(f.own, e)
		return true
	}
	to.engine.PublishNow(now, e)
	return true
}

// publishOwn publishes messages that were forwarded to their own queue. It is called
// after the last use of the entries that Effects returned.
func (f *forwarding) publishOwn() {
	for _, e := range f.own {
		f.from.engine.PublishNow(f.from.engine.Present(f.from.queue.now()), e)
	}
	if len(f.own) > 0 {
		f.from.queue.serveSoon()
	}
	f.own = nil
}

// forwardedExtra returns the extra of a message that died in source and is forwarded.
// Its deliveries start again in the target; an attribute has the earlier ones.
func forwardedExtra(source string, dead *engine.Entry) *engine.Extra {
	extra := *dead.Extra
	message := driver.Message{Attributes: extra.Attributes, Deliveries: int(dead.Deliveries)}
	extra.Attributes = maps.Clone(extra.Attributes)
	if extra.Attributes == nil {
		extra.Attributes = make(map[string]string, 4)
	}
	extra.Attributes[driver.AttributeDeadReason] = string(extra.Reason)
	extra.Attributes[driver.AttributeDeadSource] = source
	extra.Attributes[driver.AttributeDeadDeliveries] = strconv.Itoa(message.TotalDeliveries())
	delete(extra.Attributes, driver.AttributeDeadError)
	if extra.LastError != "" {
		extra.Attributes[driver.AttributeDeadError] = extra.LastError
	}
	extra.Reason, extra.ErrorType, extra.DeadAt, extra.Life = "", "", 0, nil
	return &extra
}

// circle returns the queues that a dead letter of q passes through until it is back in q,
// starting with q, if q forwards to target. It returns nil if it never returns. Setup is
// locked.
func (b *Backend) circle(q, target *queue) []*queue {
	way := []*queue{q}
	for next := target; next != nil && !slices.Contains(way[1:], next); next = b.targetOf(next) {
		if next == q {
			return way
		}
		way = append(way, next)
	}
	return nil
}

// targetOf returns the queue that q forwards dead letters to, or nil.
func (b *Backend) targetOf(q *queue) *queue {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.queues[q.settings.Load().config.DeadLetterTo]
}

// mark sets whether dead letters of the queues can return to them. Setup is locked.
func mark(circle []*queue, circular bool) {
	for _, q := range circle {
		if q.circular == circular {
			continue
		}
		q.circular = circular
		for _, sh := range q.shards {
			sh.lock()
			sh.engine.KeepExpired(circular)
			sh.unlock()
		}
	}
}
