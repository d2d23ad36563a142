package mainloop

import (
	"fmt"
	"time"

	"github.com/mailboxmq/mailbox"
)

// MinDeadline is how far ahead a new deadline has to be: anything closer cannot
// be kept.
const MinDeadline = time.Second

// A Deadline is when work has to be done, by the wall clock, because it travels
// between machines. The zero Deadline is none. Make one with NewDeadline or
// DeadlineIn.
type Deadline struct {
	StartedAt time.Time `json:"started_at"`
	ExpiresAt time.Time `json:"expires_at"`
}

// NewDeadline returns a deadline that begins now. Codes: ErrInvalid if it is not
// at least MinDeadline ahead.
func NewDeadline(expiresAt time.Time) (Deadline, error) {
	now := time.Now()
	if ahead := expiresAt.Sub(now); ahead < MinDeadline {
		return Deadline{}, &mailbox.Error{
			Code: mailbox.ErrInvalid, Op: "deadline", Field: "expiresAt",
			Detail: fmt.Sprintf("is %v ahead, at least %v is needed", ahead, MinDeadline),
		}
	}
	return Deadline{StartedAt: now.UTC(), ExpiresAt: expiresAt.UTC()}, nil
}

// DeadlineIn is NewDeadline for a time from now.
func DeadlineIn(d time.Duration) (Deadline, error) { return NewDeadline(time.Now().Add(d)) }

// IsZero reports whether there is no deadline.
func (d Deadline) IsZero() bool { return d.ExpiresAt.IsZero() }

// Expired reports whether the time is over. A deadline is over when the clock
// shows it. One that is zero never is.
func (d Deadline) Expired() bool { return !d.IsZero() && d.Remaining() <= 0 }

// Remaining is how much time there is. It is negative after the deadline.
func (d Deadline) Remaining() time.Duration { return time.Until(d.ExpiresAt) }

// Elapsed is how much time has passed since the deadline was set.
func (d Deadline) Elapsed() time.Duration { return time.Since(d.StartedAt) }

// earlier returns the deadline that comes first.
func (d Deadline) earlier(other Deadline) Deadline {
	if d.IsZero() || !other.IsZero() && other.ExpiresAt.Before(d.ExpiresAt) {
		return other
	}
	return d
}
