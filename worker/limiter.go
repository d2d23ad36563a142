package worker

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox"
)

// rate is a Limiter that allows a number of events per period, evenly spread, with
// bursts.
type rate struct {
	interval time.Duration // between two events
	slack    time.Duration // by how much events may come early

	mu   sync.Mutex // guards the fields below
	used bool
	next time.Time // when the next event is due if none comes early
}

// slackMax is longer than any program runs.
const slackMax = math.MaxInt64 / 2

// NewLimiter returns a limiter that allows n events per period. After a pause, up to
// burst events, at least one, may follow each other at once. An n or per below 1
// allows nothing.
func NewLimiter(n int, per time.Duration, burst int) Limiter {
	r := &rate{}
	if n > 0 && per > 0 {
		r.interval = max(per/time.Duration(n), 1)
		// Divided, because the product of a large burst overflows.
		early := time.Duration(max(1, burst) - 1)
		r.slack = r.interval * min(early, slackMax/r.interval)
	}
	return r
}

// Wait blocks until the next event may happen, or ctx ends, and then returns the
// context's error. If the deadline of ctx is before that, it does not wait and
// reserves nothing: it returns ErrTimeout, which is context.DeadlineExceeded too,
// with RetryAfter. Other codes: ErrInvalid if the limiter allows nothing.
func (r *rate) Wait(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if r.interval == 0 {
		return &mailbox.Error{Code: mailbox.ErrInvalid, Op: "wait", Field: "limiter", Detail: "allows nothing"}
	}
	now := time.Now()
	limit := time.Duration(math.MaxInt64)
	if deadline, ok := ctx.Deadline(); ok {
		limit = deadline.Sub(now)
	}
	at, wait := r.reserve(now, limit)
	switch {
	case wait > limit:
		return &mailbox.Error{
			Code: mailbox.ErrTimeout, Op: "wait", Detail: fmt.Sprintf("the next event is allowed in %v", wait),
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
		r.giveUp(at)
		return ctx.Err()
	}
}

// reserve returns the time of the next event and the wait until then, and reserves
// it unless the wait is longer than limit.
func (r *rate) reserve(now time.Time, limit time.Duration) (at time.Time, wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.used || r.next.Before(now) {
		r.used, r.next = true, now
	}
	at = r.next
	if wait = at.Add(-r.slack).Sub(now); wait <= limit {
		r.next = at.Add(r.interval)
	}
	return at, wait
}

// giveUp returns a reserved event if no later one is reserved. Otherwise the event
// stays unused: slightly too slow is better than too fast.
func (r *rate) giveUp(at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next.Equal(at.Add(r.interval)) {
		r.next = at
	}
}

// String returns the rate, for logs.
func (r *rate) String() string { return fmt.Sprintf("one per %v", r.interval) }
