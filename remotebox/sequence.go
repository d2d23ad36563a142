package remotebox

import (
	"context"
	"sync"

	"github.com/mailboxmq/mailbox/internal/oap"
)

// sequence numbers requests that change something, so that the daemon recognises
// one that is repeated. At most a window of them is without an answer.
type sequence struct {
	mu     sync.Mutex
	next   uint64 // number of the next request, from 1 on
	oldest uint64 // that has no answer; next if all have
	ended  [oap.MaxWindow]bool
	room   chan struct{} // closed when oldest moves; nil if no operation waits
}

func newSequence() *sequence { return &sequence{next: 1, oldest: 1} }

// take returns a number, and how far the oldest without an answer is behind it. It
// blocks while the window is full, until ctx ends.
func (s *sequence) take(ctx context.Context) (oap.Ticket, error) {
	for {
		s.mu.Lock()
		if s.next-s.oldest < oap.MaxWindow {
			ticket := oap.Ticket{Sequence: s.next, Behind: s.next - s.oldest}
			s.ended[s.next%oap.MaxWindow] = false
			s.next++
			s.mu.Unlock()
			return ticket, nil
		}
		if s.room == nil {
			s.room = make(chan struct{})
		}
		room := s.room
		s.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
			return oap.Ticket{}, ctx.Err()
		}
	}
}

// end says that a request has its answer, or will not be repeated any more.
func (s *sequence) end(n uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended[n%oap.MaxWindow] = true
	if n != s.oldest {
		return
	}
	for s.oldest < s.next && s.ended[s.oldest%oap.MaxWindow] {
		s.oldest++
	}
	if s.room != nil {
		close(s.room)
		s.room = nil
	}
}
