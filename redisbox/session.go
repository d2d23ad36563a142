package redisbox

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"
)

// A session numbers calls, so that a shard can tell a repeated call from a new one. One
// call uses it at a time.
type session struct {
	name  string
	since time.Time
	turn  int64
}

// sessionFor is how long a session is used. The server forgets much older ones.
const sessionFor = 10 * time.Minute

// next begins a new turn.
func (s *session) next() {
	if s.isOver() {
		*s = session{name: strconv.FormatUint(rand.Uint64(), 36), since: time.Now()}
	}
	s.turn++
}

func (s *session) isOver() bool { return s.name == "" || time.Since(s.since) > sessionFor }

// A sessionPool holds the sessions that no call uses now. They are used again, because
// the server remembers each for an hour.
type sessionPool struct {
	mu   sync.Mutex // guards idle
	idle []*session // the one that was used last is last
}

// take returns a session that no other call uses.
func (p *sessionPool) take() *session {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := len(p.idle) - 1
	if last < 0 {
		return &session{}
	}
	sess := p.idle[last]
	p.idle = p.idle[:last]
	return sess
}

// put gives a session back. It drops sessions that are over, so that a burst of calls
// leaves none behind.
func (p *sessionPool) put(sess *session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.idle) > 0 && p.idle[0].isOver() {
		p.idle = slices.Clip(slices.DeleteFunc(p.idle, (*session).isOver))
	}
	p.idle = append(p.idle, sess)
}
