package host

import (
	"sync"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/engine"
)

// A Journal records operations in the order in which they happen, so that the queues can
// be restored after a crash. The host records between Lock and Unlock, while it holds the
// lock of the shard; operations recorded between the two become durable together or not
// at all. Entries are read during the call and not kept.
type Journal interface {
	sync.Locker

	// Failed returns why operations can no longer become durable, or nil. After that
	// no operation succeeds.
	Failed() error
	// Admit returns why no message may be sent, such as ErrFull for a disk that is
	// nearly full, or nil.
	Admit() error

	// Sent records a message that is new to its shard.
	Sent(shard ShardID, e *engine.Entry)
	// Leased records that a message was delivered, or its lease extended.
	Leased(shard ShardID, e *engine.Entry)
	// Waits records that a message waits again, with its place and due time. The shard
	// has handled all events before now.
	Waits(shard ShardID, e *engine.Entry, now engine.Instant)
	// Removed records the removal of a message in flight, and Withdrawn that of a
	// message that waited, or had returned.
	Removed(shard ShardID, e *engine.Entry)
	Withdrawn(shard ShardID, e *engine.Entry)
	// Died records that a message became a dead letter. If it is Leaving, it is in
	// RestoredShard.Leaving after a crash, until Discarded or Kept is recorded.
	Died(shard ShardID, e *engine.Entry)
	// Kept records that a dead letter that was Leaving is kept.
	Kept(shard ShardID, dead *engine.Entry)
	// Discarded records the removal of a dead letter.
	Discarded(shard ShardID, dead *engine.Entry)
	// Purged records the removal of all messages that are not dead, and DeadPurged that
	// of all dead letters.
	Purged(shard ShardID)
	DeadPurged(shard ShardID)
	// Remembered records a dedup key.
	Remembered(queue uint32, key, content engine.Digest, id [16]byte, ends engine.Instant)
	// DedupForgotten records that a queue has forgotten all dedup keys.
	DedupForgotten(queue uint32)
	// Configured records a queue and its configuration, and Deleted its removal.
	Configured(queue uint32, name string, config driver.Config)
	Deleted(queue uint32)

	// Reader returns a reader of the recorded messages of a shard, durable or not.
	Reader(shard ShardID) engine.Reader

	// Await makes the journal publish p, with PublishAll, when all operations recorded
	// so far are durable. The journal and p's shard are locked. Pendings are published
	// in the order of Await. The caller must call Wait for them in that order before
	// it waits for the journal in another way, because other goroutines may depend on
	// it to lead a commit.
	Await(p *Pending)
	// Wait blocks until p is published. It returns ErrUnavailable if that will never
	// happen; the outcome is unknown then.
	Wait(p *Pending) error
	// Ride schedules the recorded operations to be written soon, without waiting for
	// it. The journal is not locked.
	Ride()
}

// ShardID identifies a shard in a journal.
type ShardID struct {
	Queue uint32
	Shard uint16
}

// Pending is a group of staged operations that wait for the journal.
type Pending struct {
	shard  *shard // nil: there is nothing to publish
	staged []*engine.Entry

	// The fields below belong to the journal: whether the waiting goroutine leads a
	// commit from the start, the channel that wakes it, and the result.
	Leads  bool
	Signal chan Signal
	Err    error
}

// A Signal wakes a goroutine that waits for a journal.
type Signal uint8

// The signals.
const (
	// Lead: the goroutine must commit the recorded operations, for all that wait.
	Lead Signal = iota + 1
	// Done: the pending is published, or never will be.
	Done
)

// NewPending returns a Pending with nothing to publish, to wait for a commit.
func NewPending() *Pending { return &Pending{Signal: make(chan Signal, 1)} }

// newPending returns a Pending for a shard, reused if possible.
func (b *Backend) newPending(sh *shard) *Pending {
	p, ok := b.pendings.Get().(*Pending)
	if !ok {
		p = NewPending()
	}
	p.shard = sh
	return p
}

// free keeps a Pending for reuse after Wait.
func (b *Backend) free(p *Pending) {
	clear(p.staged)
	p.shard, p.staged, p.Err = nil, p.staged[:0], nil
	b.pendings.Put(p)
}

// PublishAll publishes operations, in this order. The journal calls it when they are
// durable, without holding a lock.
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

// record records a staged operation.
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

// barrier waits until all operations recorded so far are durable. An answer that depends
// on an operation of another caller must not be given earlier.
func (b *Backend) barrier() error {
	if b.options.Journal == nil {
		return nil
	}
	return b.durably(func(Journal) {})
}

// durably calls record and waits until the record is durable. Without a journal it does
// nothing.
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
