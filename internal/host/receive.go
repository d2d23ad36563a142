package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
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
	t := h.take(req, func() bool { return ctx.Err() == nil && !h.isEnded.Load() }, new(memory))
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
// go on. The deliveries are in the memory of into.
func (q *queue) take(req driver.ReceiveRequest, goOn func() bool, into *memory) (t taken) {
	t.deliveries = into.deliveries
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
	into.deliveries = t.deliveries
	q.backend.reclaimRoom()
	return t
}

// take leases ready messages of one shard. searching reports that it has not looked at
// all messages: it unlocks the shard for others, and has to be called again.
func (sh *shard) take(req driver.ReceiveRequest, t *taken) (searching bool) {
	sh.lock()
	defer sh.unlock()
	had := len(t.deliveries)
	now := sh.queue.now()
	sh.received = now.At
	entries, full := sh.engine.Receive(now, req.Max-had, req.MaxBytes, req.Visibility, sh.batch[:0])
	if room := had + len(entries); room > cap(t.deliveries) {
		t.deliveries = append(make([]driver.Delivery, 0, room), t.deliveries...)
	}
	t.deliveries = t.deliveries[:had+len(entries)]
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

// memory is room for the deliveries of one receive, to be used again.
type memory struct{ deliveries []driver.Delivery }

var spareMemory = sync.Pool{New: func() any { return new(memory) }}

func takeMemory() *memory { return spareMemory.Get().(*memory) }

// maxKeptDeliveries is how much room is kept.
const maxKeptDeliveries = 128

func (m *memory) free() {
	clear(m.deliveries)
	if m.deliveries = m.deliveries[:0]; cap(m.deliveries) <= maxKeptDeliveries {
		spareMemory.Put(m)
	}
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
func (h *handle) StartReceive(r *completion.Round, req driver.ReceiveRequest, to completion.Receiver) completion.Waiting {
	err := h.usable("receive")
	if err == nil {
		req, err = req.Check(h.settings.Load().traits)
		err = h.named(err, "receive")
	}
	if err != nil {
		to.Received(r, nil, err)
		return nil
	}
	memory := takeMemory()
	defer memory.free()
	t := h.take(req, never, memory)
	switch {
	case len(t.deliveries) > 0 && t.survivors:
		h.hand(r, &waiter{handle: h, to: to}, t)
		return nil
	case len(t.deliveries) > 0:
		to.Received(r, t.deliveries, nil)
		h.serve(r) // waiting receives may depend on the new deadlines
		return nil
	case t.searching && req.Wait == 0:
		go h.search(&waiter{handle: h, req: req, to: to, expired: true, state: waiterServed})
		return nil
	case req.Wait == 0:
		to.Received(r, nil, cmp.Or(h.broken("receive"), h.inFlightFull(t.blocked)))
		return nil
	}
	w := &waiter{handle: h, req: req, to: to}
	if err := h.waiters.join(w); err != nil {
		to.Received(r, nil, err)
		return nil
	}
	h.serve(r)
	return w
}
