package oapapi

import (
	"slices"
	"sync"
	"unsafe"

	"github.com/mailboxmq/mailbox/internal/oap"
)

// A session remembers what became of a producer's latest requests, so that one
// that is repeated, because its answer was lost with a connection, is answered
// again and not done again (DUP-4).
//
// Requests have sequence numbers, and each says how far the oldest without an
// answer is behind. What is older is forgotten: a producer costs as much memory
// as it has requests under way, however much it sends, and no more than its memory
// allows. An outcome that there is no memory for is forgotten, the oldest first: a
// repeat of its request is answered that the outcome is unknown, and is not done.
type session struct {
	mu     sync.Mutex // guards the fields below
	memory memory
	// slots has a power of two of them; request n has slot n modulo that.
	slots []slot
	// oldest is the least sequence number that can still come.
	oldest uint64
}

// slot holds the outcome of the request with this sequence number.
type slot struct {
	sequence uint64
	done     bool
	// forgotten: the request was done, and there was no memory for the answer.
	forgotten bool
	status    uint16
	answer    []byte
	// askers wait for the outcome: they repeated the request while it was done.
	askers []asker
}

// An asker is a request that waits for an answer on a connection.
type asker struct {
	conn        *conn
	correlation uint64
}

// A verdict is what to do with a request.
type verdict int

const (
	// fresh: do it, and finish it.
	fresh verdict = iota
	// repeated: it was done, and was answered again.
	repeated
	// underway: it is being done, and will be answered when that is over.
	underway
	// unknown: it was done, and what became of it is forgotten.
	unknown
	// full: there is no memory for what would become of it. It is not done.
	full
	// stale: the client does not wait for it any more. It is a leftover of a
	// connection that is gone.
	stale
)

// slotBytes is what a slot costs without its answer.
const slotBytes = int64(unsafe.Sizeof(slot{}))

// earlierAnswer is the answer to a request that was done before.
type earlierAnswer struct {
	status  uint16
	payload []byte
}

// begin judges a request, and returns the answer of one that is repeated. The error is that
// of full.
func (s *session) begin(ticket oap.Ticket, who asker) (verdict, earlierAnswer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advanceLocked(ticket.Sequence - ticket.Behind)
	if ticket.Sequence < s.oldest {
		return stale, earlierAnswer{}, nil
	}
	if err := s.fitLocked(ticket.Sequence - s.oldest + 1); err != nil {
		return full, earlierAnswer{}, err
	}
	sl := s.slotLocked(ticket.Sequence)
	switch {
	case ticket.Sequence < sl.sequence:
		return stale, earlierAnswer{}, nil
	case ticket.Sequence > sl.sequence:
		sl.sequence, sl.done, sl.forgotten, sl.askers = ticket.Sequence, false, false, nil
		return fresh, earlierAnswer{}, nil
	case sl.forgotten:
		return unknown, earlierAnswer{}, nil
	case sl.done:
		return repeated, earlierAnswer{sl.status, slices.Clone(sl.answer)}, nil
	}
	sl.askers = append(sl.askers, who)
	return underway, earlierAnswer{}, nil
}

// advanceLocked notes that the client has the answers to everything before oldest,
// and lets go of them.
func (s *session) advanceLocked(oldest uint64) {
	if oldest <= s.oldest {
		return
	}
	from := max(s.oldest, oldest-min(oldest, uint64(len(s.slots))))
	for n := from; n < oldest && len(s.slots) > 0; n++ {
		if sl := s.slotLocked(n); sl.sequence == n && sl.done && cap(sl.answer) > keptAnswer {
			s.dropLocked(sl)
		}
	}
	s.oldest = oldest
}

// dropLocked lets go of an answer.
func (s *session) dropLocked(sl *slot) {
	s.memory.give(int64(cap(sl.answer)))
	sl.answer = nil
}

func (s *session) slotLocked(sequence uint64) *slot {
	return &s.slots[sequence&uint64(len(s.slots)-1)]
}

// fitLocked makes room for this many requests at once. The error is ErrFull.
func (s *session) fitLocked(requests uint64) error {
	if requests <= uint64(len(s.slots)) {
		return nil
	}
	size := max(16, 2*len(s.slots))
	for uint64(size) < requests {
		size *= 2
	}
	if err := s.memory.take(int64(size-len(s.slots)) * slotBytes); err != nil {
		return err
	}
	old := s.slots
	s.slots = make([]slot, size)
	for i := range old {
		if old[i].sequence == 0 {
			continue // its place is that of a number that is in use
		}
		*s.slotLocked(old[i].sequence) = old[i]
	}
	return nil
}

// finish remembers the outcome of a request and returns who else asked for it.
func (s *session) finish(sequence uint64, status uint16, answer []byte) []asker {
	s.mu.Lock()
	defer s.mu.Unlock()
	sl := s.slotLocked(sequence)
	if sl.sequence != sequence { // the client did not wait for it
		return nil
	}
	askers := sl.askers
	sl.done, sl.askers = true, nil
	if cap(sl.answer) < len(answer) || cap(sl.answer) > max(keptAnswer, 2*len(answer)) {
		s.dropLocked(sl)
		if !s.roomLocked(int64(len(answer)), sequence) {
			sl.forgotten = true
			return askers
		}
		sl.answer = make([]byte, 0, len(answer))
	}
	sl.status, sl.answer = status, append(sl.answer[:0], answer...)
	return askers
}

// roomLocked takes memory for an answer. If there is none, the session forgets what
// became of its oldest requests until there is.
func (s *session) roomLocked(bytes int64, sequence uint64) bool {
	if bytes == 0 || s.memory.take(bytes) == nil {
		return true
	}
	for n := s.oldest; n < sequence; n++ {
		sl := s.slotLocked(n)
		if sl.sequence != n || !sl.done || cap(sl.answer) == 0 {
			continue
		}
		s.dropLocked(sl)
		sl.forgotten = true
		if s.memory.take(bytes) == nil {
			return true
		}
	}
	return false
}

// keptAnswer is how much memory a slot keeps when its answer is not needed any
// more: that of a batch of a few messages.
const keptAnswer = 256
