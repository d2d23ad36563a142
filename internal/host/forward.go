package host

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/engine"
)

// A dead letter moves to the target queue in one step, under the locks of both shards.
// Queues may send their dead letters to each other in a circle, or to themselves, so
// shards are locked in one order for all: by the number of the queue, then by that of
// the shard. A goroutine that holds the later one tries the earlier one, and if that is
// taken it lets go of its own and locks both in order. Meanwhile its letters are dead
// letters of their source like any other, and retention leaves them alone.

// before reports whether a shard is locked before another, if both are locked.
func (sh *shard) before(other *shard) bool {
	return cmp.Or(cmp.Compare(sh.id.Queue, other.id.Queue), cmp.Compare(sh.id.Shard, other.id.Shard)) < 0
}

// lockTargetLocked locks all shards of the target queue if letters are leaving for it,
// and returns the queue; nil means that nothing was locked. The shard may have been
// unlocked meanwhile.
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

// tryLockShards locks all shards of a queue, or none. It waits for them only if it may.
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

// unlockShards does not act on effects: the caller holds another shard.
func (q *queue) unlockShards() {
	for _, sh := range q.shards {
		sh.mu.Unlock()
	}
}

// forwarding moves letters from one shard to its target. Both are locked.
type forwarding struct {
	from    *shard
	own     []*engine.Entry // staged in the same shard, which its own letters go back to
	reached []*shard        // that letters were to go to, of other queues
}

// sendOff decides about a letter that is leaving: it goes to the target queue, or
// stays here if there is none any more, it does not fit, or nothing is left of it. It
// reports whether the letter has gone.
func (f *forwarding) sendOff(death engine.Effect) bool {
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
// it does not fit. A message that goes back to its own queue stays in its shard and
// always fits: it was counted there before.
func (f *forwarding) forward(death engine.Effect) bool {
	sh, letter := f.from, death.Entry
	extra := forwardedExtra(sh.queue.name, letter)
	to := sh
	now := sh.engine.Present(sh.queue.now())
	if sh.target != sh.queue {
		to = sh.target.shardFor(&driver.Outgoing{Group: extra.Group})
		if !slices.Contains(f.reached, to) {
			f.reached = append(f.reached, to)
		}
		now = to.queue.now()
		if to.engine.Room(now, len(letter.Body)) != nil {
			return false
		}
	}
	e := to.engine.StageSend(now, letter.ID, letter.Body, extra, 0)
	if journal := sh.queue.journal; journal != nil {
		journal.Lock()
		if !death.Recorded {
			journal.Died(sh.id, letter) // takes the message out of the queue
		}
		journal.Discarded(sh.id, letter)
		journal.Sent(to.id, e)
		journal.Unlock()
		journal.Ride()
	}
	sh.engine.RemoveForwarded(letter)
	if to == sh {
		f.own = append(f.own, e)
		return true
	}
	to.engine.PublishNow(now, e)
	to.queue.waiters.wake(1)
	return true
}

// fulfil makes letters visible that went back to their own queue. It follows when
// nothing that Effects returned is in use any more.
func (f *forwarding) fulfil() {
	for _, e := range f.own {
		f.from.engine.PublishNow(f.from.engine.Present(f.from.queue.now()), e)
		f.from.queue.waiters.wake(1)
	}
	f.own = nil
}

// forwardedExtra is the extra of a message that died in source and goes on in
// another queue. Its deliveries begin again there; those before are in an attribute.
func forwardedExtra(source string, letter *engine.Entry) *engine.Extra {
	extra := *letter.Extra
	earlier := driver.EarlierDeliveries(extra.Attributes)
	extra.Attributes = maps.Clone(extra.Attributes)
	if extra.Attributes == nil {
		extra.Attributes = make(map[string]string, 4)
	}
	extra.Attributes[driver.AttributeDeadReason] = string(extra.Reason)
	extra.Attributes[driver.AttributeDeadSource] = source
	extra.Attributes[driver.AttributeDeadDeliveries] = strconv.Itoa(earlier + int(letter.Deliveries))
	delete(extra.Attributes, driver.AttributeDeadError)
	if extra.LastError != "" {
		extra.Attributes[driver.AttributeDeadError] = extra.LastError
	}
	extra.Reason, extra.ErrorType, extra.DeadAt = "", "", 0
	return &extra
}

// circle returns the queues that a dead letter of q passes through before it comes back
// to q, beginning with q, if its dead letters go to target. It returns nil if they do
// not come back. Setup is locked.
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

// targetOf returns the queue that dead letters of q go to, or nil.
func (b *Backend) targetOf(q *queue) *queue {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.queues[q.settings.Load().config.DeadLetterTo]
}

// mark tells queues whether their dead letters can come back to them. Setup is locked.
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
