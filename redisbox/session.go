package redisbox

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"
)

// A session numbers calls, so that a shard can tell one that is repeated from a
// new one. It is used by one call at a time.
type session struct {
	name  string
	since time.Time
	turn  int64
}

// sessionFor is how long a session is used. The server forgets those that are
// much older.
const sessionFor = 10 * time.Minute

// next begins a new turn.
func (s *session) next() {
	if s.isOver() {
		*s = session{name: strconv.FormatUint(rand.Uint64(), 36), since: time.Now()}
	}
	s.turn++
}

func (s *session) isOver() bool { return s.name == "" || time.Since(s.since) > sessionFor }

// A sessionPool has the sessions that no call uses now. They are used again, because
// the server remembers each for an hour.
type sessionPool struct {
	mu   sync.Mutex // guards idle
	idle []*session // the one that was used last is last
}

// take returns a session that nobody else uses.
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

// put gives a session back. Those that are over go, so that a rush leaves nothing
// behind.
func (p *sessionPool) put(sess *session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.idle) > 0 && p.idle[0].isOver() {
		p.idle = slices.Clip(slices.DeleteFunc(p.idle, (*session).isOver))
	}
	p.idle = append(p.idle, sess)
}
