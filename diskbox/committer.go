package diskbox

import (
	"errors"
	"slices"
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
	commits := j.beginLocked()
	j.mu.Unlock()
	if commits {
		j.commitHere()
	}
	return p.Wait()
}

func (j *journal) Start(alone bool) {
	j.mu.Lock()
	commits := j.beginLocked()
	j.mu.Unlock()
	switch {
	case commits && alone:
		j.commitHere()
	case commits:
		go j.commitAll()
	}
}

// beginLocked reports whether the caller must commit: operations wait for it, and no
// goroutine commits.
func (j *journal) beginLocked() bool {
	if j.committing || len(j.pendings) == 0 {
		return false
	}
	j.committing = true
	return true
}

// failure makes an error of the store one of an operation. The outcome is unknown, even if the
// store was closed: another commit may have written the operation, or a part of it.
func failure(err error) error {
	if err == nil {
		return nil
	}
	return &driver.Error{Code: driver.ErrUnavailable, Err: err}
}

// commitHere commits the recorded operations on the goroutine of a caller. Operations that
// are recorded meanwhile are committed by a goroutine of their own, so that the caller does
// not work for others without end.
func (j *journal) commitHere() {
	if j.commitOnce() {
		go j.commitAll()
	}
	j.completeAll()
}

// commitAll commits until all recorded operations are durable. While it waits for the disk,
// another goroutine completes the operations of the commit before.
func (j *journal) commitAll() {
	for j.commitOnce() {
		go j.completeAll()
	}
	j.completeAll()
}

// commitOnce commits all operations recorded so far, and reports whether others were
// recorded meanwhile, which the caller must commit next. The caller is the goroutine that
// commits.
func (j *journal) commitOnce() (more bool) {
	j.applying <- struct{}{}
	j.mu.Lock()
	j.trimLocked()
	batches, pendings := j.takeLocked(), j.pendings
	j.pendings = nil
	if last := len(j.sparePendings) - 1; last >= 0 {
		j.pendings, j.sparePendings = j.sparePendings[last], j.sparePendings[:last]
	}
	j.mu.Unlock()

	err := j.commit(batches, len(pendings) > 0)

	j.mu.Lock()
	defer j.mu.Unlock()
	j.giveBackLocked(batches)
	j.committed = append(j.committed, committed{pendings, err})
	j.committing = len(j.pendings) > 0
	if !j.committing && j.unwritten() {
		j.armLocked()
	}
	return j.committing
}

// committed is what one commit made durable, or failed to.
type committed struct {
	pendings []*host.Pending
	err      error
}

// completeAll completes the operations of all commits so far, in order, unless another
// goroutine is doing that.
func (j *journal) completeAll() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.completing {
		return
	}
	j.completing = true
	for len(j.committed) > 0 {
		next := j.committed[0]
		j.committed = slices.Delete(j.committed, 0, 1)
		j.mu.Unlock()
		host.Complete(next.pendings, failure(next.err))
		clear(next.pendings)
		j.mu.Lock()
		if len(j.sparePendings) < maxSpare {
			j.sparePendings = append(j.sparePendings, next.pendings[:0])
		}
	}
	j.completing = false
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

// maxSpare bounds the batches and the lists of operations that are kept for reuse.
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
	if !j.committing && len(j.pendings) == 0 {
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
	commits := !j.committing && j.unwritten()
	j.committing = j.committing || commits
	j.mu.Unlock()
	if commits {
		j.commitHere()
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
