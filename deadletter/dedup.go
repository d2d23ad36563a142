package deadletter

import (
	"context"
	"sync"
)

// A Dedup remembers which dead letters were redriven, so that a second dead letter
// of the same work is not. Dead letters are the same work if they have the same
// request id or, without one, are of the same message. It must be safe for
// concurrent use. [NewMemoryDedup] returns one that remembers in memory.
type Dedup interface {
	// Seen reports whether the work with this key was redriven before.
	Seen(ctx context.Context, key string) (bool, error)
	// Mark records that it was. It is called after the message was sent, so a
	// crash in between sends it twice and does not lose it.
	Mark(ctx context.Context, key string) error
}

// memoryDedup is a Dedup in memory that remembers the latest dead letters.
type memoryDedup struct {
	mu     sync.Mutex // guards the fields below
	keys   map[string]bool
	oldest []string // a ring of the keys, in the order in which they came
	next   int
}

// NewMemoryDedup returns a Dedup that remembers up to most dead letters in memory, at
// least one. Its methods do not block.
func NewMemoryDedup(most int) Dedup { return newMemoryDedup(most) }

func newMemoryDedup(most int) *memoryDedup {
	return &memoryDedup{keys: make(map[string]bool), oldest: make([]string, 0, max(1, most))}
}

// Seen reports whether key was marked and is remembered. It does not block.
func (s *memoryDedup) Seen(_ context.Context, key string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keys[key], nil
}

// Mark remembers key and, if there are too many, forgets the oldest. It does not
// block.
func (s *memoryDedup) Mark(_ context.Context, key string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keys[key] {
		return nil
	}
	s.keys[key] = true
	if len(s.oldest) < cap(s.oldest) {
		s.oldest = append(s.oldest, key)
		return nil
	}
	delete(s.keys, s.oldest[s.next])
	s.oldest[s.next] = key
	s.next = (s.next + 1) % len(s.oldest)
	return nil
}
