package host

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

func (h *handle) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	if err := h.check(ctx, "receive"); err != nil {
		return nil, err
	}
	req, err := req.Check(h.settings.Load().traits)
	if err != nil {
		return nil, h.named(err, "receive")
	}
	taken := h.take(ctx, req)
	if len(taken.deliveries) > 0 {
		return h.deliverTaken(taken)
	}
	if err := h.broken("receive"); err != nil {
		return nil, err
	}
	if req.Wait == 0 {
		return nil, h.inFlightFull(taken.blocked)
	}
	return h.await(ctx, req)
}

// deliverTaken ends a receive that has leased messages.
func (h *handle) deliverTaken(t taken) ([]driver.Delivery, error) {
	h.refresh() // waiting receivers may depend on the new deadlines
	if t.survivors {
		if err := h.backend.barrier(); err != nil {
			return nil, h.named(err, "receive")
		}
	}
	return t.deliveries, nil
}

// await waits for messages for as long as the request says.
func (h *handle) await(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	w := h.waiters.join(h, req.Wait)
	expired, woken := false, false
	for {
		if err := h.check(ctx, "receive"); err != nil {
			h.waiters.leave(w, true)
			if woken { // pass the wake-up on
				h.waiters.wake(1)
			}
			return nil, err
		}
		taken := h.take(ctx, req)
		if len(taken.deliveries) > 0 {
			h.waiters.leave(w, false) // first, so that it is not woken although it has messages
			return h.deliverTaken(taken)
		}
		if err := h.broken("receive"); err != nil || expired {
			h.waiters.leave(w, true)
			return nil, cmp.Or(err, h.inFlightFull(taken.blocked))
		}
		h.refresh()
		woken = false
		select {
		case <-w.signal: // also sent when the handle or the queue is closed
			h.waiters.rest(w)
			woken = true
		case <-w.patience.C:
			expired = true // try once more
		case <-ctx.Done():
			h.waiters.leave(w, true)
			return nil, ctx.Err()
		}
	}
}

// taken is the result of leasing messages for a receive.
type taken struct {
	deliveries []driver.Delivery
	// blocked: messages were ready, but MaxInFlight is reached.
	blocked bool
	// survivors: some of the messages existed when an earlier process ended without
	// closing, and may have crashed it. Their leases must be durable before they are
	// delivered, so that the deliveries count even if the process crashes again.
	survivors bool
}

// take leases ready messages.
func (q *queue) take(ctx context.Context, req driver.ReceiveRequest) (t taken) {
	first := uint64(0)
	if len(q.shards) > 1 {
		first = q.nextTake.Add(1)
	}
	for i := range q.shards {
		sh := q.shards[(first+uint64(i))%uint64(len(q.shards))]
		for searching := true; searching; searching = searching && ctx.Err() == nil && !q.isEnded.Load() {
			searching = sh.take(req, &t)
		}
		if got := len(t.deliveries); got == req.Max || (got > 0 && req.MaxBytes > 0) {
			break
		}
	}
	t.blocked = t.blocked && len(t.deliveries) == 0
	return t
}

// take leases ready messages of one shard. searching reports that it has not looked at
// all messages: it unlocks the shard for others, and has to be called again.
func (sh *shard) take(req driver.ReceiveRequest, t *taken) (searching bool) {
	sh.lock()
	defer sh.unlock()
	had := len(t.deliveries)
	entries, full := sh.engine.Receive(sh.queue.now(), req.Max-had, req.MaxBytes, req.Visibility, sh.batch[:0])
	if had == 0 {
		t.deliveries = make([]driver.Delivery, len(entries))
	} else {
		t.deliveries = append(t.deliveries, make([]driver.Delivery, len(entries))...)
	}
	for i, e := range entries {
		sh.deliver(&t.deliveries[had+i], e)
		t.survivors = t.survivors || e.Seq < sh.survivors
	}
	t.blocked = t.blocked || full
	searching = len(entries) == 0 && sh.engine.Searching()
	clear(entries)
	sh.batch = entries
	return searching
}

// inFlightFull returns the error of a receive that was blocked by MaxInFlight, or nil.
func (q *queue) inFlightFull(blocked bool) error {
	if !blocked {
		return nil
	}
	wait := retryAfter
	for _, sh := range q.shards {
		sh.lock()
		if at, ok := sh.engine.NextDeadline(); ok {
			wait = min(wait, max(time.Duration(at-q.now().At), time.Millisecond))
		}
		sh.unlock()
	}
	return &driver.Error{
		Code: driver.ErrFull, Op: "receive", Queue: q.name, Field: "MaxInFlight",
		Detail: fmt.Sprintf("in-flight limit reached (MaxInFlight %d)", q.settings.Load().config.MaxInFlight), RetryAfter: wait,
	}
}
