package shard

import (
	"math"
	"sync"
	"time"
)

// clock is what this process knows about the time of a shard. The shard's own time axis
// follows the server's clock, except that it never goes back and does not jump when
// another server takes over; see time.lua. A process that has called before can tell the
// new server how much time has passed at least, because its own monotonic clock went on.
type clock struct {
	Mu   sync.Mutex // guards the fields below
	now  float64    // the shard's time when it last answered
	wall float64    // and the server's
	term float64    // the latest primary that has answered
	seen time.Time  // when that was, on our clock
	// StaleSince is since when only earlier primaries have answered.
	StaleSince time.Time
}

// FenceFor is how long primaries that are older than one seen before are refused. After
// that there is no newer one left, and the older one is used.
const FenceFor = 30 * time.Second

// Saw records the times of an answer.
func (c *clock) Saw(now, wall, term float64) {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	if now >= c.now {
		c.now, c.wall, c.seen = now, wall, time.Now()
	}
	c.term = max(c.term, term)
	c.StaleSince = time.Time{}
}

// SawStale records that a primary was refused because it is older than another.
func (c *clock) SawStale() {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	switch now := time.Now(); {
	case c.StaleSince.IsZero():
		c.StaleSince = now
	case now.Sub(c.StaleSince) > FenceFor:
		c.term = 0
	}
}

// SawNew records that the shard was created again, and so knows no earlier primary.
func (c *clock) SawNew() {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	c.term = 0
}

// Floor returns the earliest time it can be in the shard, and the latest primary that
// was seen. Clocks run at slightly different speeds, so a little is subtracted.
func (c *clock) Floor() (now, term float64) {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	if c.seen.IsZero() {
		return 0, 0
	}
	const surely = 0.999
	return math.Floor(c.now + surely*passed(c.seen)), c.term
}

// Until returns how long it takes until the shard's time is at.
func (c *clock) Until(at float64) time.Duration {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	left := at - c.now - passed(c.seen)
	if left > float64(math.MaxInt64/time.Microsecond) {
		return math.MaxInt64
	}
	return time.Duration(math.Ceil(left)) * time.Microsecond
}

// wallNow returns the server's time, in nanoseconds since 1970. Before the first answer
// it is our own.
func (c *clock) wallNow() int64 {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	if c.seen.IsZero() {
		return time.Now().UnixNano()
	}
	return int64(c.wall)*1000 + int64(time.Since(c.seen))
}

// wallAt returns the server's time when the shard's is at.
func (c *clock) wallAt(at float64) time.Time {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	return WallTime(c.wall + at - c.now)
}

func passed(since time.Time) float64 { return float64(time.Since(since)) / float64(time.Microsecond) }
