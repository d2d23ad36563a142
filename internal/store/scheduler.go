package store

import (
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// quietScheduler decides when a compaction may run. It allows as many at once as the engine's
// own scheduler, which polls every 100 ms. This one reacts to events, and uses a timer only
// while a compaction waits for its turn: an idle store must not wake the processor.
type quietScheduler struct {
	db pebble.DBForCompaction

	mu       sync.Mutex
	changed  sync.Cond // granting went from true to false
	running  int
	waiting  bool // a compaction was refused and waits for a grant
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

// Register, Unregister, TrySchedule and UpdateGetAllowedWithoutPermission implement
// pebble.CompactionScheduler.
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

// UpdateGetAllowedWithoutPermission is called with the engine's lock held, so another goroutine
// hands out the grants.
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

// Started, MeasureCPU, CumulativeStats and Done implement pebble.CompactionGrantHandle.
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

// grant starts waiting compactions while there is room. It calls the engine, which takes its
// own lock first, so s.mu must not be held then.
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
		// Cleared before the call: while s.mu is unlocked the engine may refuse another
		// compaction, which must not be forgotten.
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
