package diskbox

import (
	"errors"
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

// Await adds p to the next commit. If no goroutine leads, the one that waits for p leads it.
func (j *journal) Await(p *host.Pending) {
	j.pendings = append(j.pendings, p)
	if !j.leading {
		j.leading, p.Leads = true, true
	}
}

func (j *journal) Wait(p *host.Pending) error {
	leads := p.Leads
	p.Leads = false
	if leads || <-p.Signal == host.Lead {
		j.lead()
		<-p.Signal // done: it was among those that it led
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

// lead commits and publishes everything that was recorded so far, and hands the
// lead on. The caller has it.
func (j *journal) lead() {
	j.applying <- struct{}{}
	j.mu.Lock()
	j.trimLocked()
	batches, done := j.takeLocked(), j.pendings
	j.pendings, j.published = j.published[:0], nil
	j.mu.Unlock()

	err := j.commit(batches, len(done) > 0)
	if err == nil {
		host.PublishAll(done)
	}

	j.mu.Lock()
	j.giveBackLocked(batches)
	var next *host.Pending
	if j.leading = len(j.pendings) > 0; j.leading {
		next = j.pendings[0]
	} else if j.unwritten() {
		j.armLocked()
	}
	j.mu.Unlock()
	if next != nil { // first, so that the disk does not wait for the others
		next.Signal <- host.Lead
	}
	for i, p := range done {
		p.Err = err
		p.Signal <- host.Done
		done[i] = nil
	}
	j.mu.Lock()
	j.published = done
	j.mu.Unlock()
}

// fillLocked ends the current batch and begins another.
func (j *journal) fillLocked() {
	j.writeLeases()
	j.key = append(j.key[:0], clockKey...)
	w := j.begin()
	w.buf = j.axis.appendRecord(w.buf)
	j.end()
	for _, shard := range j.ledger.changed {
		if a := j.ledger.shards[shard]; a != nil {
			j.key = appendShardKey(j.key[:0], countKind, shard)
			j.begin().totals(&a.Totals)
			j.end()
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
//
// If one is refused, the store is stopped before the token is returned. What was
// recorded is lost then, and memory and disk differ: operations that are recorded later
// must not be stored, and callers that wait get an error. A store that has failed or is
// closed needs nothing more.
func (j *journal) commit(batches []*store.Batch, durable bool) error {
	returned := false
	giveBack := func() {
		if !returned {
			returned = true
			<-j.applying
		}
	}
	defer giveBack()
	var err error
	last := len(batches) - 1
	for n := 0; n < last && err == nil; n++ {
		err = j.store.Commit(batches[n], false)
	}
	if err == nil {
		err = j.store.CommitThen(batches[last], durable, giveBack)
	}
	if err != nil && !errors.Is(err, driver.ErrClosed) {
		j.store.Fail(err)
	}
	return err
}

// unwritten reports whether something was recorded and not committed.
func (j *journal) unwritten() bool {
	return j.batch.Len() > 0 || len(j.filled) > 0 || len(j.leases) > 0
}

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
	j.rides = false
	leads := !j.leading && j.unwritten()
	j.leading = j.leading || leads
	j.mu.Unlock()
	if leads {
		j.lead()
	}
}

// flush commits everything, durably, and ends the timer.
func (j *journal) flush() error {
	p := host.NewPending()
	j.mu.Lock()
	j.Await(p)
	if j.riding != nil {
		j.riding.Stop()
	}
	j.mu.Unlock()
	return j.Wait(p)
}
