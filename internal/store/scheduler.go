package store

import (
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// quietScheduler decides when a compaction may run: as many at once as the
// engine allows itself, like the engine's own scheduler. That one looks every
// 100 ms whether there is something to do; this one looks when something
// happened, and by the clock only while a compaction waits for its turn. An
// idle store must not wake the processor.
type quietScheduler struct {
	db pebble.DBForCompaction

	mu       sync.Mutex
	changed  sync.Cond // granting went from true to false
	running  int
	waiting  bool // a compaction was refused and wants to be granted
	granting bool // one goroutine is handing out grants
	stopped  bool
	timer    *time.Timer
}

const grantEvery = 100 * time.Millisecond

func newQuietScheduler() *quietScheduler {
	s := &quietScheduler{}
	s.changed.L = &s.mu
	return s
}

// Register, Unregister, TrySchedule and UpdateGetAllowedWithoutPermission are
// those of pebble.CompactionScheduler.
func (s *quietScheduler) Register(_ int, db pebble.DBForCompaction) { s.db = db }

func (s *quietScheduler) Unregister() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	if s.timer != nil {
		s.timer.Stop()
	}
	for s.granting {
		s.changed.Wait()
	}
}

// TrySchedule is called with the engine's lock held.
func (s *quietScheduler) TrySchedule() (bool, pebble.CompactionGrantHandle) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return false, nil
	}
	if s.running < s.db.GetAllowedWithoutPermission() {
		s.running++
		return true, s
	}
	s.waiting = true
	s.wake(grantEvery)
	return false, nil
}

// UpdateGetAllowedWithoutPermission is called with the engine's lock held, so
// the grants are handed out by another goroutine.
func (s *quietScheduler) UpdateGetAllowedWithoutPermission() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting {
		s.wake(0)
	}
}

// wake starts the timer. s.mu must be held.
func (s *quietScheduler) wake(after time.Duration) {
	switch {
	case s.stopped:
	case s.timer == nil:
		s.timer = time.AfterFunc(after, s.grant)
	default:
		s.timer.Reset(after)
	}
}

// Started, MeasureCPU, CumulativeStats and Done are those of
// pebble.CompactionGrantHandle.
func (s *quietScheduler) Started()                                            {}
func (s *quietScheduler) MeasureCPU(pebble.CompactionGoroutineKind)           {}
func (s *quietScheduler) CumulativeStats(_ pebble.CompactionGrantHandleStats) {}

// Done is called without the engine's lock.
func (s *quietScheduler) Done() {
	s.mu.Lock()
	s.running--
	s.mu.Unlock()
	s.grant()
}

// grant lets waiting compactions run while there is room for them. It calls
// into the engine, which takes its own lock first, and so must not hold s.mu
// then.
func (s *quietScheduler) grant() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.granting {
		s.changed.Wait()
	}
	if s.stopped || !s.waiting {
		return
	}
	s.granting = true
	for s.waiting && !s.stopped && s.running < s.db.GetAllowedWithoutPermission() {
		// Cleared before asking: while the lock is open the engine may come
		// back with another one, which must not be forgotten.
		s.waiting = false
		s.running++
		s.mu.Unlock()
		wanted, _ := s.db.GetWaitingCompaction()
		accepted := wanted && s.db.Schedule(s)
		s.mu.Lock()
		if accepted {
			s.waiting = true // there may be more
		} else {
			s.running--
		}
	}
	s.granting = false
	s.changed.Broadcast()
	if s.waiting {
		s.wake(grantEvery)
	}
}
