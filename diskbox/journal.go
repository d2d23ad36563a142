package diskbox

import (
	"encoding/binary"
	"encoding/json"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/engine"
	"github.com/mailboxmq/mailbox/internal/host"
	"github.com/mailboxmq/mailbox/internal/store"
)

// journal writes what a host tells it to a store.
//
// Whoever waits for the disk first leads: it takes everything that was recorded
// up to then, commits it with one sync, publishes it, and wakes the others.
// What is recorded meanwhile waits for the next leader, so the busier it is the
// more operations share a sync, and alone an operation waits for its own sync
// and for nothing else.
type journal struct {
	store *store.Store
	axis  *axis

	// applying holds one token: whoever has it may take the batch, and gives it
	// back when what was in the batch can be read. So batches reach the store
	// in the order in which they were filled.
	applying chan struct{}

	mu       sync.Mutex // guards the fields below
	batch    *store.Batch
	filled   []*store.Batch // to be committed before batch
	spare    []*store.Batch
	pendings []*host.Pending
	// published is what pendings were before, to be used again.
	published []*host.Pending
	leading   bool // somebody has the lead, or is about to take it
	riding    *time.Timer
	rides     bool // riding is set
	lastID    uint32
	secret    [32]byte
	ledger    ledger
	leases    leases
	queues    map[uint32]*queueNotes

	key []byte // reused
	w   writer // reused
}

func newJournal(s *store.Store, a *axis) *journal {
	return &journal{
		store: s, axis: a, applying: make(chan struct{}, 1), batch: s.NewBatch(),
		ledger: newLedger(), leases: make(leases), queues: make(map[uint32]*queueNotes),
	}
}

// queueNotes is what the journal has to know about a queue.
type queueNotes struct {
	groups groupNotes
	now    engine.Instant // the latest that was heard from it
	keys   int            // dedup keys recorded since the old ones were swept
}

// knows reports whether a queue is there. Calls that were on their way when it was
// deleted, and timers, may tell of one that is not, for a while. Nothing is
// recorded then, or it would stay for ever.
func (j *journal) knows(queue uint32) bool { return j.queues[queue] != nil }

// adopt goes on from what was recovered.
func (j *journal) adopt(r *recovery) {
	j.lastID, j.secret = r.lastID, r.secret
	for id, q := range r.queues {
		j.queues[id] = &queueNotes{groups: groupsOf(q.Config)}
		for n := range q.Shards {
			totals := q.Shards[n].Totals
			j.ledger.shards[host.ShardID{Queue: id, Shard: uint16(n)}] = &account{Totals: totals, written: totals.NextSeq}
		}
	}
}

// Admit refuses new messages while the disk is nearly full; what settles
// messages goes on.
func (j *journal) Admit() error { return j.store.Admit() }

// Failed returns why nothing can become durable any more.
func (j *journal) Failed() error { return j.store.Failed() }

// begin begins a record under j.key, and end adds it.
func (j *journal) begin() *writer {
	j.w.begin(j.key)
	return &j.w
}

func (j *journal) end() { j.batch.Set(j.key, j.w.end()) }

// number makes j.key one that ends with a number.
func (j *journal) number(kind byte, shard host.ShardID, number uint64) {
	j.key = appendNumberKey(j.key[:0], kind, shard, number)
}

func (j *journal) remove(kind byte, shard host.ShardID, number uint64) {
	j.number(kind, shard, number)
	j.batch.Delete(j.key)
}

func (j *journal) Sent(shard host.ShardID, e *engine.Entry) {
	if !j.knows(shard.Queue) {
		return
	}
	j.number(messageKind, shard, e.Seq)
	j.begin().message(e)
	j.end()
	j.indexDue(shard, e)
	j.indexGroup(shard, e)
	a := j.ledger.change(shard)
	a.arrived(e)
	if !e.Is(engine.Late) { // which is born in the future
		q := j.queues[shard.Queue]
		q.now = max(q.now, e.Born)
		a.now = max(a.now, e.Born)
	}
}

