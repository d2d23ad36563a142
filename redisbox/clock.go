package redisbox

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
	mu   sync.Mutex // guards the fields below
	now  float64    // the shard's time when it last answered
	wall float64    // and the server's
	term float64    // the latest primary that has answered
	seen time.Time  // when that was, on our clock
	// staleSince is since when only earlier primaries have answered.
	staleSince time.Time
}

// fenceFor is how long primaries that are older than one seen before are refused. After
// that there is no newer one left, and the older one is used.
const fenceFor = 30 * time.Second

// saw records the times of an answer.
func (c *clock) saw(now, wall, term float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now >= c.now {
		c.now, c.wall, c.seen = now, wall, time.Now()
	}
	c.term = max(c.term, term)
	c.staleSince = time.Time{}
}

// sawStale records that a primary was refused because it is older than another.
func (c *clock) sawStale() {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch now := time.Now(); {
	case c.staleSince.IsZero():
		c.staleSince = now
	case now.Sub(c.staleSince) > fenceFor:
		c.term = 0
	}
}

// sawNew records that the shard was created again, and so knows no earlier primary.
func (c *clock) sawNew() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.term = 0
}

// floor returns the earliest time it can be in the shard, and the latest primary that
// was seen. Clocks run at slightly different speeds, so a little is subtracted.
func (c *clock) floor() (now, term float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen.IsZero() {
		return 0, 0
	}
	const surely = 0.999
	return math.Floor(c.now + surely*passed(c.seen)), c.term
}

// until returns how long it takes until the shard's time is at.
func (c *clock) until(at float64) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	left := at - c.now - passed(c.seen)
	if left > float64(math.MaxInt64/time.Microsecond) {
		return math.MaxInt64
	}
	return time.Duration(math.Ceil(left)) * time.Microsecond
}

// wallNow returns the server's time, in nanoseconds since 1970. Before the first answer
// it is our own.
func (c *clock) wallNow() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen.IsZero() {
		return time.Now().UnixNano()
	}
	return int64(c.wall)*1000 + int64(time.Since(c.seen))
}

// wallAt returns the server's time when the shard's is at.
func (c *clock) wallAt(at float64) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return wallTime(c.wall + at - c.now)
}

func passed(since time.Time) float64 { return float64(time.Since(since)) / float64(time.Microsecond) }
