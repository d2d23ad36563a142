package mainloop

import (
	"fmt"
	"time"

	"github.com/mailboxmq/mailbox"
)

// minDeadline is how far ahead a new deadline must be: a closer one cannot be met.
const minDeadline = time.Second

// A Deadline is when work must be done, by the wall clock, because it travels between
// machines. The zero Deadline means none. Make one with DeadlineIn.
type Deadline struct {
	StartedAt time.Time `json:"started_at"`
	ExpiresAt time.Time `json:"expires_at"`
}

// DeadlineIn returns a deadline that begins now and ends after d. Codes: ErrInvalid if d is
// less than a second.
func DeadlineIn(d time.Duration) (Deadline, error) {
	if d < minDeadline {
		return Deadline{}, &mailbox.Error{
			Code: mailbox.ErrInvalid, Op: "deadline", Field: "expiresAt",
			Detail: fmt.Sprintf("is %v ahead; want at least %v", d, minDeadline),
		}
	}
	now := time.Now().UTC()
	return Deadline{StartedAt: now, ExpiresAt: now.Add(d)}, nil
}

// IsZero reports whether there is no deadline.
func (d Deadline) IsZero() bool { return d.ExpiresAt.IsZero() }

// Expired reports whether the deadline has been reached. A zero deadline never is.
func (d Deadline) Expired() bool { return !d.IsZero() && d.Remaining() <= 0 }

// Remaining returns the time until the deadline, negative after it.
func (d Deadline) Remaining() time.Duration { return time.Until(d.ExpiresAt) }

// earlier returns the deadline that comes first.
func (d Deadline) earlier(other Deadline) Deadline {
	if d.IsZero() || !other.IsZero() && other.ExpiresAt.Before(d.ExpiresAt) {
		return other
	}
	return d
}
