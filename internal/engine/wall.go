package engine

import (
	"iter"
	"time"
)

// A message can be sent with a delay or with a due time. A delay is elapsed time: its end
// is an Instant. A due time follows the wall clock, which may step: the message is marked
// Wall, its Due is a wall time, and it waits among Shard.alarms.due instead of Shard.timers.
// So a step of the wall clock changes nothing in either order, only which alarm is next.
//
// Shard.wall is the latest wall time up to which alarms have fired. It never goes back,
// and every message marked Wall is ready if its Due is not after it, in memory and in the
// backlog. After the wall clock was set back, a message whose due time is before
// Shard.wall is delayed like one with a delay, until the wall clock has caught up.
//
// Born is when the message was expected to be due when it got its due time. It does not
// change when the wall clock steps, because the backlog has it.

// wallLook is how long the owner relies on the wall clock before it looks again, while an
// event depends on it: the clock may have stepped meanwhile.
const wallLook = time.Second

// followWall marks a message that was staged to arrive with a due time in the future.
func (s *Shard) followWall(now Moment, e *Entry) {
	if x := e.Extra; x != nil && x.DeliverAt != 0 && x.DeliverAt > max(now.Wall, int64(s.wall)) {
		e.Due = Instant(x.DeliverAt)
		e.set(Wall, true)
	}
}

// clockOf returns the clock that e.Due is compared with.
func (s *Shard) clockOf(e *Entry) Instant {
	if e.Is(Wall) {
		return s.wall
	}
	return s.clock
}

// alarms are the messages of a shard that follow the wall clock.
type alarms struct {
	due  timers // delayed messages marked Wall
	ends ends   // waiting messages with a time to live, without a backlog; see ttl.go
}

// setAlarms returns the alarms, and creates them if there are none.
func (s *Shard) setAlarms() *alarms {
	if s.alarms == nil {
		s.alarms = new(alarms)
	}
	return s.alarms
}

// timersOf returns the timers that a delayed message is among.
func (s *Shard) timersOf(e *Entry) *timers {
	if e.Is(Wall) {
		return &s.setAlarms().due
	}
	return &s.timers
}

// firstAlarm returns the first delayed message marked Wall that is held, or nil.
func (s *Shard) firstAlarm() *Entry {
	if s.alarms == nil {
		return nil
	}
	return s.alarms.due.first()
}

// ahead returns how far the wall clock is ahead of the other one.
func (s *Shard) ahead() Instant { return Instant(s.moment.Wall) - s.moment.At }

// delaysOf returns the part of the window that a delayed message belongs to.
func (w *window) delaysOf(e *Entry) *delays {
	if e.Is(Wall) {
		return &w.alarms
	}
	return &w.delays
}

// dueAt returns when e is due if the wall clock does not step.
func (s *Shard) dueAt(e *Entry) Instant {
	if e.Is(Wall) {
		return e.Due - s.ahead()
	}
	return e.Due
}

// ring makes a delayed message that was marked Wall like one whose delay has ended.
func (s *Shard) ring(at Moment, e *Entry) {
	s.wall = max(s.wall, e.Due)
	e.set(Wall, false)
	e.Due = at.At
}

// nextAlarm returns the next due time if it is before the event at the time at, or not after
// it and in the backlog. Of a timer and an alarm at one time, the lower Seq comes first.
func (s *Shard) nextAlarm(at Instant, what event) (Instant, event) {
	if alarm := s.firstAlarm(); alarm != nil {
		due := s.dueAt(alarm)
		if due < at || (due == at && what == timerEvent && alarm.Seq < s.timers.first().Seq) {
			at, what = due, alarmEvent
		}
	}
	if w := s.window; w != nil && w.alarms.horizon != allTimes {
		if due := w.alarms.horizon.Due - s.ahead(); due <= at {
			at, what = due, alarmBacklogEvent
		}
	}
	return at, what
}

// followsWall reports whether an event depends on the wall clock.
func (s *Shard) followsWall() bool {
	_, ends := s.firstEnd()
	return ends || s.hasAlarms()
}

// hasAlarms reports whether messages wait for the wall clock.
func (s *Shard) hasAlarms() bool {
	return s.firstAlarm() != nil || (s.window != nil && s.window.alarms.horizon != allTimes)
}

// delayedAfter yields the delayed messages of the backlog after a point, by due time.
func (s *Shard) delayedAfter(last Point) iter.Seq[*Entry] {
	delays := s.backlog().Delayed(false, last.Due.after(s.clock))
	if !s.hasAlarms() {
		return delays
	}
	alarms := s.backlog().Delayed(true, last.Alarm.after(s.wall))
	return func(yield func(*Entry) bool) {
		next, stop := iter.Pull(alarms)
		defer stop()
		alarm, more := next()
		for e := range delays {
			for ; more && (DuePoint{s.dueAt(alarm), alarm.Seq}).before(e.duePoint()); alarm, more = next() {
				if !yield(alarm) {
					return
				}
			}
			if !yield(e) {
				return
			}
		}
		for ; more; alarm, more = next() {
			if !yield(alarm) {
				return
			}
		}
	}
}

// after returns the first point after p and after a time.
func (p DuePoint) after(clock Instant) DuePoint {
	if p.Due > clock {
		return DuePoint{Due: p.Due, Seq: p.Seq + 1}
	}
	return DuePoint{Due: clock + 1}
}
