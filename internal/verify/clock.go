package verify

import (
	"sync/atomic"
	"time"
)

// A clock returns a wall time that never goes back, for the times in tokens, and
// the monotonic time, for caches.
//
// An expired token must not become valid again because the wall clock was set
// back. So the clock follows the wall clock only when that is later than expected;
// otherwise its time advances with the monotonic clock.
type clock struct {
	start time.Time
	// offset is the latest wall time seen, minus the monotonic time at that moment.
	offset atomic.Int64
	// turned is by how much tests have set the wall clock forward or back.
	turned atomic.Int64
}

func newClock() *clock {
	c := &clock{start: time.Now()}
	c.offset.Store(c.start.UnixNano())
	return c
}

// monotonic returns the time since the clock was made.
func (c *clock) monotonic() time.Duration { return time.Since(c.start) }

// now returns the wall time in Unix nanoseconds, and the time since the clock
// was made.
func (c *clock) now() (wall int64, passed time.Duration) {
	wall, passed = c.read()
	offset := wall - int64(passed)
	for {
		latest := c.offset.Load()
		if offset <= latest {
			return latest + int64(passed), passed
		}
		if c.offset.CompareAndSwap(latest, offset) {
			return wall, passed
		}
	}
}

// read returns both clocks at the same moment.
func (c *clock) read() (wall int64, passed time.Duration) {
	now := time.Now()
	return now.UnixNano() + c.turned.Load(), now.Sub(c.start)
}

// behind returns how far the wall clock is behind the time that now returns.
func (c *clock) behind() time.Duration {
	wall, passed := c.read()
	return max(0, time.Duration(c.offset.Load()+int64(passed)-wall))
}
