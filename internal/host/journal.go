package host

import (
	"sync"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/completion"
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

	// Sent records a message that is new to its shard, and whether it holds its unique key
	// (engine.Entry.HoldsKey). Its key is free when it is removed or dies.
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
	// Rescheduled records that the due time of a waiting message was changed. The shard has
	// handled all events before now.
	Rescheduled(shard ShardID, was, e *engine.Entry, now engine.Instant)
	// Replaced records that the content and the due time of a waiting message were changed,
	// by a message that holds its unique key. The shard has handled all events before now.
	Replaced(shard ShardID, was, e *engine.Entry, now engine.Instant)
	// Prioritized records that the priority of a waiting message was changed.
	Prioritized(shard ShardID, was, e *engine.Entry)
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
	// Scheduled records a schedule of a queue, or its removal if it has no revision.
	Scheduled(queue uint32, s *driver.Schedule)
	// Configured records a queue, its configuration, whether it is paused and which groups are
	// throttled until which wall time, and Deleted
	// its removal.
	Configured(queue uint32, name string, config driver.Config, paused bool, throttled map[string]int64)
	Deleted(queue uint32)

	// Reader returns a reader of the recorded messages of a shard, durable or not.
	Reader(shard ShardID) engine.Reader

	// Await makes the journal complete p, with Complete, when all operations recorded so
	// far are durable, or cannot become durable any more. The journal and p's shard are
	// locked. Pendings are completed in the order of Await.
	Await(p *Pending)
	// Wait blocks until p is complete, and returns ErrUnavailable if its operations are
	// not durable; the outcome is unknown then. If no goroutine commits, it commits itself.
	// The journal is not locked.
	Wait(p *Pending) error
	// Start begins to commit the recorded operations, and does not wait for that. If alone
	// is set and no goroutine commits, it commits itself and waits. The journal is not
	// locked.
	Start(alone bool)
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
	backend *Backend // nil: it is not reused
	shard   *shard   // nil: there is nothing to publish
	staged  []*engine.Entry

	// One of the two is told when the operations are complete: then is called, or a
	// goroutine that waits is signalled. If there is neither, nothing depends on it.
	then   func(*completion.Round, error)
	waits  bool
	signal chan error
}

// NewPending returns a Pending with nothing to publish, to wait for a commit.
func NewPending() *Pending { return &Pending{signal: make(chan error, 1), waits: true} }

// NewPendingThen returns a Pending with nothing to publish. then is called with its error when
// the operations are complete, without a lock of the journal.
func NewPendingThen(then func(error)) *Pending {
	return &Pending{then: func(_ *completion.Round, err error) { then(err) }}
}

// Wait blocks until the operations are complete, and returns their error.
func (p *Pending) Wait() error { return <-p.signal }

// newPending returns a Pending for a shard, which may be nil, reused if possible.
func (b *Backend) newPending(sh *shard) *Pending {
	p, ok := b.pendings.Get().(*Pending)
	if !ok {
		p = &Pending{backend: b, signal: make(chan error, 1)}
	}
	p.shard = sh
	return p
}

// free keeps a complete Pending for reuse.
func (p *Pending) free() {
	if p.backend == nil {
		return
	}
	clear(p.staged)
	p.shard, p.staged, p.then, p.waits = nil, p.staged[:0], nil, false
	p.backend.pendings.Put(p)
}

// Complete publishes operations in this order, serves receives that wait for them, and ends
// the calls that wait for the operations. err is why they are not durable; then they are not
// published. The journal calls it without holding a lock.
func Complete(all []*Pending, err error) {
	round := completion.NewRound()
	if err == nil {
		publishAll(round, all)
	}
	for _, p := range all {
		if p.waits {
			p.signal <- err // from here on p belongs to the goroutine that waits
			continue
		}
		if p.then != nil {
			p.then(round, err)
		}
		p.free()
	}
	round.Close()
}

func publishAll(r *completion.Round, all []*Pending) {
	var queue *queue
	for len(all) > 0 {
		sh, n := all[0].shard, 1
		for n < len(all) && all[n].shard == sh {
			n++
		}
		if sh != nil {
			sh.publish(all[:n])
			if queue != nil && queue != sh.queue {
				queue.serve(r)
			}
			queue = sh.queue
		}
		all = all[n:]
	}
	if queue != nil {
		queue.serve(r)
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

// whenDurable calls then when all operations recorded so far are durable. There is a
// journal.
func (b *Backend) whenDurable(then func(*completion.Round, error)) {
	journal := b.options.Journal
	p := b.newPending(nil)
	p.then = then
	journal.Lock()
	journal.Await(p)
	journal.Unlock()
	journal.Start(false)
}
