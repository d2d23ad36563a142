package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/completion"
)

func (h *handle) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	if err := h.check(ctx, "receive"); err != nil {
		return nil, err
	}
	req, err := req.Check(h.settings.Load().traits)
	if err != nil {
		return nil, h.named(err, "receive")
	}
	t := h.take(req, func() bool { return ctx.Err() == nil && !h.isEnded.Load() })
	if len(t.deliveries) > 0 {
		h.serve(nil) // waiting receives may depend on the new deadlines
		if t.survivors {
			if err := h.backend.barrier(); err != nil {
				return nil, h.named(err, "receive")
			}
		}
		return t.deliveries, nil
	}
	if err := h.broken("receive"); err != nil {
		return nil, err
	}
	if req.Wait == 0 {
		return nil, h.inFlightFull(t.blocked)
	}
	return h.await(ctx, req)
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
	// searching: the search for messages was stopped before it was complete.
	searching bool
}

// take leases ready messages. Between two parts of a long search it asks goOn whether to
// go on.
func (q *queue) take(req driver.ReceiveRequest, goOn func() bool) (t taken) {
	first := uint64(0)
	if len(q.shards) > 1 {
		first = q.nextTake.Add(1)
	}
	for i := range q.shards {
		sh := q.shards[(first+uint64(i))%uint64(len(q.shards))]
		for sh.take(req, &t) {
			if !goOn() {
				t.searching = true
				break
			}
		}
		if got := len(t.deliveries); got == req.Max || (got > 0 && req.MaxBytes > 0) {
			break
		}
	}
	if len(t.deliveries) > 0 {
		t.blocked, t.searching = false, false
	} else if len(q.shards) > 1 {
		q.nextTake.Add(^uint64(0)) // it did not use up the turn
	}
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

// await waits for messages for as long as the request says.
func (h *handle) await(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	w := h.backend.newWaiter(h, req)
	defer h.backend.freeWaiter(w)
	if err := h.waiters.join(w); err != nil {
		return nil, err
	}
	h.serve(nil)
	select {
	case <-w.signal:
		return w.deliveries, w.err
	case <-w.patience.C:
		if h.waiters.leave(w, true) {
			h.lookOnce(w)
		}
	case <-ctx.Done():
		if h.waiters.leave(w, false) {
			return nil, ctx.Err()
		}
	}
	<-w.signal
	if errors.Is(w.err, context.Canceled) {
		return nil, ctx.Err()
	}
	return w.deliveries, w.err
}

// StartReceive implements completion.Queue.
func (h *handle) StartReceive(r *completion.Round, req driver.ReceiveRequest, done completion.Delivered) (cancel func()) {
	err := h.check(context.Background(), "receive")
	if err == nil {
		req, err = req.Check(h.settings.Load().traits)
		err = h.named(err, "receive")
	}
	if err != nil {
		done(r, nil, err)
		return nil
	}
	w := &waiter{handle: h, req: req, done: done}
	t := h.take(req, never)
	switch {
	case len(t.deliveries) > 0:
		h.serve(r) // waiting receives may depend on the new deadlines
		h.hand(r, w, t)
		return nil
	case t.searching && req.Wait == 0:
		w.expired, w.state = true, waiterServed
		go h.search(w)
		return nil
	case req.Wait == 0:
		done(r, nil, cmp.Or(h.broken("receive"), h.inFlightFull(t.blocked)))
		return nil
	}
	if err := h.waiters.join(w); err != nil {
		done(r, nil, err)
		return nil
	}
	cancel = func() {
		if h.waiters.leave(w, false) {
			var round completion.Round
			w.complete(&round, nil, context.Canceled)
			round.End()
		}
	}
	h.serve(r)
	return cancel
}