// indexDue notes when a delayed message is due. The note stays until that time
// is past, see sweep, unless the message leaves before.
func (j *journal) indexDue(shard host.ShardID, e *engine.Entry) {
	if e.Is(engine.Timed) {
		j.key = appendDueKey(j.key[:0], shard, e.Due, e.Seq)
		j.batch.Set(j.key, nil)
		j.ledger.change(shard).timed++
	}
}

func (j *journal) Leased(shard host.ShardID, e *engine.Entry) {
	if j.knows(shard.Queue) {
		j.leases.add(shard, e)
	}
}

// endLease removes the lease of a message that was settled.
func (j *journal) endLease(shard host.ShardID, e *engine.Entry) {
	delete(j.leases, leaseID{shard, e.Seq})
	j.remove(leaseKind, shard, e.Seq) // of an earlier batch
}

func (j *journal) Waits(shard host.ShardID, e *engine.Entry, now engine.Instant) {
	if !j.knows(shard.Queue) {
		return
	}
	j.number(stateKind, shard, e.Seq)
	j.begin().state(e)
	j.end()
	j.endLease(shard, e)
	if e.Place != e.Seq {
		if e.Left != 0 && e.Left != e.Place && e.Left != e.Seq {
			j.remove(placeKind, shard, e.Left)
		}
		j.number(placeKind, shard, e.Place)
		j.batch.Set(j.key, binary.BigEndian.AppendUint64(nil, e.Seq))
		if e.Left != 0 && e.Left != e.Place {
			j.forgetGroup(shard, e, e.Left)
			j.indexGroup(shard, e)
		}
	}
	j.indexDue(shard, e)
	a := j.ledger.change(shard)
	a.used(e)
	a.now = max(a.now, now)
}

// erase removes the records of a message that is not dead; place is where it
// waited last.
func (j *journal) erase(shard host.ShardID, e *engine.Entry, place uint64) {
	j.remove(messageKind, shard, e.Seq)
	j.endLease(shard, e)
	if place != e.Seq {
		j.remove(placeKind, shard, place)
	}
	j.forgetGroup(shard, e, place)
}

func (j *journal) Removed(shard host.ShardID, e *engine.Entry) {
	if !j.knows(shard.Queue) {
		return
	}
	j.erase(shard, e, e.Place)
	if e.Deliveries > 1 || e.Is(engine.LeasedAgain) { // else it has never come back
		j.remove(stateKind, shard, e.Seq)
	}
	j.ledger.change(shard).left(e)
}

func (j *journal) Withdrawn(shard host.ShardID, e *engine.Entry) {
	if !j.knows(shard.Queue) {
		return
	}
	j.erase(shard, e, e.Place)
	if e.Deliveries > 0 { // it may have come back
		j.remove(stateKind, shard, e.Seq)
	}
	j.forgetDue(shard, e)
	j.ledger.change(shard).left(e)
}

// forgetDue removes the note of when a delayed message is due.
func (j *journal) forgetDue(shard host.ShardID, e *engine.Entry) {
	if e.Is(engine.Timed) {
		j.key = appendDueKey(j.key[:0], shard, e.Due, e.Seq)
		j.batch.Delete(j.key)
	}
}

func (j *journal) Died(shard host.ShardID, e *engine.Entry) {
	if !j.knows(shard.Queue) {
		return
	}
	j.erase(shard, e, e.Left)
	j.remove(stateKind, shard, e.Seq)
	j.forgetDue(shard, e)
	j.number(deadKind, shard, e.Place)
	j.begin().dead(e)
	j.end()
	j.key = appendDeadIDKey(j.key[:0], shard, e.ID)
	j.batch.Set(j.key, binary.BigEndian.AppendUint64(nil, e.Place))
	if e.Is(engine.Leaving) {
		j.number(leavingKind, shard, e.Place)
		j.batch.Set(j.key, []byte(e.ID))
	}
	j.ledger.change(shard).died(e)
}

