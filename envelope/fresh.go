package envelope

import (
	"fmt"
	"time"
)

// AttributeExpires is the attribute with which a sender sets until when a message may be
// acted on, in the form of ts. Like every attribute it is covered by the hash chain, and
// so by a signature.
const AttributeExpires = "mailbox.expires"

// clockTolerance is how far the clock of a sender may be ahead of that of the queue.
const clockTolerance = 2 * time.Minute

// CheckFresh returns ErrIntegrity for a message that may be a replay:
// it has expired, or the queue accepted it more than maxAge after it was
// signed, or more than two minutes before. The time in the queue does not
// matter. With maxAge 0 the age is not checked.
//
// A queue accepts the same key once within its dedup window. So with a maxAge that is not
// longer than the window, a signed message is accepted only once.
func (e *Envelope) CheckFresh(enqueuedAt, now time.Time, maxAge time.Duration) error {
	if text, ok := e.Attributes[AttributeExpires]; ok {
		expires, err := parseTime(text)
		if err != nil {
			return e.integrityError("attrs", AttributeExpires+" is not a time in the form of ts")
		}
		if !now.Before(expires) {
			return e.integrityError("attrs", AttributeExpires+" is over")
		}
	}
	if maxAge <= 0 {
		return nil
	}
	switch age := enqueuedAt.Sub(e.SentAt); {
	case age > maxAge:
		return e.integrityError("ts", fmt.Sprintf("the message was signed %v before it was sent to the queue, at most %v is allowed", age.Truncate(time.Millisecond), maxAge))
	case age < -clockTolerance:
		return e.integrityError("ts", fmt.Sprintf("the message was signed %v after it was sent to the queue", -age.Truncate(time.Millisecond)))
	}
	return nil
}
