package worker

import (
	"context"
	"fmt"
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

// NewLimiter returns a limiter that allows n things per stretch of time, of which
// up to burst, at least one, may follow each other without a pause after a time
// of rest. An n or per below 1 allows nothing.
func NewLimiter(n int, per time.Duration, burst int) *Rate {
	r := &Rate{}
	if n > 0 && per > 0 {
		r.interval = max(per/time.Duration(n), 1)
		r.slack = r.interval * time.Duration(max(1, burst)-1)
	}
	return r
}

// Wait blocks until the next thing may happen, or ctx ends, and then returns the
// context's error. Codes: ErrInvalid if the limiter allows nothing.
func (r *Rate) Wait(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if r.interval == 0 {
		return &mailbox.Error{Code: mailbox.ErrInvalid, Op: "wait", Field: "limiter", Detail: "allows nothing"}
	}
	wait := r.reserve(time.Now())
	if wait <= 0 {
		return nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// reserve takes the next place and returns how long it is until then. A place
// that is given up is not filled again: being a little slow is better than being
// asked to hurry.
func (r *Rate) reserve(now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.used || r.next.Before(now) {
		r.used, r.next = true, now
	}
	wait := r.next.Add(-r.slack).Sub(now)
	r.next = r.next.Add(r.interval)
	return wait
}

// String returns the rate, for logs.
func (r *Rate) String() string { return fmt.Sprintf("one per %v", r.interval) }
