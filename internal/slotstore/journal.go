package slotstore

import (
	"context"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// A Journal makes the slots of a store durable. The store records between Lock and Unlock,
// while it holds its own lock; what is recorded between the two becomes durable together, and
// after all that was recorded before.
type Journal interface {
	sync.Locker

	// Failed returns why nothing can become durable any more, or nil.
	Failed() error
	// Admit returns why nothing may be written that needs room, such as ErrFull, or nil.
	Admit() error

	// SlotWritten records a slot, with its answer if it is resolved.
	SlotWritten(r *Record)
	// SlotRemoved records the removal of a slot, and of its answer if it has one.
	SlotRemoved(id string, answered bool)
	// AwaitThen makes the journal call then when all that was recorded so far is durable, or
	// cannot become durable any more. The journal is locked, and not when it calls then.
	AwaitThen(then func(error))
	// Start begins to commit what was recorded. If alone is set and no goroutine commits, it
	// commits itself and waits. The journal is not locked.
	Start(alone bool)
	// Ride schedules what was recorded to be written soon. The journal is not locked.
	Ride()

	// Answer returns the answer of a slot that was created at this time, and is durable.
	// Codes: ErrNotFound, ErrIntegrity, ErrUnavailable.
	Answer(id string, created time.Duration) (driver.Answer, error)
}

// A Record is a slot in a journal. Times are those of Options.Now.
type Record struct {
	ID     string
	State  driver.SlotState // pending, resolved or cancelled
	Answer driver.Answer    // only in SlotWritten
	// Wall is when the slot was created, in Unix nanoseconds.
	Wall                       int64
	Created, Expires, Resolved time.Duration
}

// Restore adds slots of a journal to an empty store that is not in use yet.
func (m *Store) Restore(records []Record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range records {
		resolved := r.State == driver.SlotResolved
		s := &slot{
			id: r.ID, state: r.State, wall: r.Wall, created: r.Created, expires: r.Expires, resolved: r.Resolved,
			stored: resolved, apart: resolved,
		}
		m.slots[r.ID] = s
		m.living.push(s)
	}
}

// keptAnswerBytes is the size up to which a durable answer stays in memory. Larger ones are
// read from the journal, unless a caller is waiting for them.
const keptAnswerBytes = 1 << 10

// durable tells when a write is durable, or why it is not. It is nil if there is nothing to
// wait for.
type durable chan error

// admit refuses writes that need room while the journal has none.
func (m *Store) admit(op, id string) error {
	if m.journal == nil {
		return nil
	}
	return annotate(m.journal.Admit(), op, id)
}

// finish waits until a write is durable, and returns err, or why it is not durable.
func (m *Store) finish(op, id string, done durable, err error) error {
	if done == nil {
		return err
	}
	m.journal.Start(true)
	if failure := <-done; failure != nil {
		return annotate(failure, op, id)
	}
	return err
}

// writtenLocked records a slot that was created or written.
func (m *Store) writtenLocked(s *slot) durable {
	if m.journal == nil {
		s.wakeLocked()
		return nil
	}
	return m.recordLocked(s, func(j Journal) {
		j.SlotWritten(&Record{
			ID: s.id, State: s.state, Answer: s.answer, Wall: s.wall,
			Created: s.created, Expires: s.expires, Resolved: s.resolved,
		})
	})
}

// deletedLocked removes a slot and records that.
func (m *Store) deletedLocked(s *slot) durable {
	m.removeLocked(s)
	if m.journal == nil {
		s.wakeLocked()
		m.freeLocked(s)
		return nil
	}
	id, stored := s.id, s.stored
	return m.recordLocked(s, func(j Journal) { j.SlotRemoved(id, stored) })
}

// forgetLocked records that a slot was removed which may be there again after a crash.
func (m *Store) forgetLocked(s *slot) {
	if m.journal != nil {
		m.journal.Lock()
		m.journal.SlotRemoved(s.id, s.stored)
		m.journal.Unlock()
		m.journal.Ride()
	}
	s.wakeLocked()
	m.freeLocked(s)
}

// recordLocked records a write of a slot.
func (m *Store) recordLocked(s *slot, record func(Journal)) durable {
	done := make(durable, 1)
	s.undurable++
	m.journal.Lock()
	record(m.journal)
	m.journal.AwaitThen(func(err error) {
		m.publish(s, err)
		done <- err
	})
	m.journal.Unlock()
	return done
}

// publish wakes the callers that wait for a slot after a write, which is durable or failed with err.
func (m *Store) publish(s *slot, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s.undurable--
	if s.undurable == 0 {
		for _, settled := range s.settling {
			settled <- err // a journal that has failed fails all later writes too
		}
		s.settling = nil
	}
	if s.state != driver.SlotPending || s.removed {
		s.wakeLocked()
	}
	m.releaseLocked(s)
}

// releaseLocked releases the memory that a call has used a slot for.
func (m *Store) releaseLocked(s *slot) {
	m.setApartLocked(s)
	if s.removed {
		m.freeLocked(s)
	}
}

// setApartLocked releases the memory of a large answer that the journal has, when no caller
// waits for it.
func (m *Store) setApartLocked(s *slot) {
	if s.stored && s.undurable == 0 && s.waiting == 0 && s.state == driver.SlotResolved &&
		answerBytes(&s.answer) > keptAnswerBytes {
		s.answer, s.apart = driver.Answer{}, true
	}
}

// settledLocked returns when all writes of a slot so far are durable, nil if they are. It waits
// for the commits of these writes, and needs none of its own.
func (m *Store) settledLocked(s *slot) durable {
	if s.undurable == 0 {
		return nil
	}
	done := make(durable, 1)
	s.settling = append(s.settling, done)
	return done
}

// CreateWithSend creates a slot and returns before it is durable: a send that the same journal
// confirms later confirms it. See driver.LinkedReplyStore.
func (m *Store) CreateWithSend(ctx context.Context, id string, ttl time.Duration) (send context.Context, created func() bool, err error) {
	done, err := m.create(ctx, id, ttl)
	if err != nil {
		err = m.finish(opCreate, id, done, err)
	}
	return ctx, func() bool { return err == nil }, err
}

// ResolveWithAck resolves a slot and returns before the answer is durable: an ack that the same
// journal confirms later confirms it. See driver.LinkedReplyStore.
func (m *Store) ResolveWithAck(ctx context.Context, id string, answer driver.Answer) (ack context.Context, stored func() error, err error) {
	done, err := m.resolve(ctx, id, answer)
	if err != nil {
		return nil, nil, m.finish(opResolve, id, done, err)
	}
	return ctx, func() error { return m.finish(opResolve, id, done, nil) }, nil
}

// Close ends all calls that wait with ErrClosed, and so all later ones. The slots stay in the
// journal.
func (m *Store) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	if m.timer != nil {
		m.timer.Stop()
	}
	m.wakeAllLocked()
}

// WakeAll ends all calls that wait with the failure of the journal.
func (m *Store) WakeAll() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wakeAllLocked()
}

func (m *Store) wakeAllLocked() {
	if m.waiting > 0 {
		for _, s := range m.slots {
			s.wakeLocked()
		}
	}
}
