package host

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/completion"
	"github.com/mailboxmq/mailbox/internal/engine"
)

// waiters are the receives that wait on a queue, oldest first. They are records: a receive
// that waits needs no goroutine.
//
// The goroutine that makes messages available serves them: see queue.serve. A receive
// first joins and is then served, and a sender first publishes and then serves, so one of
// them always sees the other.
type waiters struct {
	queue *queue
	count atomic.Int32 // listed ones; read without the lock, to skip it when there are none
	// forwards: the queue forwards its dead letters to another queue, where a receive may
	// wait for them, so the timer runs even if no receive waits here.
	forwards atomic.Bool

	mu          sync.Mutex // guards the fields below
	first, last *waiter
	// timer fires when something falls due that a receive may want. It is set only while
	// it is wanted, and never moved to a later time: firing early costs a look.
	timer   *time.Timer
	armed   engine.Instant
	isArmed bool
	stopped bool
}

// waiterState is where a waiter is. It is guarded by the lock of its waiters.
type waiterState uint8

const (
	waiterListed  waiterState = iota + 1 // it waits
	waiterServed                         // a goroutine tries to serve it
	waiterLeaving                        // like waiterServed, and it must not wait any longer
	waiterDone                           // it is complete, or about to be
)

// waiter is a receive that waits.
type waiter struct {
	handle     *handle
	req        driver.ReceiveRequest
	state      waiterState
	expired    bool // it has waited for as long as it may, which may be not at all
	prev, next *waiter

	// A started receive has to and a timer for the end of its wait. The goroutine of a
	// blocking one waits for signal, and then reads the result.
	to         completion.Receiver
	timer      *time.Timer
	signal     chan struct{}
	patience   *time.Timer
	deliveries []driver.Delivery
	err        error
}

// complete ends the receive. The waiter is not listed, and the deliveries are valid during the
// call.
func (w *waiter) complete(r *completion.Round, deliveries []driver.Delivery, err error) {
	if w.to == nil {
		w.deliveries, w.err = slices.Clone(deliveries), err
		w.signal <- struct{}{}
		return
	}
	if w.timer != nil {
		w.timer.Stop()
	}
	w.to.Received(r, deliveries, err)
}

// newWaiter returns a waiter for a goroutine that blocks, reused if possible: a request and
// its reply are two waits, and this is most of what they cost.
func (b *Backend) newWaiter(h *handle, req driver.ReceiveRequest) *waiter {
	w, ok := b.spareWaiters.Get().(*waiter)
	if ok {
		w.patience.Reset(req.Wait)
	} else {
		w = &waiter{signal: make(chan struct{}, 1), patience: time.NewTimer(req.Wait)}
	}
	w.handle, w.req = h, req
	return w
}

// freeWaiter keeps a waiter for reuse. It is not listed, and its signal was received if it
// was sent.
func (b *Backend) freeWaiter(w *waiter) {
	w.patience.Stop()
	w.handle, w.state, w.expired, w.deliveries, w.err = nil, 0, false, nil, nil
	b.spareWaiters.Put(w)
}

func (ws *waiters) init(q *queue) { ws.queue = q }

// wanted reports whether a receive would notice if the timer fired.
func (ws *waiters) wanted() bool { return ws.count.Load() > 0 || ws.forwards.Load() }

// join lists a waiter behind all others, and sets the timer of a started receive. The error
// is why the receive cannot wait. dismiss completes waiters that joined before.
func (ws *waiters) join(w *waiter) error {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if err := w.handle.usable("receive"); err != nil {
		return err
	}
	if w.to != nil {
		w.timer = time.AfterFunc(w.req.Wait, w.expire)
	}
	ws.listLocked(w, ws.last)
	return nil
}

