package dynamoreply

import (
	"sync"
	"time"
)

const (
	// maxDrift is how far the clock of this machine may be off before it is
	// corrected. DynamoDB reports whole seconds, and a busy server may report
	// a second that has just passed.
	maxDrift = 2 * time.Second
	// recheckAfter is how long a comparison with DynamoDB's clock stays valid.
	recheckAfter = time.Minute
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

// observe compares the clock with a response: told is the second that DynamoDB
// reported, sent and received are the times of the request and its response here.
func (c *clock) observe(sent, received, told time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looked = received
	// Told has no monotonic part, so wall times are compared.
	atLeast, atMost := told.Sub(received), told.Add(time.Second).Sub(sent)
	if c.ahead < atLeast-maxDrift || c.ahead > atMost+maxDrift {
		c.ahead = (atLeast + atMost) / 2
	}
}

// stale reports whether the last comparison is too old to rely on: recheckAfter
// has passed, the clock was set, or the machine was suspended.
func (c *clock) stale() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	passed := now.Sub(c.looked)
	shown := now.Round(0).Sub(c.looked.Round(0)) // without the monotonic clock
	return c.looked.IsZero() || passed > recheckAfter || (shown-passed).Abs() > maxDrift
}
