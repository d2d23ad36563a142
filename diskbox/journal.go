package diskbox

import (
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

	mu       sync.Mutex // guards the fields below
	batch    *store.Batch
	spare    *store.Batch
	pendings []*host.Pending
	leading  bool
	riding   *time.Timer
	rides    bool // riding is set
	lastID   uint32
	secret   [32]byte

	key  []byte // reused
	w    writer // reused
	tick []byte // reused
}

// rideWithin bounds how long a lease waits for a commit that takes it along.
const rideWithin = 5 * time.Millisecond

func newJournal(s *store.Store, a *axis) *journal {
	return &journal{store: s, axis: a, batch: s.NewBatch(), spare: s.NewBatch()}
}

func (j *journal) Lock()   { j.mu.Lock() }
func (j *journal) Unlock() { j.mu.Unlock() }

// Admit refuses new messages while the disk is nearly full; what settles
// messages goes on.
func (j *journal) Admit() error { return j.store.Admit() }

func (j *journal) set(kind byte, shard host.ShardID, seq uint64, write func(*writer)) {
	j.key = appendMessageKey(j.key[:0], kind, shard, seq)
	j.w.buf = j.w.buf[:0]
	write(&j.w)
	j.w.seal(j.key)
	j.batch.Set(j.key, j.w.buf)
}

func (j *journal) remove(kind byte, shard host.ShardID, seq uint64) {
	j.key = appendMessageKey(j.key[:0], kind, shard, seq)
	j.batch.Delete(j.key)
}

func (j *journal) Sent(shard host.ShardID, e *engine.Entry) {
	j.set(messageKind, shard, e.Seq, func(w *writer) { w.message(e) })
}

func (j *journal) Leased(shard host.ShardID, e *engine.Entry) {
	j.set(stateKind, shard, e.Seq, func(w *writer) { w.state(e, stateLeased) })
}

func (j *journal) Waits(shard host.ShardID, e *engine.Entry) {
	j.set(stateKind, shard, e.Seq, func(w *writer) { w.state(e, stateWaits) })
}

func (j *journal) Removed(shard host.ShardID, e *engine.Entry) {
	j.remove(messageKind, shard, e.Seq)
	j.remove(stateKind, shard, e.Seq)
}

func (j *journal) Died(shard host.ShardID, e *engine.Entry) {
	j.remove(messageKind, shard, e.Seq)
	j.remove(stateKind, shard, e.Seq)
	j.set(deadKind, shard, e.Seq, func(w *writer) { w.dead(e) })
}

// Discarded removes the message too: one that dies when there are as many dead
// letters as retention allows is discarded before its death is told.
func (j *journal) Discarded(shard host.ShardID, seq uint64) {
	for _, kind := range []byte{messageKind, stateKind, deadKind} {
		j.remove(kind, shard, seq)
	}
}

func (j *journal) Purged(shard host.ShardID) {
	j.removeAll(appendShardKey(nil, messageKind, shard))
	j.removeAll(appendShardKey(nil, stateKind, shard))
}

func (j *journal) DeadPurged(shard host.ShardID) {
	j.removeAll(appendShardKey(nil, deadKind, shard))
}

func (j *journal) removeAll(prefix []byte) { j.batch.DeleteRange(prefix, successor(prefix)) }

func (j *journal) Remembered(queue uint32, key, payload engine.Digest, id [16]byte, ends engine.Instant) {
	j.key = appendDedupKey(j.key[:0], queue, ends, key)
	j.w.buf = append(append(j.w.buf[:0], payload[:]...), id[:]...)
	j.w.seal(j.key)
	j.batch.Set(j.key, j.w.buf)
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
	for _, kind := range []byte{queueKind, messageKind, stateKind, deadKind, dedupKind} {
		j.removeAll(appendQueueKey(nil, kind, queue))
	}
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
	batch, pendings := j.batch, j.pendings
	j.batch, j.spare, j.pendings = j.spare, nil, nil
	j.tick = j.axis.appendRecord(j.tick[:0])
	batch.Set(clockKey, j.tick)
	j.mu.Unlock()

	err := j.store.Commit(batch, len(pendings) > 0)
	if err == nil {
		for _, p := range pendings {
			p.Publish()
		}
	}

	j.mu.Lock()
	batch.Reset()
	j.spare = batch
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
