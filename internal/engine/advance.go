package engine

import "github.com/mailboxmq/mailbox/driver"

// Advance handles all events up to now: ends of delays, leases and lives, and messages
// and dead letters that pass their retention. Each is handled with its own time, in the
// order of those times.
func (s *Shard) Advance(now Moment) {
	s.moment = now
	for {
		s.runDue(now)
		s.moveClock(now.At)
		s.wall = max(s.wall, Instant(now.Wall))
		s.stamp = s.clock
		s.moment = now
		s.expireDeadByCount()
		if !s.expireByCount(now) {
			return
		}
		// The next message in the order by age may be too old as well.
	}
}

// runDue handles the events that fell due up to now.
func (s *Shard) runDue(now Moment) {
	for {
		at, what := s.nextEvent()
		if what == nothing || at > now.At {
			return
		}
		// An event that had to wait (retention waits for room among the dead
		// letters) is handled when it can be, not when it was due.
		s.moveClock(at)
		s.stamp = max(s.stamp, at)
		s.moment = now.earlier(s.stamp)
		switch what {
		case timerEvent:
			s.fire(s.moment, s.timers.first())
		case alarmEvent:
			s.fire(s.moment, s.alarms.due.first())
		case backlogEvent:
			s.refillDelayed(&s.window.delays, false)
		case alarmBacklogEvent:
			s.refillDelayed(&s.window.alarms, true)
		case lifeEvent:
			s.endLife(s.moment)
		case retentionEvent:
			s.expireOldest(s.moment)
		case deadRetentionEvent:
			s.expireDead(s.dead.byDeath.head()) // nextEvent has loaded it
			s.expireByCount(s.moment)
		case wakeEvent:
			s.wakeGroups()
		}
	}
}

// fire handles the entry at the top of the timers: a lease or a delay that ends. A
// delayed message may be too old at once, as one in flight may be.
func (s *Shard) fire(at Moment, e *Entry) {
	if e.State == InFlight {
		s.expire(at, e)
		return
	}
	s.dropDelayed(e)
	if e.Is(Wall) {
		s.ring(at, e)
	}
	s.stats.Delayed--
	s.stats.Ready++
	e.State = Ready
	if g := s.groups.byName[e.groupName()]; g != nil && s.blocksWhileDelayed(e) {
		g.blockers.remove(e.Place)
	}
	s.offer(e)
	switch {
	case !s.tooOld(at.At, e) || !s.mayExpire():
		s.trackAge(e)
	case s.window == nil:
		s.expireWaiting(at, e)
	default:
		read := *e // as if from the backlog
		read.group = nil
		s.expireWaiting(at, &read)
	}
	s.expireByCount(at)
}

// dropDelayed takes a delayed message out of the timers.
func (s *Shard) dropDelayed(e *Entry) {
	s.timersOf(e).remove(e)
	if s.window != nil {
		d := s.window.delaysOf(e)
		d.held--
		d.bytes -= int(e.Size)
	}
}

// NextDeadline returns the time of the next event, or an earlier one at which the owner
// has to look whether the wall clock has stepped; ok is false if there is none.
func (s *Shard) NextDeadline() (at Instant, ok bool) {
	at, what := s.nextEvent()
	if s.followsWall() {
		at = min(at, s.clock.Add(wallLook))
	}
	return at, what != nothing
}

type event uint8

const (
	nothing event = iota
	timerEvent
	alarmEvent
	backlogEvent
	alarmBacklogEvent
	lifeEvent
	retentionEvent
	deadRetentionEvent
	wakeEvent
)

// nextEvent returns the earliest event. Of several at one time, reading the backlog
// comes first, because it loads timers, and timers come next, so that a message whose
// lease and retention end together returns before its age is checked.
func (s *Shard) nextEvent() (at Instant, what event) {
	at = never
	if e := s.timers.first(); e != nil {
		at, what = e.Due, timerEvent
	}
	if w := s.window; w != nil && w.delays.horizon.Due <= at && w.delays.horizon != allTimes {
		at, what = w.delays.horizon.Due, backlogEvent
	}
	if s.limits != nil {
		if g, wake := s.limits.nextWake(); g != nil && wake < at {
			at, what = wake, wakeEvent
		}
	}
	if s.alarms != nil || s.window != nil {
		at, what = s.nextAlarm(at, what)
		at, what = s.nextEnd(at, what)
	}
	if s.config.RetainReady.Age > 0 && s.mayExpire() {
		if born, ok := s.oldestBorn(); ok {
			if due := born.Add(s.config.RetainReady.Age); due < at {
				at, what = due, retentionEvent
			}
		}
	}
	if s.config.RetainDead.Age > 0 && s.unseen == 0 {
		if oldest := s.oldestDead(); oldest != nil {
			if due := oldest.Born.Add(s.config.RetainDead.Age); due < at {
				at, what = due, deadRetentionEvent
			}
		}
	}
	return at, what
}

// tracksAge reports whether the age of waiting messages matters.
func (s *Shard) tracksAge() bool {
	return s.config.RetainReady != driver.Retention{}
}

// holdsAges reports whether Shard.ages is used; with a backlog, the order by age is
// read from there.
func (s *Shard) holdsAges() bool { return s.window == nil && s.tracksAge() }
