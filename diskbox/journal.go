package diskbox

import (
	"encoding/binary"
	"encoding/json"
	"maps"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/engine"
	"github.com/mailboxmq/mailbox/internal/host"
	"github.com/mailboxmq/mailbox/internal/store"
)

// journal records the operations of a host in a store.
//
// One goroutine at a time commits: all operations recorded so far, with one sync. It is the
// goroutine of a caller that waits, if none commits, or one of its own. Operations recorded
// during a commit go into the next one, and during that the earlier ones are completed. So
// under load many operations share a sync, and a single operation waits only for its own
// sync. See committer.go.
type journal struct {
	store *store.Store
	axis  *axis

	// applying holds one token. The goroutine that has it may take the batch, and
	// returns the token when the batch can be read from the store. So batches reach
	// the store in the order in which they were filled.
	applying chan struct{}

	mu       sync.Mutex // guards the fields below
	batch    *store.Batch
	filled   []*store.Batch // to be committed before batch
	spare    []*store.Batch
	pendings []*host.Pending
	// sparePendings are earlier slices of pendings, for reuse.
	sparePendings [][]*host.Pending
	committed     []committed
	committing    bool // a goroutine commits, or is about to
	completing    bool // a goroutine completes committed operations
	riding        *time.Timer
	rides         bool // riding is set
	lastID        uint32
	secret        [32]byte
	ledger        ledger
	leases        leases
	// stored are the leases in the store or in a batch on the way to it. Most messages are
	// settled before their lease is written, and need no deletion.
	stored map[leaseID]struct{}
	queues map[uint32]*queueNotes

	key []byte // reused
	w   writer // reused
}

func newJournal(s *store.Store, a *axis) *journal {
	return &journal{
		store: s, axis: a, applying: make(chan struct{}, 1), batch: s.NewBatch(),
		ledger: newLedger(), leases: make(leases), stored: make(map[leaseID]struct{}), queues: make(map[uint32]*queueNotes),
	}
}

// queueNotes is what the journal keeps about a queue.
type queueNotes struct {
	groups groupNotes
	now    engine.Instant // the latest time recorded for it
	keys   int            // dedup keys recorded since the last sweep
}

// knows reports whether a queue exists. Calls and timers that overlap with the deletion
// of a queue may still record operations on it; they are ignored, because their records
// would never be removed.
func (j *journal) knows(queue uint32) bool { return j.queues[queue] != nil }

// adopt initialises the journal from recovered state.
func (j *journal) adopt(r *recovery) {
	j.lastID, j.secret = r.lastID, r.secret
	for _, id := range r.leases {
		j.stored[id] = struct{}{}
	}
	for _, key := range r.stale {
		j.batch.Delete(key)
	}
	for _, key := range r.levels {
		j.batch.Set(key, nil)
	}
	for id, q := range r.queues {
		j.queues[id] = &queueNotes{groups: groupsOf(q.Config)}
		for n := range q.Shards {
			totals, shard := q.Shards[n].Totals, host.ShardID{Queue: id, Shard: uint16(n)}
			j.ledger.shards[shard] = &account{Totals: totals, written: totals.NextSeq}
			if r.clock.skipped > 0 {
				for _, e := range q.Shards[n].InFlight {
					j.leases.add(shard, e)
				}
			}
		}
	}
}

// Admit refuses new messages while the disk is nearly full. Settling messages is still
// allowed.
func (j *journal) Admit() error { return j.store.Admit() }

// Failed returns why operations can no longer become durable, or nil.
func (j *journal) Failed() error { return j.store.Failed() }

// begin starts a record with the key j.key, and end adds it to the batch.
func (j *journal) begin() *writer {
	j.w.begin(j.key)
	return &j.w
}

func (j *journal) end() { j.batch.Set(j.key, j.w.end()) }

// number sets j.key to a key that ends with a number.
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
	j.beginMessage().message(e)
	j.endMessage(e)
	j.indexDue(shard, e)
	j.indexEnd(shard, e)
	j.indexGroup(shard, e)
	j.indexLevel(shard, e)
	j.indexUnique(shard, e)
	a := j.ledger.change(shard)
	a.arrived(e)
	if !e.Is(engine.Late) { // a delayed message has Born in the future
		q := j.queues[shard.Queue]
		q.now = max(q.now, e.Born)
		a.now = max(a.now, e.Born)
	}
}

