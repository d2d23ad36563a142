package host

import (
	"sync/atomic"
	"time"

	"github.com/mailboxmq/mailbox/internal/engine"
)

// clock gives moments. Reading the monotonic clock costs half of reading both,
// and every operation needs one, so the wall clock is read anew only now and
// then: it is for people, and follows steps of the system's clock within
// wallEvery.
type clock struct {
	start  time.Time    // zero of the monotonic axis
	offset atomic.Int64 // wall time of that zero, in Unix nanoseconds
	read   atomic.Int64 // monotonic time of the latest look at the wall clock
}

const wallEvery = time.Second

func (c *clock) init() {
	c.start = time.Now()
	c.offset.Store(c.start.UnixNano())
}

func (c *clock) now() engine.Moment {
	elapsed := int64(time.Since(c.start))
	if elapsed-c.read.Load() > int64(wallEvery) {
		now := time.Now()
		elapsed = int64(now.Sub(c.start))
		c.offset.Store(now.UnixNano() - elapsed)
		c.read.Store(elapsed)
	}
	return engine.Moment{At: engine.Instant(elapsed), Wall: c.offset.Load() + elapsed}
}