// listLocked lists a waiter behind another one, or first if that is nil.
func (ws *waiters) listLocked(w, behind *waiter) {
	w.state, w.prev = waiterListed, behind
	if behind == nil {
		w.next, ws.first = ws.first, w
	} else {
		w.next, behind.next = behind.next, w
	}
	if w.next == nil {
		ws.last = w
	} else {
		w.next.prev = w
	}
	ws.count.Add(1)
}

func (ws *waiters) unlistLocked(w *waiter, state waiterState) {
	if w.prev == nil {
		ws.first = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		ws.last = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.prev, w.next, w.state = nil, nil, state
	ws.count.Add(-1)
	if !ws.wanted() && ws.timer != nil {
		ws.timer.Stop()
		ws.isArmed = false
	}
}

// take unlists the oldest waiter to serve it, and returns nil if there is none.
func (ws *waiters) take() *waiter {
	if ws.count.Load() == 0 {
		return nil
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w := ws.first
	if w != nil {
		ws.unlistLocked(w, waiterServed)
	}
	return w
}

// putBack lists a waiter that could not be served before all others. If it must not wait any
// longer, putBack completes it. blocked says that MaxInFlight is reached.
func (ws *waiters) putBack(r *completion.Round, w *waiter, blocked bool) {
	ws.mu.Lock()
	err := w.handle.usable("receive") // it may have ended meanwhile
	if err == nil && w.state != waiterLeaving && !w.expired {
		ws.listLocked(w, nil)
		ws.mu.Unlock()
		return
	}
	expired := w.expired
	w.state = waiterDone
	ws.mu.Unlock()
	switch {
	case err != nil:
	case expired:
		err = w.handle.inFlightFull(blocked)
	default:
		err = context.Canceled
	}
	w.complete(r, nil, err)
}

// leave ends the wait of a waiter, because it has expired or was cancelled. If it reports
// true, the caller completes the receive; otherwise another goroutine does.
func (ws *waiters) leave(w *waiter, expired bool) bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w.expired = w.expired || expired
	switch w.state {
	case waiterListed:
		ws.unlistLocked(w, waiterDone)
		return true
	case waiterServed:
		w.state = waiterLeaving
	}
	return false
}

// waits reports whether a waiter that is being served still waits.
func (ws *waiters) waits(w *waiter) bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return w.state != waiterLeaving
}

// dismiss completes the receives of a handle, or all if it is nil, with why. Receives that
// join later must see the reason themselves.
func (ws *waiters) dismiss(owner *handle, why func(*handle) error) {
	var dismissed []*waiter
	ws.mu.Lock()
	for w := ws.first; w != nil; {
		next := w.next
		if owner == nil || w.handle == owner {
			ws.unlistLocked(w, waiterDone)
			dismissed = append(dismissed, w)
		}
		w = next
	}
	ws.mu.Unlock()
	var round completion.Round
	for _, w := range dismissed {
		w.complete(&round, nil, why(w.handle))
	}
	round.End()
}

// WakeAll completes all receives that wait, because the journal has failed.
func (b *Backend) WakeAll() {
	for _, q := range b.allQueues() {
		q.waiters.dismiss(nil, func(h *handle) error { return h.usable("receive") })
	}
}

// arm makes the timer fire at the given instant, or before.
func (ws *waiters) arm(at, now engine.Instant) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.stopped || !ws.wanted() || (ws.isArmed && ws.armed <= at) {
		return
	}
	ws.armed, ws.isArmed = at, true
	delay := time.Duration(max(at-now, 0))
	if ws.timer == nil {
		ws.timer = time.AfterFunc(delay, ws.fire)
		return
	}
	ws.timer.Reset(delay)
}

func (ws *waiters) fire() {
	ws.mu.Lock()
	ws.isArmed = false
	ws.mu.Unlock()
	ws.queue.serve(nil)
}

// stop ends the timer for good.
func (ws *waiters) stop() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.stopped = true
	if ws.timer != nil {
		ws.timer.Stop()
	}
}

