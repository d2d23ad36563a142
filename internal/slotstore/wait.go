package slotstore

import (
	"context"
	"slices"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// A signal wakes one waiting caller. It holds one wake-up.
type signal chan struct{}

// Get returns the slot. It does not block without a journal. Codes: ErrNotFound; with a journal
// also ErrIntegrity.
func (m *Store) Get(ctx context.Context, id string) (driver.Slot, error) {
	return m.read(ctx, opGet, id, 0)
}

// Wait returns the slot when it is not pending any more, or after wait. Resolve, Cancel
// and the end of the slot's time wake it. Codes: as Get.
func (m *Store) Wait(ctx context.Context, id string, wait time.Duration) (driver.Slot, error) {
	return m.read(ctx, opWait, id, wait)
}

// pendingMargin is how long a slot must still live to count as pending for Pending.
const pendingMargin = time.Second

// Pending reports whether a slot waits for an answer, and does for a second at least unless it is
// written. It does not block.
func (m *Store) Pending(id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.slots[id]
	return s != nil && !m.closed && s.state == driver.SlotPending && s.expires-m.now() > pendingMargin
}

// read returns a slot, after it has waited for it.
func (m *Store) read(ctx context.Context, op, id string, wait time.Duration) (driver.Slot, error) {
	if err := m.check(ctx, op, id); err != nil {
		return driver.Slot{}, err
	}
	m.mu.Lock()
	now := m.advanceLocked()
	s := m.slots[id]
	if s == nil || m.closed {
		closed := m.closed
		m.mu.Unlock()
		if closed {
			return driver.Slot{}, m.closedError(op, id)
		}
		return driver.Slot{}, driver.SlotError(op, id, driver.ErrNotFound)
	}
	var err error
	if s.unsettled() && wait > 0 {
		err = m.awaitLocked(ctx, op, s, now, wait)
		m.advanceLocked()
	}
	return m.readLocked(op, s, err)
}

// readLocked returns a slot, or err. It unlocks the store.
func (m *Store) readLocked(op string, s *slot, err error) (driver.Slot, error) {
	id := s.id
	if err == nil && m.closed {
		err = m.closedError(op, id)
	}
	// Every waiting caller gets the answer, also if one of them has removed the slot
	// since.
	missing := s.removed && s.state == driver.SlotPending
	found, apart, created := s.record(), s.apart, s.created
	var settled durable
	if err == nil {
		settled = m.settledLocked(s)
	}
	m.releaseLocked(s)
	m.mu.Unlock()
	if err = m.finish(op, id, settled, err); err != nil {
		return driver.Slot{}, err
	}
	if missing {
		return driver.Slot{}, driver.SlotError(op, id, driver.ErrNotFound)
	}
	if apart && found.State == driver.SlotResolved {
		m.reads <- struct{}{}
		found.Answer, err = m.journal.Answer(id, created)
		<-m.reads
		if err != nil {
			return driver.Slot{}, annotate(err, op, id)
		}
	}
	return found, nil
}

// unsettled reports whether a wait has something to wait for: a write, or the commit of one. The call
// that writes begins that commit. A wait that began it would commit an answer without the ack that follows.
func (s *slot) unsettled() bool { return s.state == driver.SlotPending || s.undurable > 0 }

// awaitLocked blocks, without the lock, until the slot has changed or wait has
// passed.
func (m *Store) awaitLocked(ctx context.Context, op string, s *slot, now, wait time.Duration) error {
	wake := m.joinLocked(s)
	m.armLocked(now)
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		m.leaveLocked(s, wake)
	}()
	// Most callers wait for as long as the slot lives; the store's timer ends that.
	var timeout <-chan time.Time
	if wait < s.expires-now {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		timeout = timer.C
	}
	select {
	case <-wake:
	case <-timeout:
	case <-ctx.Done():
		return ctx.Err()
	}
	return m.usable(op, s.id)
}

