package host

import (
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/engine"
)

// RestoredQueue is a queue as a journal has told of it.
type RestoredQueue struct {
	ID     uint32
	Name   string
	Config driver.Config
	Shards []RestoredShard
	// Keys are the dedup keys, in the order in which they end.
	Keys []RestoredKey
}

// RestoredShard is a shard as a journal has told of it: what it can count, and
// the messages in flight. The others are read when they are wanted.
type RestoredShard struct {
	Totals engine.Totals
	Out    []*engine.Entry
	// Leaving are the deaths of letters that were on their way to another queue.
	Leaving []uint64
}

// RestoredKey is a dedup key as a journal has told of it.
type RestoredKey struct {
	Key, Payload engine.Digest
	ID           [16]byte
	Ends         engine.Instant
}

// Restore puts queues back. It is called once, before anything else; lastID is
// the highest queue id that was ever given, and crashed says that whoever had the
// journal before did not close it.
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
		for n, shard := range restored.Shards {
			q.shards[n].engine.Restore(b.options.Now, shard.Totals, shard.Out)
			q.shards[n].engine.RecordEndings(true) // for the first observer
			if crashed {
				q.shards[n].survivors = shard.Totals.NextSeq
			}
		}
		for _, key := range restored.Keys { // nobody else has the table yet
			q.dedup.tableLocked(q.settings.Load()).Restore(0, key.Key, key.Payload, key.ID, key.Ends)
		}
	}
	for i := range queues {
		if q := b.queues[queues[i].Name]; !q.circular {
			mark(b.circle(q, b.targetOf(q)), true)
		}
	}
	for i := range queues { // before anything else happens to what is leaving
		q := b.queues[queues[i].Name]
		for n, shard := range queues[i].Shards {
			q.shards[n].sendOff(shard.Leaving, b.queues[queues[i].Config.DeadLetterTo])
		}
	}
	for i := range queues {
		config := queues[i].Config
		q := b.queues[queues[i].Name]
		q.configure(config, b.queues[config.DeadLetterTo])
		q.tellEndings()
	}
}

// sendOff goes on with dead letters that were on their way to target.
func (sh *shard) sendOff(leaving []uint64, target *queue) {
	if len(leaving) == 0 {
		return
	}
	sh.lock()
	defer sh.unlock()
	sh.setTarget(target)
	if target != nil && target != sh.queue {
		target.tryLockShards(true) // there is no other goroutine to wait for
		defer target.unlockShards()
	}
	out := forwarding{from: sh}
	defer out.fulfil()
	for _, death := range leaving {
		letter := sh.deadAt(death)
		if letter == nil { // it has gone, and only the note is left
			letter = &engine.Entry{Place: death, Marks: engine.Damaged}
		}
		out.sendOff(engine.Effect{Kind: engine.Died, Entry: letter, Recorded: true})
		sh.queue.journal.Lock()
		sh.queue.journal.Kept(sh.id, &engine.Entry{Place: death}) // the note, whatever it says
		sh.queue.journal.Unlock()
	}
}

// deadAt returns the dead letter of a death, or nil.
func (sh *shard) deadAt(death uint64) *engine.Entry {
	for e := range sh.reader.Dead(death) {
		if e.Place == death {
			return sh.engine.FindDead(e.ID)
		}
		break
	}
	return nil
}
