package mainloop

import (
	"fmt"
	"time"

	"github.com/mailboxmq/mailbox"
)

// minDeadline is how far ahead a new deadline must be: a closer one cannot be met.
const minDeadline = time.Second

// A Deadline is when work must be done, by the wall clock, because it travels between
// machines. The zero Deadline means none. Make one with NewDeadline or DeadlineIn.
type Deadline struct {
	StartedAt time.Time `json:"started_at"`
	ExpiresAt time.Time `json:"expires_at"`
}

// NewDeadline returns a deadline that begins now. Codes: ErrInvalid if it is not
// at least a second ahead.
func NewDeadline(expiresAt time.Time) (Deadline, error) {
	now := time.Now()
	if ahead := expiresAt.Sub(now); ahead < minDeadline {
		return Deadline{}, &mailbox.Error{
			Code: mailbox.ErrInvalid, Op: "deadline", Field: "expiresAt",
			Detail: fmt.Sprintf("is %v ahead; want at least %v", ahead, minDeadline),
		}
	}
	return Deadline{StartedAt: now.UTC(), ExpiresAt: expiresAt.UTC()}, nil
}

// DeadlineIn is NewDeadline for a time from now.
func DeadlineIn(d time.Duration) (Deadline, error) { return NewDeadline(time.Now().Add(d)) }

// IsZero reports whether there is no deadline.
func (d Deadline) IsZero() bool { return d.ExpiresAt.IsZero() }

// Expired reports whether the deadline has been reached. A zero deadline never is.
func (d Deadline) Expired() bool { return !d.IsZero() && d.Remaining() <= 0 }

// Remaining returns the time until the deadline, negative after it.
func (d Deadline) Remaining() time.Duration { return time.Until(d.ExpiresAt) }

// Elapsed returns the time since the deadline was set.
func (d Deadline) Elapsed() time.Duration { return time.Since(d.StartedAt) }

// earlier returns the deadline that comes first.
func (d Deadline) earlier(other Deadline) Deadline {
	if d.IsZero() || !other.IsZero() && other.ExpiresAt.Before(d.ExpiresAt) {
		return other
	}
	return d
}
