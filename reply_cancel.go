package mailbox

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

const (
	// watchAfter is how long after OnCancel the first look at a slot is. Most requests are
	// answered by then, and need none.
	watchAfter = time.Second
	// watchStep bounds one wait for a slot, and watchPause is the pause after an error. The
	// worker of a cancelled request learns it within five seconds (RPL-6).
	watchStep  = time.Minute
	watchPause = 2 * time.Second
)

// OnCancel calls cancelled, once and on a goroutine of its own, when the client cancels the
// request before ctx ends or stop is called. The error has the code ErrReplyCancelled. It is for
// the work on a request: handlers of package reply and package worker get a context that ends
// this way.
//
// A message whose reply address is not a slot, or whose mailbox has no reply store, is never
// cancelled. The store is first asked a second after the call, and wakes the watch from then on.
// The caller must call stop, which does not wait for a call of cancelled that has begun.
func (m *Message[T]) OnCancel(ctx context.Context, cancelled func(error)) (stop func()) {
	if m.origin != nil {
		return m.origin.OnCancel(ctx, cancelled)
	}
	id, isSlot := driver.SlotID(m.ReplyTo)
	if !isSlot || m.mailbox == nil || m.mailbox.replies == nil {
		return func() {}
	}
	w := &watchedSlot{all: &m.mailbox.watched, ctx: ctx, store: m.mailbox.replies, id: id, known: &m.slot, cancelled: cancelled, since: time.Now()}
	w.all.add(w)
	return w.stop
}

// watchedSlots are the requests of a mailbox that were begun less than watchAfter ago, oldest
// first. One timer serves them all: one for each request would cost more than all else here.
type watchedSlots struct {
	mu          sync.Mutex // guards the fields below, and those of the elements
	first, last *watchedSlot
	timer       *time.Timer
	isArmed     bool
}

// A watchedSlot is the reply slot of a request that is being worked on.
type watchedSlot struct {
	all       *watchedSlots
	ctx       context.Context //nolint:containedctx // lives as long as the work on one request
	store     driver.ReplyStore
	id        string
	known     *atomic.Uint32 // the known state, see Message.slot
	cancelled func(error)
	since     time.Time

	prev, next *watchedSlot
	ended      bool
	end        context.CancelFunc // set when it is watched
}

func (a *watchedSlots) add(w *watchedSlot) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w.prev = a.last
	if a.last == nil {
		a.first = w
	} else {
		a.last.next = w
	}
	a.last = w
	a.armLocked(watchAfter)
}

func (a *watchedSlots) removeLocked(w *watchedSlot) {
	if w.prev == nil {
		a.first = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		a.last = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.prev, w.next = nil, nil
}

func (a *watchedSlots) armLocked(after time.Duration) {
	switch {
	case a.isArmed:
		return
	case a.timer == nil:
		a.timer = time.AfterFunc(after, a.fire)
	default:
		a.timer.Reset(after)
	}
	a.isArmed = true
}

// fire starts to watch the slots whose time has come.
func (a *watchedSlots) fire() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.isArmed = false
	for a.first != nil {
		w := a.first
		if age := time.Since(w.since); age < watchAfter {
			a.armLocked(watchAfter - age)
			return
		}
		a.removeLocked(w)
		var ctx context.Context
		ctx, w.end = context.WithCancel(w.ctx)
		go w.watch(ctx)
	}
}

// stop ends the watch.
func (w *watchedSlot) stop() {
	w.all.mu.Lock()
	defer w.all.mu.Unlock()
	switch {
	case w.ended:
	case w.end != nil:
		w.end()
	default:
		w.all.removeLocked(w)
	}
	w.ended = true
}

// watch waits until the slot is not pending any more, and calls cancelled if it was cancelled.
func (w *watchedSlot) watch(ctx context.Context) {
	for ctx.Err() == nil {
		asked := time.Now()
		slot, err := w.store.Wait(ctx, w.id, watchStep)
		switch {
		case ctx.Err() != nil:
		case err == nil && slot.State == driver.SlotCancelled:
			w.known.CompareAndSwap(slotWaits, slotCancelled)
			w.cancelled(slot.State.WriteError("handle", w.id))
			return
		case err == nil && slot.State != driver.SlotPending, errors.Is(err, ErrNotFound), errors.Is(err, ErrClosed):
			return
		case err != nil || time.Since(asked) < watchStep: // unavailable, or woken too early
			sleep(ctx, watchPause)
		}
	}
}

// sleep returns after d, or when ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