// indexDue adds an index record of when a delayed message is due. The record stays until
// that time is past, see trimLocked, unless the message is removed before.
func (j *journal) indexDue(shard host.ShardID, e *engine.Entry) {
	if e.Is(engine.Wall) {
		j.indexAlarm(shard, e)
		return
	}
	if e.Is(engine.Timed) {
		j.key = appendDueKey(j.key[:0], dueKind, shard, e.Due, e.Seq)
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
	id := leaseID{shard, e.Seq}
	delete(j.leases, id)
	if _, stored := j.stored[id]; stored {
		delete(j.stored, id)
		j.remove(leaseKind, shard, e.Seq)
	}
}

// forgetLeases drops the leases of messages that were removed together.
func (j *journal) forgetLeases(gone func(leaseID) bool) {
	maps.DeleteFunc(j.leases, func(id leaseID, _ heldLease) bool { return gone(id) })
	maps.DeleteFunc(j.stored, func(id leaseID, _ struct{}) bool { return gone(id) })
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
			j.forgetLevel(shard, e, e.Left)
			j.indexLevel(shard, e)
		}
	}
	j.forgetAlarm(shard, e)
	j.indexDue(shard, e)
	a := j.ledger.change(shard)
	a.used(e)
	a.now = max(a.now, now)
}

// erase removes the records of a message that is not dead; place is its last place.
func (j *journal) erase(shard host.ShardID, e *engine.Entry, place uint64) {
	j.remove(messageKind, shard, e.Seq)
	j.endLease(shard, e)
	if place != e.Seq {
		j.remove(placeKind, shard, place)
	}
	j.forgetGroup(shard, e, place)
	j.forgetLevel(shard, e, place)
	j.forgetAlarm(shard, e)
	j.forgetEnd(shard, e)
	j.forgetUnique(shard, e)
}

func (j *journal) Removed(shard host.ShardID, e *engine.Entry) {
	if !j.knows(shard.Queue) {
		return
	}
	j.erase(shard, e, e.Place)
	returned := e.Deliveries > 1 || e.Releases() > 0 || e.Is(engine.LeasedAgain)
	if returned || e.Outcome == engine.Expires { // a nack has reset how often it was released
		j.remove(stateKind, shard, e.Seq)
	}
	j.ledger.change(shard).left(e)
}

func (j *journal) Withdrawn(shard host.ShardID, e *engine.Entry) {
	if !j.knows(shard.Queue) {
		return
	}
	j.erase(shard, e, e.Place)
	if e.HasReturned() || hasEnd(e) { // it may have waited for room among the dead letters
		j.remove(stateKind, shard, e.Seq)
	}
	j.forgetDue(shard, e)
	j.ledger.change(shard).left(e)
}

// Rescheduled writes the record of the message again, as if it had been sent with the due time
// that it has now.
func (j *journal) Rescheduled(shard host.ShardID, was, e *engine.Entry, now engine.Instant) {
	if !j.knows(shard.Queue) {
		return
	}
	j.forgetDue(shard, was)
	j.forgetAlarm(shard, was)
	j.forgetEnd(shard, was)
	j.number(messageKind, shard, e.Seq)
	j.beginMessage().message(e)
	j.endMessage(e)
	switch {
	case e.HasReturned():
		j.number(stateKind, shard, e.Seq)
		j.begin().state(e)
		j.end()
	case hasEnd(e) || hasEnd(was): // it may have waited for room among the dead letters
		j.remove(stateKind, shard, e.Seq)
	}
	j.indexDue(shard, e)
	j.indexEnd(shard, e)
	a := j.ledger.change(shard)
	a.now = max(a.now, now)
}

// forgetDue removes the index record of indexDue.
func (j *journal) forgetDue(shard host.ShardID, e *engine.Entry) {
	if e.Is(engine.Timed) {
		due := e.Due
		if e.Is(engine.Wall) {
			due = e.Born
		}
		j.key = appendDueKey(j.key[:0], dueKind, shard, due, e.Seq)
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
	j.beginMessage().dead(e)
	j.endMessage(e)
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
	j.forgetLeases(func(id leaseID) bool { return id.shard == shard })
	a := j.ledger.change(shard)
	a.Messages, a.Bytes, a.Indexed, a.Keys = 0, 0, 0, 0
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

// queueRecord is the record of a queue in the store. Versions before Paused or Throttled ignore
// them: with them the queue is not paused, and its groups are not throttled.
type queueRecord struct {
	Name   string
	Config driver.Config
	Paused bool `json:",omitempty"`
	// Throttled are the wall times until which groups are throttled.
	Throttled map[string]int64 `json:",omitempty"`
}

func (j *journal) Configured(queue uint32, name string, config driver.Config, paused bool, throttled map[string]int64) {
	record, _ := json.Marshal(queueRecord{Name: name, Config: config, Paused: paused, Throttled: throttled}) // cannot fail for these types
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

// closed records that the store was closed in order, and opened removes that record.
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
	j.forgetLeases(func(id leaseID) bool { return id.shard.Queue == queue })
	j.ledger.forget(queue)
	delete(j.queues, queue)
}

// drop removes all records of a queue but its own.
func (j *journal) drop(queue uint32) {
	for _, kind := range ownedKinds {
		j.removeAll(appendQueueKey(nil, kind, queue))
	}
}