func (j *journal) Kept(shard host.ShardID, letter *engine.Entry) {
	if !j.knows(shard.Queue) {
		return
	}
	j.remove(leavingKind, shard, letter.Place)
}

func (j *journal) Discarded(shard host.ShardID, letter *engine.Entry) {
	if !j.knows(shard.Queue) {
		return
	}
	j.remove(deadKind, shard, letter.Place)
	j.key = appendDeadIDKey(j.key[:0], shard, letter.ID)
	j.batch.Delete(j.key)
	if letter.Is(engine.Leaving) {
		j.remove(leavingKind, shard, letter.Place)
	}
	j.ledger.change(shard).Dead--
}

func (j *journal) Purged(shard host.ShardID) {
	if !j.knows(shard.Queue) {
		return
	}
	for _, kind := range liveKinds {
		j.removeAll(appendShardKey(nil, kind, shard))
	}
	j.leases.forget(func(id leaseID) bool { return id.shard == shard })
	a := j.ledger.change(shard)
	a.Messages, a.Bytes = 0, 0
}

func (j *journal) DeadPurged(shard host.ShardID) {
	if !j.knows(shard.Queue) {
		return
	}
	for _, kind := range deadKinds {
		j.removeAll(appendShardKey(nil, kind, shard))
	}
	j.ledger.change(shard).Dead = 0
}

func (j *journal) removeAll(prefix []byte) { j.batch.DeleteRange(prefix, successor(prefix)) }

func (j *journal) Remembered(queue uint32, key, payload engine.Digest, id [16]byte, ends engine.Instant) {
	if !j.knows(queue) {
		return
	}
	j.key = appendDedupKey(j.key[:0], queue, ends, key)
	w := j.begin()
	w.buf = append(append(w.buf, payload[:]...), id[:]...)
	j.end()
	j.sweepKeys(queue)
}

func (j *journal) DedupForgotten(queue uint32) {
	if j.knows(queue) {
		j.removeAll(appendQueueKey(nil, dedupKind, queue))
	}
}

// queueRecord is a queue in the store.
type queueRecord struct {
	Name   string
	Config driver.Config
}

func (j *journal) Configured(queue uint32, name string, config driver.Config) {
	record, _ := json.Marshal(queueRecord{Name: name, Config: config}) // has no part that can fail
	j.key = appendQueueKey(j.key[:0], queueKind, queue)
	w := j.begin()
	w.buf = append(w.buf, record...)
	j.end()
	if j.queues[queue] == nil {
		j.queues[queue] = &queueNotes{groups: groupsOf(config)}
	}
	if queue > j.lastID {
		j.lastID = queue
		j.meta()
	}
}

// closed records that the store was closed in order, and opened that it no longer
// is.
func (j *journal) closed() {
	j.Lock()
	defer j.Unlock()
	j.key = append(j.key[:0], closedKey...)
	j.begin()
	j.end()
}

func (j *journal) opened() {
	j.Lock()
	defer j.Unlock()
	j.batch.Delete(closedKey)
}

// meta writes the secret and the last queue number.
func (j *journal) meta() {
	j.key = append(j.key[:0], metaKey...)
	w := j.begin()
	w.number(recordVersion)
	w.number(uint64(j.lastID))
	w.bytes(j.secret[:])
	j.end()
}

func (j *journal) Deleted(queue uint32) {
	j.removeAll(appendQueueKey(nil, queueKind, queue))
	j.drop(queue)
	j.leases.forget(func(id leaseID) bool { return id.shard.Queue == queue })
	j.ledger.forget(queue)
	delete(j.queues, queue)
}

// drop removes everything that belongs to a queue that is gone.
func (j *journal) drop(queue uint32) {
	for _, kind := range ownedKinds {
		j.removeAll(appendQueueKey(nil, kind, queue))
	}
}
