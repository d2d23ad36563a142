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
	spare    []*store.Batch
	pendings []*host.Pending
	leading  bool
	riding   *time.Timer
	rides    bool // riding is set
	lastID   uint32
	secret   [32]byte
	ledger   ledger
	queues   map[uint32]*queueNotes

	key  []byte // reused
	w    writer // reused
	tick []byte // reused
}

// rideWithin bounds how long a lease waits for a commit that takes it along.
const rideWithin = 5 * time.Millisecond

func newJournal(s *store.Store, a *axis) *journal {
	return &journal{
		store: s, axis: a, applying: make(chan struct{}, 1), batch: s.NewBatch(),
		ledger: newLedger(), queues: make(map[uint32]*queueNotes),
	}
}

// queueNotes is what the journal has to know about a queue.
type queueNotes struct {
	strict bool
	now    engine.Instant // the latest that was heard from it
	keys   int            // dedup keys recorded since the old ones were swept
}

func (j *journal) queue(id uint32) *queueNotes {
	q := j.queues[id]
	if q == nil {
		q = &queueNotes{}
		j.queues[id] = q
	}
	return q
}

// adopt goes on from what was recovered.
func (j *journal) adopt(r *recovery) {
	j.lastID, j.secret = r.lastID, r.secret
	for id, q := range r.queues {
		j.queue(id).strict = q.Config.StrictGroups
		for n := range q.Shards {
			a := j.ledger.at(host.ShardID{Queue: id, Shard: uint16(n)})
			a.Totals = q.Shards[n].Totals
			a.written = a.NextSeq
		}
	}
}

func (j *journal) Lock()   { j.mu.Lock() }
func (j *journal) Unlock() { j.mu.Unlock() }

// Admit refuses new messages while the disk is nearly full; what settles
// messages goes on.
func (j *journal) Admit() error { return j.store.Admit() }

// set adds a record under j.key.
func (j *journal) set(write func(*writer)) {
	j.w.buf = j.w.buf[:0]
	write(&j.w)
	j.w.seal(j.key)
	j.batch.Set(j.key, j.w.buf)
}

// number makes j.key one that ends with a number.
func (j *journal) number(kind byte, shard host.ShardID, number uint64) {
	j.key = appendNumberKey(j.key[:0], kind, shard, number)
}

func (j *journal) remove(kind byte, shard host.ShardID, number uint64) {
	j.number(kind, shard, number)
	j.batch.Delete(j.key)
}

func (j *journal) Sent(shard host.ShardID, e *engine.Entry) {
	j.number(messageKind, shard, e.Seq)
	j.set(func(w *writer) { w.message(e) })
	j.indexDue(shard, e)
	q := j.queue(shard.Queue)
	q.now = max(q.now, e.Born)
	if q.strict {
		j.key = appendGroupKey(j.key[:0], shard, groupOf(e), e.Place)
		j.batch.Set(j.key, nil)
	}
	a := j.ledger.change(shard)
	a.arrived(e)
	a.now = e.Born
}

func groupOf(e *engine.Entry) string {
	if e.Extra == nil {
		return ""
	}
	return e.Extra.Group
}

// indexDue notes when a delayed message is due. The note stays until that time
// is past, see sweep: nothing but death or a purge comes before it.
func (j *journal) indexDue(shard host.ShardID, e *engine.Entry) {
	if e.Is(engine.Timed) {
		j.key = appendDueKey(j.key[:0], shard, e.Due, e.Seq)
		j.batch.Set(j.key, nil)
		j.ledger.at(shard).timed++
	}
}

func (j *journal) Leased(shard host.ShardID, e *engine.Entry) {
	j.number(leaseKind, shard, e.Seq)
	j.set(func(w *writer) { w.state(e) })
}

func (j *journal) Waits(shard host.ShardID, e *engine.Entry) {
	j.number(stateKind, shard, e.Seq)
	j.set(func(w *writer) { w.state(e) })
	j.remove(leaseKind, shard, e.Seq)
	if e.Place != e.Seq {
		if e.Left != 0 && e.Left != e.Place && e.Left != e.Seq {
			j.remove(placeKind, shard, e.Left)
		}
		j.number(placeKind, shard, e.Place)
		j.batch.Set(j.key, binary.BigEndian.AppendUint64(nil, e.Seq))
	}
	j.indexDue(shard, e)
	j.ledger.change(shard).used(e)
}

