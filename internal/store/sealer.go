package store

import (
	"sync"
	"time"
)

// sealer completes the work of commits: it syncs commits that did not wait for the disk,
// seals the end of the log, which no watermark covers yet, and notes outside of the log how
// far it is durable. It has one timer, which runs only while there is work.
type sealer struct {
	policy SyncPolicy
	after  time.Duration // idle time until the log is sealed
	// sync makes all commits durable; seal ends the log with a watermark that covers all
	// durable bytes; note records outside of the log how far it is durable.
	sync func()
	seal func()
	note func()

	mu         sync.Mutex
	timer      *time.Timer
	armed      bool
	stopped    bool
	running    int // commits in flight
	lastCommit time.Time
	unsealed   bool // there was a commit since the last seal
	// commits numbers the commits that did not wait for the disk; the one
	// numbered waiting, and all before it, may not be durable yet.
	commits       uint64
	waiting       uint64
	waitingSince  time.Time
	somethingWait bool
	// unnoted: since unnotedSince there are durable commits that note has not recorded.
	unnoted      bool
	unnotedSince time.Time
}

// rideAlong bounds the time that a commit which does not wait for the disk remains unsynced.
const rideAlong = time.Second

// noteWithin bounds the time until note records a durable commit.
const noteWithin = time.Second

// begin is called before a commit, and must be followed by end; its result tells end which
// earlier commits a sync of this one covers.
func (s *sealer) begin() (earlier uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running++
	return s.commits
}

// end is called after a commit that was, or was not, synced.
func (s *sealer) end(earlier uint64, synced bool, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running--
	s.lastCommit = now
	s.unsealed = true
	if synced {
		s.covered(earlier)
		s.noteLater(now)
	} else {
		s.commits++
		s.waiting = s.commits
		if !s.somethingWait {
			s.somethingWait, s.waitingSince = true, now
		}
	}
	s.arm(now)
}

// covered records that the commits up to number n are durable. s.mu must be held.
func (s *sealer) covered(n uint64) {
	if s.waiting <= n {
		s.somethingWait = false
	}
}

// noteLater records that there are durable commits to note. s.mu must be held.
func (s *sealer) noteLater(now time.Time) {
	if !s.unnoted {
		s.unnoted, s.unnotedSince = true, now
	}
}

// abandon is called instead of end when the commit did not take place.
func (s *sealer) abandon() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running--
}

// due returns the time of the next work. A store is not idle while a commit is in flight; its
// end calls due again. s.mu must be held.
func (s *sealer) due() (at time.Time, ok bool) {
	if s.policy.mode == syncNone {
		return time.Time{}, false
	}
	if s.unsealed && s.running == 0 {
		at, ok = s.lastCommit.Add(s.after), true
	}
	if s.somethingWait {
		limit := rideAlong
		if s.policy.mode == syncInterval {
			limit = s.policy.every
		}
		if syncAt := s.waitingSince.Add(limit); !ok || syncAt.Before(at) {
			at, ok = syncAt, true
		}
	}
	if s.unnoted {
		if noteAt := s.unnotedSince.Add(noteWithin); !ok || noteAt.Before(at) {
			at, ok = noteAt, true
		}
	}
	return at, ok
}

// arm starts the timer if there is work. s.mu must be held.
func (s *sealer) arm(now time.Time) {
	at, ok := s.due()
	if !ok || s.armed || s.stopped {
		return
	}
	s.armed = true
	if s.timer == nil {
		s.timer = time.AfterFunc(at.Sub(now), s.fire)
		return
	}
	s.timer.Reset(at.Sub(now))
}

// fire runs when the timer does. While commits keep coming, the time to seal keeps moving, and
// fire only restarts the timer.
func (s *sealer) fire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if at, ok := s.due(); ok && !now.Before(at) && !s.stopped {
		idle := s.unsealed && s.running == 0 && !now.Before(s.lastCommit.Add(s.after))
		unsynced := s.somethingWait
		upTo := s.commits
		if idle {
			s.unsealed = false
		}
		if unsynced {
			s.noteLater(now)
		}
		noted := s.unnoted && !now.Before(s.unnotedSince.Add(noteWithin))
		if noted {
			s.unnoted = false
		}
		s.mu.Unlock()
		if unsynced {
			s.sync()
		}
		if idle {
			s.seal()
		}
		if noted {
			s.note()
		}
		s.mu.Lock()
		s.covered(upTo)
	}
	s.armed = false
	s.arm(time.Now())
}

// pending reports whether there was a commit since the last seal.
func (s *sealer) pending() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unsealed
}

// stop ends the timer. A seal that is being written continues.
func (s *sealer) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	if s.timer != nil {
		s.timer.Stop()
	}
}
