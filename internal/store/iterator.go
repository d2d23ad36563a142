package store

import (
	"iter"
	"slices"

	"github.com/cockroachdb/pebble/v2"
)

// An Iterator iterates over a range of keys, in order, as they were when it was created. It
// holds memory and files until it is closed, so it should not live long. It is used by one
// goroutine at a time.
//
//	it := s.Iterate(cursor, end)
//	defer it.Close()
//	for it.Next() {
//		… it.Key(), it.Value() …
//	}
//	return it.Err()
//
// A queue is consumed from its head, and deleted keys slow down a reader that scans over them
// until they are compacted away. So a reader remembers its position and starts the next time
// from there: lo is the cursor, not the beginning of the queue.
type Iterator struct {
	store   *Store
	it      *pebble.Iterator // nil if it could not be created, or was closed
	started bool
	key     []byte
	value   []byte
	err     error
}

// Iterate returns an iterator over the keys from lo up to, but not including, hi. Nil means
// from the first, or up to the last. It must be closed; Store.Close waits for it. Err returns
// its errors (ErrUnavailable, ErrClosed).
func (s *Store) Iterate(lo, hi []byte) *Iterator {
	it := &Iterator{store: s}
	if it.err = s.enter(); it.err != nil {
		return it
	}
	if len(lo) == 0 || lo[0] == 0 {
		lo = lowestKey
	}
	engine, err := s.db.NewIter(&pebble.IterOptions{LowerBound: slices.Clone(lo), UpperBound: slices.Clone(hi)})
	if err != nil {
		it.err = s.outcome("iterate", err)
		s.leave()
		return it
	}
	it.it = engine
	return it
}

// Next moves to the next key, at first to the first one. It returns false at the end of the
// range and at an error; see Err.
func (it *Iterator) Next() bool {
	if !it.started {
		it.started = true
		return it.move((*pebble.Iterator).First)
	}
	return it.move((*pebble.Iterator).Next)
}

// Prev moves to the previous key.
func (it *Iterator) Prev() bool { return it.move((*pebble.Iterator).Prev) }

// Last moves to the last key of the range.
func (it *Iterator) Last() bool { return it.move((*pebble.Iterator).Last) }

// Seek moves to the first key that is at least key.
func (it *Iterator) Seek(key []byte) bool {
	return it.move(func(engine *pebble.Iterator) bool { return engine.SeekGE(key) })
}

func (it *Iterator) move(step func(*pebble.Iterator) bool) bool {
	it.started = true
	if it.it == nil || it.err != nil {
		return false
	}
	it.key, it.value = nil, nil
	if !step(it.it) {
		it.err = it.store.outcome("iterate", it.it.Error())
		return false
	}
	value, err := it.it.ValueAndErr()
	if it.err = it.store.outcome("iterate", err); it.err != nil {
		return false
	}
	it.key, it.value = it.it.Key(), value
	return true
}

// Key returns the key, or nil if there is none. It is valid until the next move and must not be
// changed.
func (it *Iterator) Key() []byte { return it.key }

// Value returns the value. It is valid until the next move and must not be
// changed.
func (it *Iterator) Value() []byte { return it.value }

// Err returns why Next ended early, or nil. Codes: ErrIntegrity (stored bytes
// are damaged; Corruptions in Health name the file), ErrUnavailable, ErrClosed.
func (it *Iterator) Err() error { return it.err }

// All yields the rest of the range. Check Err after it.
func (it *Iterator) All() iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		for it.Next() {
			if !yield(it.Key(), it.Value()) {
				return
			}
		}
	}
}

// Close releases the iterator and returns Err. Closing twice is fine.
func (it *Iterator) Close() error {
	if it.it == nil {
		return it.err
	}
	err := it.it.Close()
	it.it, it.key, it.value = nil, nil, nil
	if it.err == nil {
		it.err = it.store.outcome("iterate", err)
	}
	it.store.leave()
	return it.err
}