// erase removes the records of a message that is not dead; place is where it
// waited last.
func (j *journal) erase(shard host.ShardID, e *engine.Entry, place uint64) {
	j.remove(messageKind, shard, e.Seq)
	j.remove(leaseKind, shard, e.Seq)
	if place != e.Seq {
		j.remove(placeKind, shard, place)
	}
	if j.queue(shard.Queue).strict {
		j.key = appendGroupKey(j.key[:0], shard, groupOf(e), e.Seq)
		j.batch.Delete(j.key)
	}
}

func (j *journal) Removed(shard host.ShardID, e *engine.Entry) {
	j.erase(shard, e, e.Place)
	if e.Deliveries > 1 { // else it has never come back
		j.remove(stateKind, shard, e.Seq)
	}
	j.ledger.change(shard).left(e)
}

func (j *journal) Died(shard host.ShardID, e *engine.Entry) {
	j.erase(shard, e, e.Left)
	j.remove(stateKind, shard, e.Seq)
	if e.Is(engine.Timed) {
		j.key = appendDueKey(j.key[:0], shard, e.Due, e.Seq)
		j.batch.Delete(j.key)
	}
	j.number(deadKind, shard, e.Place)
	j.set(func(w *writer) { w.dead(e) })
	j.key = appendDeadIDKey(j.key[:0], shard, e.ID)
	j.batch.Set(j.key, binary.BigEndian.AppendUint64(nil, e.Place))
	j.ledger.change(shard).died(e)
}

func (j *journal) Discarded(shard host.ShardID, letter *engine.Entry) {
	j.remove(deadKind, shard, letter.Place)
	j.key = appendDeadIDKey(j.key[:0], shard, letter.ID)
	j.batch.Delete(j.key)
	j.ledger.change(shard).Dead--
}

func (j *journal) Purged(shard host.ShardID) {
	for _, kind := range liveKinds {
		j.removeAll(appendShardKey(nil, kind, shard))
	}
	a := j.ledger.change(shard)
	a.Messages, a.Bytes = 0, 0
}

func (j *journal) DeadPurged(shard host.ShardID) {
	for _, kind := range deadKinds {
		j.removeAll(appendShardKey(nil, kind, shard))
	}
	j.ledger.change(shard).Dead = 0
}

func (j *journal) removeAll(prefix []byte) { j.batch.DeleteRange(prefix, successor(prefix)) }

func (j *journal) Remembered(queue uint32, key, payload engine.Digest, id [16]byte, ends engine.Instant) {
	j.key = appendDedupKey(j.key[:0], queue, ends, key)
	j.w.buf = append(append(j.w.buf[:0], payload[:]...), id[:]...)
	j.w.seal(j.key)
	j.batch.Set(j.key, j.w.buf)
	j.sweepKeys(queue)
}

// queueRecord is a queue in the store.
type queueRecord struct {
	Name   string
	Config driver.Config
}

func (j *journal) Configured(queue uint32, name string, config driver.Config) {
	record, _ := json.Marshal(queueRecord{Name: name, Config: config}) // has no part that can fail
	j.key = appendQueueKey(j.key[:0], queueKind, queue)
	j.w.buf = append(j.w.buf[:0], record...)
	j.w.seal(j.key)
	j.batch.Set(j.key, j.w.buf)
	j.queue(queue).strict = config.StrictGroups
	if queue > j.lastID {
		j.lastID = queue
		j.meta()
	}
}

// meta writes the secret and the last queue number.
func (j *journal) meta() {
	j.w.buf = j.w.buf[:0]
	j.w.number(recordVersion)
	j.w.number(uint64(j.lastID))
	j.w.bytes(j.secret[:])
	j.w.seal(metaKey)
	j.batch.Set(metaKey, j.w.buf)
}

func (j *journal) Deleted(queue uint32) {
	for _, kinds := range [][]byte{liveKinds, deadKinds, {queueKind, countKind, dedupKind}} {
		for _, kind := range kinds {
			j.removeAll(appendQueueKey(nil, kind, queue))
		}
	}
	j.ledger.forget(queue)
	delete(j.queues, queue)
}

