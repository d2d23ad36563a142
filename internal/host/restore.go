package host

import (
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/engine"
)

// RestoredQueue is a queue read from a journal.
type RestoredQueue struct {
	ID     uint32
	Name   string
	Config driver.Config
	Paused bool
	// Throttled are the wall times until which groups are throttled.
	Throttled map[string]int64
	Shards    []RestoredShard
	// Keys are the dedup keys, in the order in which they end.
	Keys      []RestoredKey
	Schedules []driver.Schedule
}

// RestoredShard is a shard read from a journal: its counts, and the messages in flight
// with their leases. Other messages are read from the backlog when they are needed.
type RestoredShard struct {
	Totals engine.Totals
	// InFlight are the messages whose leases survive.
	InFlight []*engine.Entry
	// Unique are the unique keys that messages hold.
	Unique []RestoredUnique
	// Leaving are the places of dead letters that were about to be forwarded.
	Leaving []uint64
}

// RestoredKey is a dedup key read from a journal.
type RestoredKey struct {
	Key, Content engine.Digest
	ID           [16]byte
	Ends         engine.Instant
}

// RestoredUnique is a unique key read from a journal, and the message that holds it.
type RestoredUnique struct {
	Key engine.Digest
	Seq uint64
	ID  string
}

// Restore restores queues after a restart, with the leases of their messages in flight.
// It must be the first call. lastID is the highest queue id ever used, and crashed says
// that the journal was not closed by its last process.
func (b *Backend) Restore(queues []RestoredQueue, lastID uint32, crashed bool) {
	b.setup.Lock()
	defer b.setup.Unlock()
	b.nextID = lastID
	for i := range queues {
		restored := &queues[i]
		q := newQueue(b, restored.ID, restored.Name, restored.Config)
		b.mu.Lock()
		b.queues[q.name] = q
		b.mu.Unlock()
		b.link(q, restored.Config.DeadLetterTo)
		q.setPausedLocked(restored.Paused)
		for n, shard := range restored.Shards {
			q.shards[n].engine.Restore(b.options.Now, shard.Totals, shard.InFlight)
			for _, held := range shard.Unique {
				q.shards[n].engine.RestoreKey(held.Key, held.Seq, held.ID)
			}
			q.shards[n].engine.RecordEndings(true) // for the first observer
			if crashed {
				q.shards[n].survivors = shard.Totals.NextSeq
			}
		}
		for _, s := range restored.Schedules { // no lock either
			if q.schedules.byName == nil {
				q.schedules.byName = make(map[string]*driver.Schedule)
			}
			q.schedules.byName[s.Name] = &s
		}
		for _, key := range restored.Keys { // no lock: the table is not shared yet
			q.dedup.tableLocked(q.settings.Load()).Restore(0, key.Key, key.Content, key.ID, key.Ends)
		}
	}
	for i := range queues {
		if q := b.queues[queues[i].Name]; !q.circular {
			mark(b.circle(q, b.targetOf(q)), true)
		}
	}
	for i := range queues { // before other events can change them
		q := b.queues[queues[i].Name]
		for n, shard := range queues[i].Shards {
			q.shards[n].resumeForwarding(shard.Leaving, b.queues[queues[i].Config.DeadLetterTo])
		}
	}
	for i := range queues {
		config := queues[i].Config
		q := b.queues[queues[i].Name]
		q.configure(config, b.queues[config.DeadLetterTo])
		q.throttled = queues[i].Throttled
		for group, until := range q.throttled {
			q.throttle(group, until)
		}
		q.recordEndings()
	}
}

// resumeForwarding forwards dead letters that were about to be forwarded to target.
func (sh *shard) resumeForwarding(leaving []uint64, target *queue) {
	if len(leaving) == 0 {
		return
	}
	sh.lock()
	defer sh.unlock()
	sh.setTarget(target)
	if target != nil && target != sh.queue {
		target.tryLockShards(true) // no other goroutine holds them
		defer target.unlockShards()
	}
	out := forwarding{from: sh}
	defer out.publishOwn()
	for _, death := range leaving {
		dead := sh.deadAt(death)
		if dead == nil { // only the record that it is leaving is left
			dead = &engine.Entry{Place: death, Marks: engine.Damaged}
		}
		out.forwardOrKeep(engine.Effect{Kind: engine.Died, Entry: dead, Recorded: true})
		sh.queue.journal.Lock()
		sh.queue.journal.Kept(sh.id, &engine.Entry{Place: death}) // removes the record that it is leaving
		sh.queue.journal.Unlock()
	}
}

// deadAt returns the dead letter with this place, or nil.
func (sh *shard) deadAt(death uint64) *engine.Entry {
	for e := range sh.reader.Dead(death) {
		if e.Place == death {
			return sh.engine.FindDead(e.ID)
		}
		break
	}
	return nil
}
