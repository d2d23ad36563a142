package host

import (
	"sync/atomic"
	"time"

	"github.com/mailboxmq/mailbox/internal/engine"
)

// clock returns the current Moment. Reading only the monotonic clock costs half of
// reading both clocks, and every operation needs the time, so the wall clock is read
// at most once per wallEvery. Wall times follow steps of the system's clock within
// wallEvery.
type clock struct {
	start  time.Time      // when the clock was started
	zero   engine.Instant // the time on the axis at start
	offset atomic.Int64   // wall time of the zero of the axis, in Unix nanoseconds
	read   atomic.Int64   // monotonic time of the latest read of the wall clock
	wall   func() time.Time
}

const wallEvery = time.Second

func (c *clock) init(zero engine.Instant, wall func() time.Time) {
	if wall == nil {
		wall = time.Now
	}
	read := wall() // before the other clock, so that no due time comes early
	c.start, c.zero, c.wall = time.Now(), zero, wall
	c.offset.Store(read.UnixNano() - int64(zero))
	c.read.Store(int64(zero))
}

// Now returns the current time on the axis of the deadlines.
func (b *Backend) Now() engine.Instant { return b.clock.now().At }

func (c *clock) now() engine.Moment {
	at := int64(c.zero) + int64(time.Since(c.start))
	if at-c.read.Load() > int64(wallEvery) {
		now := c.wall()
		at = int64(c.zero) + int64(time.Since(c.start))
		c.offset.Store(now.UnixNano() - at)
		c.read.Store(at)
	}
	return engine.Moment{At: engine.Instant(at), Wall: c.offset.Load() + at}
}
