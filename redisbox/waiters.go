package redisbox

import (
	"sync"
	"sync/atomic"
)

// waiters are the receivers of this process that wait on a queue, oldest first.
//
// A waiter is woken by a signal and then asks the server like everybody else.
// Nothing is handed over, so a waiter that leaves has nothing to give back; but
// a signal that it has got and not acted upon goes to the next.
type waiters struct {
	count atomic.Int32 // read without the lock, to skip it when nobody waits

	mu          sync.Mutex // guards the fields below
	first, last *waiter
}

type waiter struct {
	signal     chan struct{} // holds one signal
	signalled  bool
	prev, next *waiter
}

// join registers a new waiter.
func (ws *waiters) join() *waiter {
	w := &waiter{signal: make(chan struct{}, 1)}
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

// leave removes a waiter. unheard says that it had no chance to act upon its
// latest signal. It reports whether there is a signal that nobody has taken.
func (ws *waiters) leave(w *waiter, unheard bool) (left bool) {
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
	passOn := w.signalled || unheard
	ws.mu.Unlock()
	return passOn && !ws.wake(1)
}

// hear says that a signalled waiter looks from now on.
func (ws *waiters) hear(w *waiter) {
	ws.mu.Lock()
	w.signalled = false
	ws.mu.Unlock()
}

// wake signals the n oldest waiters that have no signal yet, and reports whether
// there was one.
func (ws *waiters) wake(n int) (woken bool) {
	if n <= 0 || ws.count.Load() == 0 {
		return false
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for w := ws.first; w != nil && n > 0; w = w.next {
		if !w.signalled {
			w.signalled, woken = true, true
			w.signal <- struct{}{}
			n--
		}
	}
	return woken
}
