package redisbox

import (
	"context"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

func (h *handle) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	if err := h.check(ctx, "receive"); err != nil {
		return nil, err
	}
	traits := h.Traits()
	req, err := req.Check(&traits)
	if err != nil {
		return nil, h.named(err, "receive")
	}
	h.mind(ctx)
	if req.Wait == 0 || !h.listens() {
		got, blocked, err := h.take(ctx, req, false)
		if len(got) > 0 || err != nil || req.Wait == 0 {
			return got, h.received(got, blocked, err)
		}
	}
	return h.await(ctx, req)
}

// received is the error that goes with what a receive got.
func (h *handle) received(got []driver.Delivery, blocked bool, err error) error {
	switch {
	case len(got) > 0:
		return nil
	case err != nil:
		return h.outcome(err, "receive")
	case !blocked:
		return nil
	}
	wait := retryAfter
	for _, s := range h.shards {
		wait = min(wait, max(s.clock.until(s.minder.next()), time.Millisecond))
	}
	return &driver.Error{
		Code: driver.ErrFull, Op: "receive", Queue: h.name, Field: "MaxInFlight",
		Detail: "as many messages are in flight as may be", RetryAfter: wait,
	}
}

// await takes messages when there are some, for as long as the request says. A
// receiver first joins those who wait and then looks, and a sender first adds
// its message and then announces it, so one of them always sees the other.
func (h *handle) await(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	patience := time.NewTimer(req.Wait)
	defer patience.Stop()
	w := h.waiters.join()
	// Until announcements are heard it is no use to have the server told that
	// somebody waits for them.
	waits := h.listens()
	for expired := false; ; {
		got, blocked, err := h.take(ctx, req, waits && !expired)
		if err != nil || len(got) > 0 || expired {
			h.part(w, err != nil)
			return got, h.received(got, blocked, err)
		}
		if !waits {
			waits = true
			if h.confirmed(ctx, patience) {
				continue
			}
		}
		woken, err := h.doze(ctx, w, patience)
		switch {
		case err != nil:
			h.part(w, true)
			return nil, err
		case !woken && !blocked && h.listens():
			h.part(w, false)
			return nil, nil
		}
		expired = !woken // one last look: what was in the way may be gone
	}
}

// part ends the waiting of a receiver. A signal that it could not act upon, and
// that no other receiver takes, is acted upon by the minders.
func (q *queue) part(w *waiter, unheard bool) {
	if q.waiters.leave(w, unheard) {
		for _, s := range q.shards {
			poke(s.minder.look)
		}
	}
}

// Without announcements, which a server may forbid, receivers that wait look by
// themselves.
const (
	confirmWithin = 2 * time.Second
	lookAlone     = time.Second
)

// listens reports whether the announcements of all shards are heard.
func (q *queue) listens() bool {
	for _, s := range q.shards {
		if !s.minder.ear.listens.Load() {
			return false
		}
	}
	return true
}

// confirmed waits until the announcements of all shards are heard, and reports
// false if that takes too long.
func (h *handle) confirmed(ctx context.Context, patience *time.Timer) bool {
	limit := time.NewTimer(confirmWithin)
	defer limit.Stop()
	for _, s := range h.shards {
		select {
		case <-s.minder.ear.confirmed:
		case <-limit.C:
			return false
		case <-patience.C:
			patience.Reset(0) // for who looks next
			return false
		case <-ctx.Done():
			return false
		case <-h.closed:
			return false
		case <-h.ended:
			return false
		}
	}
	return true
}

// doze waits for a signal. It reports false when the patience is over, and
// returns an error when the caller, the handle or the queue has come to an end.
func (h *handle) doze(ctx context.Context, w *waiter, patience *time.Timer) (woken bool, err error) {
	var alone <-chan time.Time
	if !h.listens() {
		timer := time.NewTimer(lookAlone)
		defer timer.Stop()
		alone = timer.C
	}
	select {
	case <-w.signal:
		h.waiters.hear(w)
		return true, nil
	case <-alone:
		return true, nil
	case <-patience.C:
		return false, nil
	case <-ctx.Done():
		return false, ctx.Err()
	case <-h.closed:
		return false, h.failure(driver.ErrClosed, "receive")
	case <-h.ended:
		return false, h.failure(h.code, "receive")
	}
}

// take leases what is ready, without waiting. blocked says that only the
// in-flight ceiling kept it from taking anything; waits, that the caller will
// wait if there is nothing.
func (h *handle) take(ctx context.Context, req driver.ReceiveRequest, waits bool) (got []driver.Delivery, blocked bool, err error) {
	if len(h.shards) == 1 {
		return h.takeFrom(ctx, h.shards[0], req, waits)
	}
	// One shard after the other, beginning with the one that is likely to have
	// something; and if it has not, only those that say they do.
	first := h.shards[h.nextTake.Add(1)%uint64(len(h.shards))]
	got, blocked, err = h.takeFrom(ctx, first, req, false)
	if err != nil || len(got) > 0 {
		return got, blocked, err
	}
	wants := "0"
	if waits {
		wants = "2"
	}
	left, err := onShards(h.queue, func(s *shard) (int64, error) {
		a, err := s.call(ctx, statsScript, how{}, wants)
		if err != nil {
			return 0, err
		}
		return a.rest[1].AsInt64()
	})
	if err != nil {
		return nil, blocked, err
	}
	for i, s := range h.shards {
		if left[i] == 0 {
			continue
		}
		got, full, err := h.takeFrom(ctx, s, req, waits)
		blocked = blocked || full
		if err != nil || len(got) > 0 {
			return got, blocked, err
		}
	}
	return nil, blocked, nil
}

// takeFrom leases what is ready in one shard. What turns out to be damaged is
// buried, and the rest returned.
func (h *handle) takeFrom(ctx context.Context, s *shard, req driver.ReceiveRequest, waits bool) ([]driver.Delivery, bool, error) {
	for {
		op := newReceiving(ctx, req, waits)
		s.receives.submit(ctx, op)
		if err := h.awaitReceiving(ctx, s, op); err != nil {
			return nil, false, err
		}
		if op.err != nil {
			return nil, false, op.err
		}
		got, damaged, err := op.deliveries(s)
		if err != nil {
			return nil, false, err
		}
		if len(damaged) > 0 {
			s.bury(ctx, damaged)
		}
		if len(got) > 0 || (len(damaged) == 0 && !op.cut) {
			return got, op.blocked, nil
		}
	}
}

// grace is how long a receive that is cancelled while the server is asked waits
// for the answer: there may be messages in it. What comes later is given back as if
// it had not been delivered, unless its lease is over by then. So a receive with a
// lease shorter than shortLease waits longer.
const (
	grace      = time.Second
	shortLease = 5 * time.Second
)

// awaitReceiving waits for the answer. If the caller leaves before, what comes is
// given back.
func (h *handle) awaitReceiving(ctx context.Context, s *shard, op *receiving) error {
	var reason error
	select {
	case <-op.done:
		return nil
	case <-ctx.Done():
		reason = ctx.Err()
	case <-h.closed:
		reason = h.failure(driver.ErrClosed, "receive")
	case <-h.ended:
		reason = h.failure(h.code, "receive")
	}
	if s.receives.withdraw(op) {
		return reason
	}
	timer := time.NewTimer(max(grace, shortLease-op.req.Visibility))
	defer timer.Stop()
	select {
	case <-op.done:
	case <-timer.C:
		if op.abandon() {
			return reason
		}
		<-op.done // it has come this very moment
	}
	if op.err != nil || op.count == 0 {
		return reason
	}
	return nil
}
