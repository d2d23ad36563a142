package diskbox

import "time"

// elapse lets virtual time pass.
func elapse(d time.Duration) { <-time.After(d) }

// A crashClock is the clock of a machine in one boot. It goes on from base.
type crashClock struct {
	id    string
	start time.Time
	base  time.Duration
}

func (c *crashClock) boot() string          { return c.id }
func (c *crashClock) uptime() time.Duration { return c.base + time.Since(c.start) }
