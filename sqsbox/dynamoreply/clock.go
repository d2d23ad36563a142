package dynamoreply

import (
	"sync"
	"time"
)

const (
	// trusted is how far the clock of this machine may be off before it is
	// corrected. DynamoDB tells its time in whole seconds, and a busy server may
	// tell a second that has just passed.
	trusted = 2 * time.Second
	// believedFor is for how long what was found out about the clock is taken
	// for true.
	believedFor = time.Minute
)

// A clock is the clock of this machine, corrected by the times that DynamoDB puts
// into its answers.
type clock struct {
	mu     sync.Mutex    // guards the fields below
	ahead  time.Duration // how far DynamoDB's clock is ahead
	looked time.Time     // by the clock of this machine; zero: never
}

// now returns the time, in UTC.
func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().UTC().Add(c.ahead)
}

// observe takes note of an answer that was given in the second that begins at
// told, to a request that was sent and answered at these times.
func (c *clock) observe(sent, received, told time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looked = received
	// Told has no monotonic part, so wall times are compared.
	atLeast, atMost := told.Sub(received), told.Add(time.Second).Sub(sent)
	if c.ahead < atLeast-trusted || c.ahead > atMost+trusted {
		c.ahead = (atLeast + atMost) / 2
	}
}

// stale reports whether the clock may have gone wrong since it was compared: a
// long time has passed, or somebody has set it, or the machine was asleep.
func (c *clock) stale() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	passed := now.Sub(c.looked)
	shown := now.Round(0).Sub(c.looked.Round(0)) // without the monotonic clock
	return c.looked.IsZero() || passed > believedFor || (shown-passed).Abs() > trusted
}
