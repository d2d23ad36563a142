package host

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/mailboxmq/mailbox/internal/engine"
)

// waiters are the receivers that wait on a queue, oldest first.
//
// A send wakes them when its messages can be received: Send calls wake in memory, and
// shard.publish calls refresh when a journal has made them durable. A waiter that is woken
// takes messages under the shard's lock, as any receive does. Nothing is handed over, so a
// waiter that is cancelled has nothing to give back; if it was woken it wakes the next one.
// A waiter first joins and then looks, and a sender first inserts and then wakes, so one of
// them always sees the other.
type waiters struct {
	queue *queue
	count atomic.Int32 // read without the lock, to skip it when there are no waiters
	// forwards: the queue forwards its dead letters to another, where receivers may wait
	// for them, so the timer runs even without waiters here.
	forwards atomic.Bool

	mu          sync.Mutex // guards the fields below
	first, last *waiter
	// timer fires when something falls due that a waiter may want. It is set
	// only while it is wanted, and never moved to a later time: firing early
	// costs a look.
	timer   *time.Timer
	armed   engine.Instant
	isArmed bool
	stopped bool
}

type waiter struct {
	owner      *handle
	signal     chan struct{} // holds one signal
	signalled  bool
	prev, next *waiter
	patience   *time.Timer // fires when it has waited long enough
}

// newWaiter returns a waiter, one that was used before if there is one: a request
// and its reply are two waits, and this is most of what they cost.
func (b *Backend) newWaiter(patience time.Duration) *waiter {
	w, ok := b.spareWaiters.Get().(*waiter)
	if !ok {
		return &waiter{signal: make(chan struct{}, 1), patience: time.NewTimer(patience)}
	}
	w.patience.Reset(patience)
	return w
}

// freeWaiter keeps a waiter that has left for reuse.
func (b *Backend) freeWaiter(w *waiter) {
	w.patience.Stop()
	select {
	case <-w.signal: // it left without having looked
	default:
	}
	w.owner, w.signalled, w.prev, w.next = nil, false, nil, nil
	b.spareWaiters.Put(w)
}

func (ws *waiters) init(q *queue) { ws.queue = q }

// wanted reports whether the timer is needed.
func (ws *waiters) wanted() bool { return ws.count.Load() > 0 || ws.forwards.Load() }

// join registers a new waiter of a handle, which waits for as long as patience
// says.
func (ws *waiters) join(owner *handle, patience time.Duration) *waiter {
	w := ws.queue.backend.newWaiter(patience)
	w.owner = owner
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w.prev = ws.last
	if ws.last == nil {
		ws.first = w
	} else {
		ws.last.next = w
	}
	ws.last = w
	ws.count.Add(1)
	return w
}

// leave removes a waiter, which is not used any more. If it goes empty-handed, a
// signal it has got goes to the next.
func (ws *waiters) leave(w *waiter, emptyHanded bool) {
	ws.mu.Lock()
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
	ws.count.Add(-1)
	if !ws.wanted() && ws.timer != nil {
		ws.timer.Stop()
		ws.isArmed = false
	}
	passOn := w.signalled && emptyHanded
	ws.mu.Unlock()
	ws.queue.backend.freeWaiter(w)
	if passOn {
		ws.wake(1)
	}
}

// rest makes a waiter that was woken and has found nothing wait again.
func (ws *waiters) rest(w *waiter) {
	ws.mu.Lock()
	w.signalled = false
	ws.mu.Unlock()
}

// wake signals the n oldest waiters that have no signal yet.
func (ws *waiters) wake(n int) {
	if n <= 0 || ws.count.Load() == 0 {
		return
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for w := ws.first; w != nil && n > 0; w = w.next {
		if !w.signalled {
			w.signalled = true
			w.signal <- struct{}{}
			n--
		}
	}
}

// wakeOwner wakes the waiters of a handle, or all if it is nil, so that they notice that it
// is closed or the queue has ended. A waiter that joins later sees that without being woken.
func (ws *waiters) wakeOwner(owner *handle) {
	if ws.count.Load() == 0 {
		return
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for w := ws.first; w != nil; w = w.next {
		if (owner == nil || w.owner == owner) && !w.signalled {
			w.signalled = true
			w.signal <- struct{}{}
		}
	}
}

// WakeAll makes all receivers that wait look again, because the journal has
// failed.
func (b *Backend) WakeAll() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, q := range b.queues {
		q.waiters.wake(int(q.waiters.count.Load()))
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
	ws.queue.refresh()
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

// refresh wakes as many waiters as there is work for, and sets the timer for
// what falls due next. Everything that may change either of these calls it.
func (q *queue) refresh() {
	if !q.waiters.wanted() {
		return
	}
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
	q.waiters.wake(available)
	if found {
		q.waiters.arm(next, now)
	}
}
