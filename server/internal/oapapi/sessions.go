package oapapi

import (
	"slices"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/share"
)

// Bounds on sessions. Without its session a client can still go on; it just
// cannot know what became of the requests that it had no answer to.
const (
	maxSessions = 65_536
	// sessionLife is how long a session is kept when no connection uses it. It
	// is less when its token has too many.
	sessionLife = 10 * time.Minute
	// maxSessionBytes bounds what one session remembers: a window full of batches of
	// a few dozen messages. maxSessionsBytes bounds what all of them do, divided
	// among tenants and tokens.
	maxSessionBytes  = 4 << 20
	maxSessionsBytes = 32 << 20
	// memoryStep is what a session takes from its share at once at least, so that
	// the share is not asked for every answer.
	memoryStep = 1 << 10
	// retrySession is when to try again for a session or its memory: other requests
	// are answered within that time.
	retrySession = time.Second
)

// An owner is the share that a connection counts against: tenant and token.
type owner [2]share.Key

// A memory is what a session may keep, taken from its owner's share in steps. The
// zero value is bounded alone.
type memory struct {
	pool     *share.Pool
	owner    owner // of the session; it does not change
	used     int64
	reserved int64 // from the pool
}

// take takes bytes. The error is ErrFull.
func (m *memory) take(bytes int64) error {
	if m.used+bytes > maxSessionBytes {
		return &driver.Error{Code: driver.ErrFull, Op: "session", RetryAfter: retrySession, Detail: "the producer session remembers as much as it may (4 MiB)"}
	}
	if want := m.used + bytes - m.reserved; want > 0 && m.pool != nil {
		want = max(want, memoryStep)
		if err := m.pool.Take(m.owner[:], want); err != nil {
			return err
		}
		m.reserved += want
	}
	m.used += bytes
	return nil
}

// give returns bytes. What is reserved and not used goes back to the share when it
// is much.
func (m *memory) give(bytes int64) {
	m.used -= bytes
	if spare := m.reserved - m.used; m.pool != nil && spare > 32*memoryStep {
		m.pool.Give(m.owner[:], spare-memoryStep)
		m.reserved -= spare - memoryStep
	}
}

// end returns everything.
func (m *memory) end() {
	if m.pool != nil {
		m.pool.Give(m.owner[:], m.reserved)
	}
	m.pool, m.used, m.reserved = nil, 0, 0
}

// sessions are the producer sessions of this process. Make them with newSessions.
type sessions struct {
	count, bytes *share.Pool

	mu    sync.Mutex // guards the fields below
	known map[sessionKey]*kept
	timer *time.Timer // ends what rests; nil while nothing does
}

// kept is a session with how it is used.
type kept struct {
	session
	key         sessionKey
	connections int
	idleSince   time.Time
}

// sessionKey says whose session it is: the producer's number is a secret of the
// client, and is good with the same capability only.
type sessionKey struct {
	capability [32]byte
	producer   [16]byte
}

func newSessions() *sessions {
	return &sessions{
		count: share.New("sessions", "max_sessions", maxSessions, retrySession),
		bytes: share.New("session memory", "max_session_bytes", maxSessionsBytes, retrySession),
		known: make(map[sessionKey]*kept),
	}
}

// attach returns the session, and whether it was there. The error is ErrFull: the
// owner's share of sessions is used up by sessions that are in use.
func (all *sessions) attach(key sessionKey, by owner) (s *kept, resumed bool, err error) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if s = all.known[key]; s != nil {
		s.connections++
		return s, true, nil
	}
	if err = all.count.Take(by[:], 1); err != nil && all.pushOutLocked(by) {
		err = all.count.Take(by[:], 1)
	}
	if err != nil {
		return nil, false, err
	}
	s = &kept{key: key, connections: 1}
	s.memory = memory{pool: all.bytes, owner: by}
	all.known[key] = s
	return s, false, nil
}

// detach ends the use of a session by a connection.
func (all *sessions) detach(s *kept) {
	all.mu.Lock()
	defer all.mu.Unlock()
	s.connections--
	s.idleSince = time.Now()
	if s.connections == 0 && all.timer == nil {
		all.timer = time.AfterFunc(sessionLife, all.sweep)
	}
}

// sweep forgets the sessions that have rested for long enough, and comes back for
// the others.
func (all *sessions) sweep() {
	all.mu.Lock()
	defer all.mu.Unlock()
	next := time.Duration(-1)
	for _, s := range all.known {
		if s.connections > 0 {
			continue
		}
		if left := sessionLife - time.Since(s.idleSince); left <= 0 {
			all.forgetLocked(s)
		} else if next < 0 || left < next {
			next = left
		}
	}
	all.timer = nil
	if next > 0 {
		all.timer = time.AfterFunc(max(next, sweepPause), all.sweep)
	}
}

// sweepPause bounds how often all sessions are looked through.
const sweepPause = 10 * time.Second

// forgetLocked ends a session that is not in use.
func (all *sessions) forgetLocked(s *kept) {
	delete(all.known, s.key)
	all.count.Give(s.memory.owner[:], 1)
	s.mu.Lock()
	s.memory.end()
	s.mu.Unlock()
}

// pushOutPart is the part of a token's resting sessions that go at once, so that
// looking for them is seldom.
const pushOutPart = 8

// pushOutLocked forgets those sessions of a token that have rested longest. It
// reports false if none rest.
func (all *sessions) pushOutLocked(by owner) bool {
	var resting []*kept
	for _, s := range all.known {
		if s.memory.owner == by && s.connections == 0 {
			resting = append(resting, s)
		}
	}
	slices.SortFunc(resting, func(a, b *kept) int { return a.idleSince.Compare(b.idleSince) })
	for _, s := range resting[:(len(resting)+pushOutPart-1)/pushOutPart] {
		all.forgetLocked(s)
	}
	return len(resting) > 0
}

// end stops the timer.
func (all *sessions) end() {
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.timer != nil {
		all.timer.Stop()
		all.timer = nil
	}
}
