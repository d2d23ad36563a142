package oapapi

import (
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/internal/oap"
)

// A session remembers what became of a producer's latest requests, so that one
// that is repeated, because its answer was lost with a connection, is answered
// again and not done again (DUP-4).
//
// Requests have sequence numbers, and each says how far the oldest without an
// answer is behind. What is older is forgotten: a producer costs as much memory
// as it has requests under way, however much it sends.
type session struct {
	mu sync.Mutex
	// slots has a power of two of them; request n has slot n modulo that.
	slots []slot
	// oldest is the least sequence number that can still come.
	oldest uint64

	// connections that use it, and since when none does. They belong to
	// sessions.
	connections int
	idleSince   time.Time
}

// slot holds the outcome of the request with this sequence number.
type slot struct {
	sequence uint64
	done     bool
	status   uint16
	answer   []byte
	// askers wait for the outcome: they repeated the request while it was done.
	askers []asker
}

// An asker is a request that is to be answered on a connection.
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
	// stale: the client does not wait for it any more. It is a leftover of a
	// connection that is gone.
	stale
)

// begin judges a request, and answers one that was done before.
func (s *session) begin(ticket oap.Ticket, who asker) verdict {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.oldest = max(s.oldest, ticket.Sequence-ticket.Behind)
	if ticket.Sequence < s.oldest {
		return stale
	}
	s.fitLocked(ticket.Sequence - s.oldest + 1)
	sl := s.slotLocked(ticket.Sequence)
	switch {
	case ticket.Sequence < sl.sequence:
		return stale
	case ticket.Sequence > sl.sequence:
		sl.sequence, sl.done, sl.askers = ticket.Sequence, false, nil
		return fresh
	case sl.done:
		who.conn.out.copyFrame(oap.Response, sl.status, who.correlation, sl.answer)
		return repeated
	}
	sl.askers = append(sl.askers, who)
	return underway
}

func (s *session) slotLocked(sequence uint64) *slot {
	return &s.slots[sequence&uint64(len(s.slots)-1)]
}

// fitLocked makes room for this many requests at once.
func (s *session) fitLocked(requests uint64) {
	if requests <= uint64(len(s.slots)) {
		return
	}
	size := max(16, 2*len(s.slots))
	for uint64(size) < requests {
		size *= 2
	}
	old := s.slots
	s.slots = make([]slot, size)
	for i := range old {
		if old[i].sequence == 0 {
			continue // its place is that of a number that is in use
		}
		*s.slotLocked(old[i].sequence) = old[i]
	}
}

// finish remembers the outcome of a request and returns who else asked for it.
func (s *session) finish(sequence uint64, status uint16, answer []byte) []asker {
	s.mu.Lock()
	defer s.mu.Unlock()
	sl := s.slotLocked(sequence)
	if sl.sequence != sequence { // the client did not wait for it
		return nil
	}
	if cap(sl.answer) > keptAnswer {
		sl.answer = nil
	}
	sl.done, sl.status, sl.answer = true, status, append(sl.answer[:0], answer...)
	askers := sl.askers
	sl.askers = nil
	return askers
}

// keptAnswer is how much memory a slot keeps when its answer is not needed any
// more: that of a batch of a few messages.
const keptAnswer = 256

// sessions are the producer sessions of this process.
type sessions struct {
	mu      sync.Mutex
	known   map[sessionKey]*session
	sweptAt time.Time
}

// sessionKey says whose session it is: the producer's number is a secret of the
// client, and is good with the same capability only.
type sessionKey struct {
	capability [32]byte
	producer   [16]byte
}

// Bounds on sessions. Without its session a client can still go on; it just
// cannot know what became of the requests that it had no answer to.
const (
	maxSessions = 65_536
	// sessionLife is how long a session is kept when no connection uses it. It
	// is less when there are too many.
	sessionLife = 10 * time.Minute
)

// attach returns the session, and whether it was there. full says that there is
// no room for a new one.
func (all *sessions) attach(key sessionKey, now time.Time) (s *session, resumed, full bool) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if now.Sub(all.sweptAt) >= sessionLife {
		all.sweepLocked(now, sessionLife)
	}
	s, resumed = all.known[key]
	if !resumed {
		for life := sessionLife; len(all.known) >= maxSessions; life /= 8 {
			if all.sweepLocked(now, life); life == 0 {
				break
			}
		}
		if len(all.known) >= maxSessions {
			return nil, false, true
		}
		if all.known == nil {
			all.known = make(map[sessionKey]*session)
		}
		s = &session{}
		all.known[key] = s
	}
	s.connections++
	return s, resumed, false
}

// detach ends the use of a session by a connection.
func (all *sessions) detach(s *session, now time.Time) {
	all.mu.Lock()
	defer all.mu.Unlock()
	s.connections--
	s.idleSince = now
}

// sweepLocked forgets the sessions that nobody has used for as long as life.
func (all *sessions) sweepLocked(now time.Time, life time.Duration) {
	all.sweptAt = now
	for key, s := range all.known {
		if s.connections == 0 && now.Sub(s.idleSince) >= life {
			delete(all.known, key)
		}
	}
}

// count is how many sessions there are.
func (all *sessions) count() int {
	all.mu.Lock()
	defer all.mu.Unlock()
	return len(all.known)
}
