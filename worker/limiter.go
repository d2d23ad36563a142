package worker

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox"
)

// Rate is a Limiter that allows so many things in a stretch of time, evenly
// spread, with some that may come early. Make one with NewLimiter. It may be
// shared by loops.
type Rate struct {
	interval time.Duration // between two things
	slack    time.Duration // by how much they may come early

	mu   sync.Mutex // guards the fields below
	used bool
	next time.Time // when the next thing is due if none comes early
}

var _ Limiter = (*Rate)(nil)

// slackMax is more than any program runs.
const slackMax = math.MaxInt64 / 2

// NewLimiter returns a limiter that allows n things per stretch of time, of which
// up to burst, at least one, may follow each other without a pause after a time
// of rest. An n or per below 1 allows nothing.
func NewLimiter(n int, per time.Duration, burst int) *Rate {
	r := &Rate{}
	if n > 0 && per > 0 {
		r.interval = max(per/time.Duration(n), 1)
		// Divided, because the product of a large burst overflows.
		early := time.Duration(max(1, burst) - 1)
		r.slack = r.interval * min(early, slackMax/r.interval)
	}
	return r
}

// Wait blocks until the next thing may happen, or ctx ends, and then returns the
// context's error. If the deadline of ctx is before that, it does not wait at all,
// and takes nobody's place: that is ErrTimeout, which is context.DeadlineExceeded
// too and hints at when to ask again. Codes beside that: ErrInvalid if the limiter
// allows nothing.
func (r *Rate) Wait(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if r.interval == 0 {
		return &mailbox.Error{Code: mailbox.ErrInvalid, Op: "wait", Field: "limiter", Detail: "allows nothing"}
	}
	now := time.Now()
	patience := time.Duration(math.MaxInt64)
	if deadline, ok := ctx.Deadline(); ok {
		patience = deadline.Sub(now)
	}
	place, wait := r.reserve(now, patience)
	switch {
	case wait > patience:
		return &mailbox.Error{
			Code: mailbox.ErrTimeout, Op: "wait", Detail: fmt.Sprintf("the next is in %v", wait),
			RetryAfter: wait, Err: context.DeadlineExceeded,
		}
	case wait <= 0:
		return nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		r.giveUp(place)
		return ctx.Err()
	}
}

// reserve returns the next place and how long it is until then, and takes it
// unless that is too long for who asks.
func (r *Rate) reserve(now time.Time, patience time.Duration) (place time.Time, wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.used || r.next.Before(now) {
		r.used, r.next = true, now
	}
	place = r.next
	if wait = place.Add(-r.slack).Sub(now); wait <= patience {
		r.next = place.Add(r.interval)
	}
	return place, wait
}

// giveUp gives a place back if nobody has one after it. Another one stays empty:
// being a little slow is better than being asked to hurry.
func (r *Rate) giveUp(place time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next.Equal(place.Add(r.interval)) {
		r.next = place
	}
}

// String returns the rate, for logs.
func (r *Rate) String() string { return fmt.Sprintf("one per %v", r.interval) }
