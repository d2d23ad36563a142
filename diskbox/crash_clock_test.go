package diskbox

import "time"

// elapse lets virtual time pass.
func elapse(d time.Duration) { <-time.After(d) }

// A crashClock is the clock of a machine in one boot. At start it has been up for base, and its
// wall clock shows set.
type crashClock struct {
	id    string
	start time.Time
	base  time.Duration
	set   time.Time
}

func (c *crashClock) boot() string          { return c.id }
func (c *crashClock) uptime() time.Duration { return c.base + time.Since(c.start) }
func (c *crashClock) wall() time.Time       { return c.set.Add(time.Since(c.start)) }