// serve delivers the messages that are available to the receives that wait, and sets the
// timer for what falls due next. Everything that may change either of these calls it,
// without holding a lock. r may be nil.
func (q *queue) serve(r *completion.Round) {
	if !q.waiters.wanted() {
		return
	}
	if r == nil {
		r = completion.NewRound()
		defer r.Close()
	}
	for {
		for w := q.waiters.take(); w != nil; w = q.waiters.take() {
			if !q.serveOne(r, w) {
				break
			}
		}
		if !q.waiters.wanted() || !q.available() {
			return
		}
	}
}

// serveSoon is serve for callers that hold a lock.
func (q *queue) serveSoon() {
	if q.waiters.count.Load() > 0 {
		go q.serve(nil)
	}
}

// serveOne serves a waiter that is not listed, and reports false if there is nothing for it.
// A receive that has to search a long backlog does that on another goroutine, because the
// caller has others to serve.
func (q *queue) serveOne(r *completion.Round, w *waiter) bool {
	memory := takeMemory()
	defer memory.free()
	t := q.take(w.req, never, memory)
	switch {
	case len(t.deliveries) > 0:
		w.handle.hand(r, w, t)
		return true
	case t.searching:
		go w.handle.search(w)
		return true
	}
	if err := q.broken("receive"); err != nil {
		w.complete(r, nil, err)
		return true
	}
	q.waiters.putBack(r, w, t.blocked)
	return false
}

// never stops a search at once.
func never() bool { return false }

// search serves a waiter that is not listed, however long that takes.
func (h *handle) search(w *waiter) {
	var round completion.Round
	defer round.End()
	t := h.take(w.req, func() bool { return h.waiters.waits(w) && !h.isEnded.Load() }, new(memory))
	if len(t.deliveries) > 0 {
		h.hand(&round, w, t)
		return
	}
	if err := h.broken("receive"); err != nil {
		w.complete(&round, nil, err)
		return
	}
	h.waiters.putBack(&round, w, t.blocked)
	h.serve(&round)
}

// expire ends a started receive that has waited for as long as it may.
func (w *waiter) expire() {
	if h := w.handle; h.waiters.leave(w, true) {
		h.lookOnce(w)
	}
}

// Cancel implements completion.Waiting.
func (w *waiter) Cancel() {
	if w.handle.waiters.leave(w, false) {
		var round completion.Round
		w.complete(&round, nil, context.Canceled)
		round.End()
	}
}

// lookOnce ends a receive that is not listed, and has expired, with a last look.
func (h *handle) lookOnce(w *waiter) {
	var round completion.Round
	defer round.End()
	t := h.take(w.req, never, new(memory))
	err := h.broken("receive")
	switch {
	case len(t.deliveries) > 0:
		h.hand(&round, w, t)
	case err != nil:
		w.complete(&round, nil, err)
	default:
		w.complete(&round, nil, h.inFlightFull(t.blocked))
	}
}

// hand completes a receive with leased messages. Leases of survivors have to be durable
// first.
func (h *handle) hand(r *completion.Round, w *waiter, t taken) {
	if !t.survivors {
		w.complete(r, t.deliveries, nil)
		return
	}
	deliveries := slices.Clone(t.deliveries)
	h.backend.whenDurable(func(r *completion.Round, err error) {
		if err != nil {
			w.complete(r, nil, h.named(err, "receive"))
			return
		}
		w.complete(r, deliveries, nil)
	})
}

// available reports whether a message can be received, and sets the timer for what falls
// due next.
func (q *queue) available() bool {
	available := 0
	var next, now engine.Instant
	found := false
	for _, sh := range q.shards {
		sh.lock()
		moment := q.now()
		available += sh.engine.Available(moment)
		at, ok := sh.engine.NextDeadline()
		sh.unlock()
		now = moment.At
		if ok && (!found || at < next) {
			next, found = at, true
		}
	}
	if found {
		q.waiters.arm(next, now)
	}
	return available > 0 && q.waiters.count.Load() > 0
}
