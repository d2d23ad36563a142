package deadletter

import (
	"context"
	"sync"
)

// A Dedup remembers which letters were sent back, so that a second letter of the
// same work is not. Letters are the same work if they have the same request id
// or, lacking that, are of the same message. It must be safe for concurrent use.
// [Seen] remembers in memory; an own one can remember for longer.
type Dedup interface {
	// Seen reports whether the work that key stands for was sent back before.
	Seen(ctx context.Context, key string) (bool, error)
	// Mark says that it was. It is called after the letter was sent, so that a
	// crash in between sends it twice and does not lose it.
	Mark(ctx context.Context, key string) error
}

// Seen is a Dedup in memory that remembers the latest so many letters. Make one
// with NewSeen.
type Seen struct {
	mu     sync.Mutex // guards the fields below
	keys   map[string]bool
	oldest []string // a ring of the keys, in the order in which they came
	next   int
}

var _ Dedup = (*Seen)(nil)

// NewSeen returns a Dedup that remembers up to most letters, at least one.
func NewSeen(most int) *Seen {
	return &Seen{keys: make(map[string]bool), oldest: make([]string, 0, max(1, most))}
}

// Seen reports whether key was marked and is remembered. It does not block.
func (s *Seen) Seen(_ context.Context, key string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keys[key], nil
}

// Mark remembers key and, if there are too many, forgets the one that was marked
// first. It does not block.
func (s *Seen) Mark(_ context.Context, key string) error {
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
