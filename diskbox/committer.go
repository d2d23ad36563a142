package diskbox

import (
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/host"
	"github.com/mailboxmq/mailbox/internal/store"
)

// This file is how what a journal records gets to the disk.

// rideWithin bounds how long a lease waits for a commit that takes it along.
const rideWithin = 5 * time.Millisecond

func (j *journal) Lock() { j.mu.Lock() }

// Unlock ends what belongs together. A batch that has grown large ends there
// too: the store bounds them.
func (j *journal) Unlock() {
	if j.batch.Size() >= largeBatch {
		j.fillLocked()
	}
	j.mu.Unlock()
}

// largeBatch is the size at which a new batch is begun.
const largeBatch = 16 << 20

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
	batches, pendings := j.takeLocked(), j.pendings
	j.pendings = nil
	j.mu.Unlock()

	err := j.commit(batches, len(pendings) > 0)
	if err == nil {
		for _, p := range pendings {
			p.Publish()
		}
	}

	j.mu.Lock()
	j.giveBackLocked(batches)
	j.leading = false
	for _, p := range pendings {
		p.Published, p.Err = err == nil, err
		wake(p)
	}
	switch {
	case len(j.pendings) > 0:
		wake(j.pendings[0]) // to lead
	case j.unwritten():
		j.armLocked()
	}
}

// fillLocked ends the current batch and begins another.
func (j *journal) fillLocked() {
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
	j.filled = append(j.filled, j.batch)
	if last := len(j.spare) - 1; last >= 0 {
		j.batch, j.spare = j.spare[last], j.spare[:last]
	} else {
		j.batch = j.store.NewBatch()
	}
}

// takeLocked takes everything that was recorded so far, to be committed.
func (j *journal) takeLocked() []*store.Batch {
	j.fillLocked()
	batches := j.filled
	j.filled = nil
	return batches
}

// commit commits batches, and returns the token when they can be read.
func (j *journal) commit(batches []*store.Batch, durable bool) error {
	last := len(batches) - 1
	for _, batch := range batches[:last] {
		if err := j.store.Commit(batch, false); err != nil {
			<-j.applying
			return err
		}
	}
	return j.store.CommitThen(batches[last], durable, func() { <-j.applying })
}

// unwritten reports whether something was recorded and not committed.
func (j *journal) unwritten() bool { return j.batch.Len() > 0 || len(j.filled) > 0 }

// maxSpare bounds the batches that are kept for reuse.
const maxSpare = 3

func (j *journal) giveBackLocked(batches []*store.Batch) {
	for _, batch := range batches {
		batch.Reset()
		if len(j.spare) < maxSpare {
			j.spare = append(j.spare, batch)
		}
	}
}

// writeThrough makes everything that was recorded so far readable, without
// waiting for the disk. Those who wait for it to be durable go on waiting.
func (j *journal) writeThrough() error {
	j.applying <- struct{}{}
	j.mu.Lock()
	if !j.unwritten() {
		j.mu.Unlock()
		<-j.applying
		return nil
	}
	batches := j.takeLocked()
	j.mu.Unlock()
	err := j.commit(batches, false)
	j.mu.Lock()
	j.giveBackLocked(batches)
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
	if !j.leading && j.unwritten() {
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
