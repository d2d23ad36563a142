package store

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/mailboxmq/mailbox/driver"
)

// MaxBatchBytes bounds one commit.
const MaxBatchBytes = 256 << 20

// retainedBatchBytes bounds the memory that an emptied batch keeps for reuse.
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

// Set sets the value of key.
func (b *Batch) Set(key, value []byte) {
	if b.accept(key, len(value)) {
		b.keep(b.batch.Set(key, value, nil))
	}
}

// Delete removes key, if it exists.
func (b *Batch) Delete(key []byte) {
	if b.accept(key, 0) {
		b.keep(b.batch.Delete(key, nil))
	}
}

// DeleteSized is Delete for a caller that knows that key exists, and the size of its value,
// which lets the engine reclaim the space of large values sooner. A wrong size, or a second
// DeleteSized of the same value, does not harm the data, but the engine logs it as misuse.
func (b *Batch) DeleteSized(key []byte, valueSize int) {
	if b.accept(key, 0) {
		b.keep(b.batch.DeleteSized(key, uint32(valueSize), nil))
	}
}

// DeleteRange removes all keys from lo up to, but not including, hi. One call for ten thousand
// keys is cheap for later reads; one for each key is not.
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

// accept reports whether an operation may be added. If not, Commit returns the error.
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

// keep remembers an error of the engine. Today these operations never fail, but their signature
// allows it.
func (b *Batch) keep(err error) {
	if err != nil && b.err == nil {
		b.err = &driver.Error{Code: driver.ErrInvalid, Op: "commit", Err: err}
	}
}

// watermark returns the watermark to write into the log next to the operations, or nil if the
// log already has it, or the log is not synced.
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

// badKey reports whether key is not allowed: it is empty, or reserved for the store.
func badKey(key []byte) bool { return len(key) == 0 || key[0] == 0 }
