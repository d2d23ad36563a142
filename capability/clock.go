package capability

import (
	"sync/atomic"
	"time"
)

// A clock tells the time of day, which tokens name, so that it never goes back,
// and the time that has passed, which caches live by.
//
// An expired token must not become good again because somebody turned the wall
// clock back. So the wall clock is only ever believed when it is later than
// expected; otherwise time goes on from where it was.
type clock struct {
	start time.Time
	// offset is the latest wall time seen, less the time passed by then.
	offset atomic.Int64
	// turned is how far tests have turned the wall clock.
	turned atomic.Int64
}

func newClock() *clock {
	c := &clock{start: time.Now()}
	c.offset.Store(c.start.UnixNano())
	return c
}

// monotonic is the time since the clock was made.
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

// read looks at both clocks at once.
func (c *clock) read() (wall int64, passed time.Duration) {
	now := time.Now()
	return now.UnixNano() + c.turned.Load(), now.Sub(c.start)
}

// behind is how far the wall clock is behind what is believed.
func (c *clock) behind() time.Duration {
	wall, passed := c.read()
	return max(0, time.Duration(c.offset.Load()+int64(passed)-wall))
}
