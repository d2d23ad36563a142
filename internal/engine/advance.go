package engine

import "github.com/mailboxmq/mailbox/driver"

// Advance lets happen what fell due up to now: delays and leases that ended,
// messages and dead letters that are past their retention. Each happens at its
// own time, in the order of those times.
func (s *Shard) Advance(now Moment) {
	for {
		s.happen(now)
		s.passTo(now.At)
		s.stamp = s.clock
		s.moment = now
		s.expireDeadByCount()
		if !s.expireByCount(now) {
			return
		}
		// What was behind a message that has gone may be past its time.
	}
}

// happen lets happen what fell due up to now.
func (s *Shard) happen(now Moment) {
	for {
		at, what := s.nextEvent()
		if what == nothing || at > now.At {
			return
		}
		// What was held up (retention waits for room among the dead) happens
		// when it can, not when it should have.
		s.passTo(at)
		s.stamp = max(s.stamp, at)
		s.moment = now.earlier(s.stamp)
		switch what {
		case timerEvent:
			s.fire(s.moment, s.timers[0])
		case shelfEvent:
			s.fillDelayed()
		case retentionEvent:
			s.expireOldest(s.moment)
		case deadRetentionEvent:
			s.expireDead(s.dead.byDeath.head()) // nextEvent has seen it
			s.expireByCount(s.moment)
		}
	}
}

// fire handles the entry whose Due has come. The age of a delayed message has run on, as
// that of one in flight does.
func (s *Shard) fire(at Moment, e *Entry) {
	if e.State == InFlight {
		s.expire(at, e)
		return
	}
	s.dropDelayed(e)
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
		read := *e // as from the shelf
		read.group = nil
		s.expireWaiting(at, &read)
	}
	s.expireByCount(at)
}

// dropDelayed takes a delayed message that is held out of the timers.
func (s *Shard) dropDelayed(e *Entry) {
	s.timers.remove(e)
	if s.window != nil {
		s.window.heldDelayed--
		s.window.delayedBytes -= int(e.Size)
	}
}

// NextDeadline returns when Advance next has something to do; ok is false if
// it never has.
func (s *Shard) NextDeadline() (at Instant, ok bool) {
	at, what := s.nextEvent()
	return at, what != nothing
}

type event uint8

const (
	nothing event = iota
	timerEvent
	shelfEvent
	retentionEvent
	deadRetentionEvent
)

// nextEvent returns the earliest event. Of several at one time, those of the
// shelf come first, because they are timers that are not held, and then timers,
// so that a message whose lease and retention end together is seen
// coming back before it is judged by its age.
func (s *Shard) nextEvent() (at Instant, what event) {
	at = never
	if len(s.timers) > 0 {
		at, what = s.timers[0].Due, timerEvent
	}
	if w := s.window; w != nil && w.dueHorizon.Due <= at && w.dueHorizon != allTimes {
		at, what = w.dueHorizon.Due, shelfEvent
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

// holdsAges reports whether there is an order by age to keep; with a shelf, the
// shelf has it.
func (s *Shard) holdsAges() bool { return s.window == nil && s.tracksAge() }
