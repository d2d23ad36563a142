// Package backoff says how long to wait before a backend that failed is asked
// again, and waits.
package backoff

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// Limits of AfterError.
const (
	Shortest = 50 * time.Millisecond
	Longest  = 5 * time.Second
	// longestHint bounds how far a backend's own hint is followed: it may be
	// wrong, and who was told to stop does not want to wait for it.
	longestHint = 30 * time.Second
)

// AfterError is how long to wait after the n-th error in a row, which is err: a
// time that doubles from Shortest to Longest, or what the error itself asks for
// if that is longer. Half of it is random, so that those who lost a backend
// together do not come back to it together.
func AfterError(n int, err error) time.Duration {
	full := Longest
	if doublings := max(0, n-1); doublings < 10 { // beyond that, shifting has long reached the top
		full = min(Shortest<<doublings, Longest)
	}
	wait := full/2 + rand.N(full/2+1)
	return max(wait, min(driver.RetryAfter(err), longestHint))
}

// Pause blocks for d. If ctx ends before, it returns the error of ctx.
func Pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
