package shard

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"
)

// A Session numbers calls, so that a shard can tell a repeated call from a new one. One
// call uses it at a time.
type Session struct {
	name  string
	since time.Time
	turn  int64
}

// sessionFor is how long a session is used. The server forgets much older ones.
const sessionFor = 10 * time.Minute

// next begins a new turn.
func (s *Session) next() {
	if s.isOver() {
		*s = Session{name: strconv.FormatUint(rand.Uint64(), 36), since: time.Now()}
	}
	s.turn++
}

func (s *Session) isOver() bool { return s.name == "" || time.Since(s.since) > sessionFor }

// A sessionPool holds the sessions that no call uses now. They are used again, because
// the server remembers each for an hour.
type sessionPool struct {
	mu   sync.Mutex // guards idle
	idle []*Session // the one that was used last is last
}

// take returns a session that no other call uses.
func (p *sessionPool) take() *Session {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := len(p.idle) - 1
	if last < 0 {
		return &Session{}
	}
	sess := p.idle[last]
	p.idle = p.idle[:last]
	return sess
}

// put gives a session back. It drops sessions that are over, so that a burst of calls
// leaves none behind.
func (p *sessionPool) put(sess *Session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.idle) > 0 && p.idle[0].isOver() {
		p.idle = slices.Clip(slices.DeleteFunc(p.idle, (*Session).isOver))
	}
	p.idle = append(p.idle, sess)
}
