package host

import (
	"sync"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/engine"
)

// A Journal writes down what happens, in the order in which it happens, so that
// it can be told again after a crash. The host records while it holds the shard
// in question, between Lock and Unlock; what is recorded in between becomes
// durable all together or not at all. Entries are read during the call and not
// kept.
type Journal interface {
	sync.Locker

	// Failed returns why nothing that is recorded can become durable any more,
	// and nil while it can. Nothing is answered then.
	Failed() error
	// Admit returns why nothing new may be sent, such as ErrFull for a disk
	// that is nearly full, and nil if it may.
	Admit() error

	// Sent records a message that is new to its shard.
	Sent(shard ShardID, e *engine.Entry)
	// Leased records that a message was delivered, or its lease moved.
	Leased(shard ShardID, e *engine.Entry)
	// Waits records that a message waits again, at a place and from a time on.
	// What was due before now has happened in the shard.
	Waits(shard ShardID, e *engine.Entry, now engine.Instant)
	// Removed records that a message that was in flight is gone, and Withdrawn
	// one that waited, or had come back.
	Removed(shard ShardID, e *engine.Entry)
	Withdrawn(shard ShardID, e *engine.Entry)
	// Died records that a message is a dead letter now. If it is Leaving, it is
	// told again after a crash, in RestoredShard.Leaving, until it was discarded
	// or kept.
	Died(shard ShardID, e *engine.Entry)
	// Kept records that a dead letter that was Leaving stays.
	Kept(shard ShardID, letter *engine.Entry)
	// Discarded records that a dead letter is gone.
	Discarded(shard ShardID, letter *engine.Entry)
	// Purged and DeadPurged record that everything is gone.
	Purged(shard ShardID)
	DeadPurged(shard ShardID)
	// Remembered records a dedup key.
	Remembered(queue uint32, key, payload engine.Digest, id [16]byte, ends engine.Instant)
	// DedupForgotten records that a queue remembers no dedup keys any more.
	DedupForgotten(queue uint32)
	// Configured records a queue and its configuration, and Deleted its end.
	Configured(queue uint32, name string, config driver.Config)
	Deleted(queue uint32)

	// Reader reads back what was recorded about a shard, durable or not.
	Reader(shard ShardID) engine.Reader

	// Await makes the journal publish p when all that was recorded so far is
	// durable, see PublishAll. The journal is locked, and so is p's shard;
	// pendings are published in the order of Await. Wait must follow, for one
	// after the other in that order, before the caller waits for anything else
	// of the journal: others may depend on it to lead.
	Await(p *Pending)
	// Wait blocks until p was published. It returns ErrUnavailable if that
	// will never happen; the outcome is unknown then.
	Wait(p *Pending) error
	// Ride makes sure that what was recorded is written soon, without anybody
	// waiting for it. The journal is not locked.
	Ride()
}

// ShardID names a shard in a journal.
type ShardID struct {
	Queue uint32
	Shard uint16
}

// Pending is a group of staged operations that wait for the journal.
type Pending struct {
	shard  *shard // nil: nothing to publish, only to wait for
	staged []*engine.Entry

	// What follows belongs to the journal: whether who waits has to lead from
	// the start, a signal, which may tell to lead, and how it went.
	Leads  bool
	Signal chan Signal
	Err    error
}

// A Signal is what one who waits for a journal is told.
type Signal uint8

// The signals.
const (
	// Lead: commit what was recorded, for all who wait.
	Lead Signal = iota + 1
	// Done: it is published, or never will be.
	Done
)

// NewPending returns a pending with nothing to publish, only to wait for.
func NewPending() *Pending { return &Pending{Signal: make(chan Signal, 1)} }

// newPending returns a pending for a shard, used before if there is one.
func (b *Backend) newPending(sh *shard) *Pending {
	p, ok := b.pendings.Get().(*Pending)
	if !ok {
		p = NewPending()
	}
	p.shard = sh
	return p
}

// free keeps a pending that was waited for, for reuse.
func (b *Backend) free(p *Pending) {
	clear(p.staged)
	p.shard, p.staged, p.Err = nil, p.staged[:0], nil
	b.pendings.Put(p)
}

// PublishAll makes operations visible, in this order. The journal calls it when
// they are durable, holding no lock.
func PublishAll(all []*Pending) {
	for len(all) > 0 {
		sh, n := all[0].shard, 1
		for n < len(all) && all[n].shard == sh {
			n++
		}
		if sh != nil {
			sh.publish(all[:n])
		}
		all = all[n:]
	}
}

func (sh *shard) publish(all []*Pending) {
	sh.lock()
	now := sh.queue.now()
	for _, p := range all {
		for _, e := range p.staged {
			sh.engine.Publish(now, e)
		}
		sh.staged -= len(p.staged)
	}
	sh.unlock()
	sh.queue.refresh()
}

// record writes down what was staged.
func (sh *shard) record(journal Journal, e *engine.Entry) {
	journal.Lock()
	defer journal.Unlock()
	switch e.Outcome {
	case engine.Arrives:
		journal.Sent(sh.id, e)
	case engine.Leaves, engine.Expires:
		journal.Removed(sh.id, e)
	case engine.Waits:
		journal.Waits(sh.id, e, sh.engine.Clock())
	case engine.Dies:
		journal.Died(sh.id, e)
	}
}

// barrier waits until all that was recorded before is durable: an answer that
// rests on what somebody else has just staged must not be given earlier.
func (b *Backend) barrier() error {
	if b.options.Journal == nil {
		return nil
	}
	return b.durably(func(Journal) {})
}

// durably records something and waits until it is durable. Without a journal
// it does nothing.
func (b *Backend) durably(record func(Journal)) error {
	journal := b.options.Journal
	if journal == nil {
		return nil
	}
	p := NewPending()
	journal.Lock()
	record(journal)
	journal.Await(p)
	journal.Unlock()
	return journal.Wait(p)
}