// joinLocked adds a waiting caller to a slot, and returns its signal.
func (m *Store) joinLocked(s *slot) signal {
	m.waiting++
	s.waiting++
	var wake signal
	if last := len(m.signals) - 1; last >= 0 {
		wake, m.signals = m.signals[last], m.signals[:last]
	} else {
		wake = make(signal, 1)
	}
	if s.waiter == nil {
		s.waiter = wake
	} else {
		s.others = append(s.others, wake)
	}
	return wake
}

// leaveLocked removes a waiting caller, woken or not.
func (m *Store) leaveLocked(s *slot, wake signal) {
	m.waiting--
	s.waiting--
	if s.waiter == wake {
		s.waiter = nil
	} else {
		s.others = slices.DeleteFunc(s.others, func(other signal) bool { return other == wake })
	}
	select {
	case <-wake: // woken after it stopped waiting
	default:
	}
	if len(m.signals) < maxIdle {
		m.signals = append(m.signals, wake)
	}
}

// armLocked sets the timer for the first slot to expire, if a caller waits. It never
// moves the timer to a later time: firing early is cheap.
func (m *Store) armLocked(now time.Duration) {
	if m.waiting == 0 || len(m.living) == 0 {
		return
	}
	first := m.living[0].expires
	switch {
	case m.timer == nil:
		m.timer = time.AfterFunc(first-now, m.fire)
	case m.armed == 0 || m.armed > first:
		m.timer.Reset(first - now)
	default:
		return
	}
	m.armed = first
}

func (m *Store) fire() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.armed = 0
	if m.closed {
		return
	}
	m.armLocked(m.advanceLocked())
}

// wakeLocked wakes all callers that wait for the slot.
func (s *slot) wakeLocked() {
	if s.waiter != nil {
		s.waiter <- struct{}{}
		s.waiter = nil
	}
	for _, wake := range s.others {
		wake <- struct{}{}
	}
	s.others = nil
	if len(s.watches) > 0 {
		woken := s.watches
		s.watches = nil
		go func() {
			for _, w := range woken {
				w.end(nil)
			}
		}()
	}
}

// A watch is a wait that blocks no goroutine.
type watch struct {
	store *Store
	slot  *slot // another one, if the watch is over: the store reuses slots
	id    string
	done  func(driver.Slot, error)
	timer *time.Timer // nil if the watch ends with the slot
	over  bool        // guarded by the lock of the store
}

// StartWait is Wait that does not block. It calls done once, with what Wait would return, from
// another goroutine or before it returns. cancel ends the wait, if it has not ended, with
// context.Canceled; it is nil if the wait is over.
func (m *Store) StartWait(id string, wait time.Duration, done func(driver.Slot, error)) (cancel func()) {
	m.mu.Lock()
	now := m.advanceLocked()
	s := m.slots[id]
	if s == nil || m.closed || !s.unsettled() || wait <= 0 {
		m.mu.Unlock()
		read := func() { done(m.read(context.Background(), opWait, id, 0)) } // nothing cancels it: it does not wait for the slot
		if m.journal == nil {
			read()
		} else {
			go read() // it may have to wait for the disk
		}
		return nil
	}
	w := &watch{store: m, slot: s, id: id, done: done}
	m.waiting++
	s.waiting++
	s.watches = append(s.watches, w)
	m.armLocked(now)
	if wait < s.expires-now {
		w.timer = time.AfterFunc(wait, func() { w.end(nil) })
	}
	m.mu.Unlock()
	return func() { w.end(context.Canceled) }
}

// end completes a watch, with err or with the slot as it is, unless it is complete.
func (w *watch) end(err error) {
	m, s := w.store, w.slot
	if err == nil {
		err = m.usable(opWait, w.id)
	}
	m.mu.Lock()
	if w.over {
		m.mu.Unlock()
		return
	}
	w.over = true
	if w.timer != nil {
		w.timer.Stop()
	}
	m.waiting--
	s.waiting--
	s.watches = slices.DeleteFunc(s.watches, func(other *watch) bool { return other == w })
	m.advanceLocked()
	w.done(m.readLocked(opWait, s, err))
}
