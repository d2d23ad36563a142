package store

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/mailboxmq/mailbox/driver"
)

// MaxBatchBytes bounds what one commit can hold.
const MaxBatchBytes = 256 << 20

// retainedBatchBytes is how much memory an emptied batch keeps for its next
// use.
const retainedBatchBytes = 4 << 20

// A Batch collects operations for one Commit. Later operations win over earlier
// ones. It copies keys and values, and is used by one goroutine at a time.
//
// Reuse it: Commit and Reset empty it and keep its memory.
type Batch struct {
	store *Store
	batch *pebble.Batch
	count int
	err   error
	mark  []byte
}

// NewBatch returns an empty batch for this store.
func (s *Store) NewBatch() *Batch {
	return &Batch{store: s, batch: s.db.NewBatch(pebble.WithMaxRetainedSizeBytes(retainedBatchBytes))}
}

// Set gives key a value.
func (b *Batch) Set(key, value []byte) {
	if b.accept(key, len(value)) {
		b.keep(b.batch.Set(key, value, nil))
	}
}

// Delete removes key, if it is there.
func (b *Batch) Delete(key []byte) {
	if b.accept(key, 0) {
		b.keep(b.batch.Delete(key, nil))
	}
}

// DeleteSized is Delete for a caller that knows that key is there, and the size
// of its value, which lets the engine reclaim the space of large ones sooner. A
// wrong size, or a second DeleteSized of the same value, does no harm to the
// data, but the engine logs it as a mistake.
func (b *Batch) DeleteSized(key []byte, valueSize int) {
	if b.accept(key, 0) {
		b.keep(b.batch.DeleteSized(key, uint32(valueSize), nil))
	}
}

// DeleteRange removes all keys from lo up to, and without, hi. One for ten
// thousand keys is cheap for later reads; one for each key is not.
func (b *Batch) DeleteRange(lo, hi []byte) {
	if b.accept(lo, len(hi)) {
		b.keep(b.batch.DeleteRange(lo, hi, nil))
	}
}

// Len returns the number of operations.
func (b *Batch) Len() int { return b.count }

// Size returns the number of bytes the batch adds to the log.
func (b *Batch) Size() int { return b.batch.Len() }

// Reset empties the batch.
func (b *Batch) Reset() {
	b.batch.Reset()
	b.count = 0
	b.err = nil
}

// accept reports whether an operation may be added. If not, Commit will say so.
func (b *Batch) accept(key []byte, more int) bool {
	switch {
	case b.err != nil:
		return false
	case badKey(key):
		b.err = &driver.Error{Code: driver.ErrInvalid, Op: "commit", Field: "key", Detail: "is empty or starts with a zero byte"}
		return false
	case b.Size()+len(key)+more > MaxBatchBytes:
		b.err = &driver.Error{Code: driver.ErrTooLarge, Op: "commit", Field: "batch", Detail: fmt.Sprintf("at most %d bytes are allowed", MaxBatchBytes)}
		return false
	}
	b.count++
	return true
}

// keep remembers an error of the engine. It has none for these operations, but
// says it might.
func (b *Batch) keep(err error) {
	if err != nil && b.err == nil {
		b.err = &driver.Error{Code: driver.ErrInvalid, Op: "commit", Err: err}
	}
}

// watermark returns how far the log is durable, to be put into the log next to the
// operations, or nil if that is there already, or there is nothing to sync.
func (b *Batch) watermark(s *Store) []byte {
	if s.options.Sync.mode != syncEach || s.options.forgetWatermarks {
		return nil
	}
	w, fresh := s.tracker.fresh()
	if !fresh {
		return nil
	}
	b.mark = w.append(b.mark[:0], s.id)
	return b.mark
}

// badKey reports whether key is not allowed: it is empty, or the store's own.
func badKey(key []byte) bool { return len(key) == 0 || key[0] == 0 }
