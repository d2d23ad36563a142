// Package waitlist keeps the receives of a process that wait on a queue, for backends whose
// queues are on a server.
package waitlist

import (
	"sync"
	"sync/atomic"
)

// A List is the receives that wait on a queue, oldest first. The zero value is empty. It is
// safe for concurrent use.
//
// A woken waiter asks the server like any receive. No message is handed over with the signal,
// so a waiter that leaves has none to give back; but a signal that it got and did not act upon
// goes to the next waiter.
type List struct {
	count atomic.Int32 // read without the lock, to skip it when there are no waiters

	mu          sync.Mutex // guards the fields below
	first, last *Waiter
}

// A Waiter is a receive that waits.
type Waiter struct {
	signal     chan struct{} // holds one signal
	signalled  bool
	prev, next *Waiter
}

// Signal returns the channel that has a value when the waiter is woken.
func (w *Waiter) Signal() <-chan struct{} { return w.signal }

// Len returns how many receives wait.
func (l *List) Len() int { return int(l.count.Load()) }

// Join registers a new waiter.
func (l *List) Join() *Waiter {
	w := &Waiter{signal: make(chan struct{}, 1)}
	l.mu.Lock()
	defer l.mu.Unlock()
	w.prev = l.last
	if l.last == nil {
		l.first = w
	} else {
		l.last.next = w
	}
	l.last = w
	l.count.Add(1)
	return w
}

// Leave removes a waiter. unanswered says that it could not act upon its latest signal. It
// reports whether there is a signal that no waiter has taken.
func (l *List) Leave(w *Waiter, unanswered bool) (left bool) {
	l.mu.Lock()
	if w.prev == nil {
		l.first = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		l.last = w.prev
	} else {
		w.next.prev = w.prev
	}
	l.count.Add(-1)
	passOn := w.signalled || unanswered
	l.mu.Unlock()
	return passOn && !l.Wake(1)
}

// Acknowledge records that a waiter that was signalled asks the server from now on.
func (l *List) Acknowledge(w *Waiter) {
	l.mu.Lock()
	w.signalled = false
	l.mu.Unlock()
}

// Wake signals the n oldest waiters that have no signal yet, and reports whether there was
// one.
func (l *List) Wake(n int) (woken bool) {
	if n <= 0 || l.count.Load() == 0 {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for w := l.first; w != nil && n > 0; w = w.next {
		if !w.signalled {
			w.signalled, woken = true, true
			w.signal <- struct{}{}
			n--
		}
	}
	return woken
}