func (j *journal) Await(p *host.Pending) { j.pendings = append(j.pendings, p) }

func (j *journal) Wait(p *host.Pending) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	for !p.Published && p.Err == nil {
		if j.leading {
			j.mu.Unlock()
			<-p.Signal
			j.mu.Lock()
			continue
		}
		j.leadLocked()
	}
	return failure(p.Err)
}

// failure makes an error of the store one that the caller may change.
func failure(err error) error {
	if err == nil {
		return nil
	}
	return &driver.Error{Code: driver.ErrUnavailable, Err: err}
}

// leadLocked commits and publishes everything that was recorded so far.
func (j *journal) leadLocked() {
	j.leading = true
	j.mu.Unlock()
	j.applying <- struct{}{}
	j.mu.Lock()
	j.trimLocked()
	batch, pendings := j.takeLocked(), j.pendings
	j.pendings = nil
	j.mu.Unlock()

	err := j.store.CommitThen(batch, len(pendings) > 0, func() { <-j.applying })
	if err == nil {
		for _, p := range pendings {
			p.Publish()
		}
	}

	j.mu.Lock()
	j.giveBackLocked(batch)
	j.leading = false
	for _, p := range pendings {
		p.Published, p.Err = err == nil, err
		wake(p)
	}
	switch {
	case len(j.pendings) > 0:
		wake(j.pendings[0]) // to lead
	case j.batch.Len() > 0:
		j.armLocked()
	}
}

// takeLocked takes everything that was recorded so far, to be committed.
func (j *journal) takeLocked() *store.Batch {
	j.tick = j.axis.appendRecord(j.tick[:0])
	j.batch.Set(clockKey, j.tick)
	for _, shard := range j.ledger.changed {
		if a := j.ledger.shards[shard]; a != nil {
			j.key = appendShardKey(j.key[:0], countKind, shard)
			j.set(func(w *writer) { w.totals(&a.Totals) })
			a.changed, a.written = false, a.NextSeq
		}
	}
	j.ledger.changed = j.ledger.changed[:0]
	batch := j.batch
	if last := len(j.spare) - 1; last >= 0 {
		j.batch, j.spare = j.spare[last], j.spare[:last]
	} else {
		j.batch = j.store.NewBatch()
	}
	return batch
}

func (j *journal) giveBackLocked(batch *store.Batch) {
	batch.Reset()
	j.spare = append(j.spare, batch)
}

// writeThrough makes everything that was recorded so far readable, without
// waiting for the disk. Those who wait for it to be durable go on waiting.
func (j *journal) writeThrough() error {
	j.applying <- struct{}{}
	j.mu.Lock()
	if j.batch.Len() == 0 {
		j.mu.Unlock()
		<-j.applying
		return nil
	}
	batch := j.takeLocked()
	j.mu.Unlock()
	err := j.store.CommitThen(batch, false, func() { <-j.applying })
	j.mu.Lock()
	j.giveBackLocked(batch)
	j.mu.Unlock()
	return err
}

// wake makes the one who waits for p look again. One signal is enough, however
// many reasons there are.
func wake(p *host.Pending) {
	select {
	case p.Signal <- struct{}{}:
	default:
	}
}

// Ride makes what was recorded durable-ish soon: the next commit takes it
// along, or a timer if there is none.
func (j *journal) Ride() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.leading && len(j.pendings) == 0 {
		j.armLocked()
	}
}

func (j *journal) armLocked() {
	if j.rides {
		return
	}
	j.rides = true
	if j.riding == nil {
		j.riding = time.AfterFunc(rideWithin, j.ride)
		return
	}
	j.riding.Reset(rideWithin)
}

func (j *journal) ride() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.rides = false
	if !j.leading && j.batch.Len() > 0 {
		j.leadLocked()
	}
}

// flush commits everything, durably, and ends the timer.
func (j *journal) flush() error {
	p := &host.Pending{Signal: make(chan struct{}, 1)}
	j.mu.Lock()
	j.Await(p)
	if j.riding != nil {
		j.riding.Stop()
	}
	j.mu.Unlock()
	return j.Wait(p)
}
