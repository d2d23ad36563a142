// Package maxhold reads driver.Config.MaxHold as earlier versions wrote it.
package maxhold

import "time"

const (
	// Default is the MaxHold of queues on mailboxd, and of queues that were configured with a
	// multiple by an earlier version.
	Default = 12 * time.Hour

	// maxMultiple is the highest MaxHold of versions in which it was a multiple of the
	// visibility. A time is always more nanoseconds: Config.Validate refuses less than 2 ms.
	maxMultiple = 1 << 20
)

// Read returns the MaxHold that n stands for in a stored configuration or in a frame: a time
// in nanoseconds, or a multiple of an earlier version. Every multiple is read as Default. It
// is at least as long as what any multiple up to ten allowed, because a delivery can always be
// held for ten times its visibility.
func Read(n int64) time.Duration {
	if n > 0 && n <= maxMultiple {
		return Default
	}
	return time.Duration(n)
}
