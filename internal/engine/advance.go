package engine

import "github.com/mailboxmq/mailbox/driver"

// Advance lets happen what fell due up to now: delays and leases that ended,
// messages and dead letters that are past their retention. Each happens at its
// own time, in the order of those times.
func (s *Shard) Advance(now Moment) {
	for {
		at, what := s.nextEvent()
		if what == nothing || at > now.At {
			break
		}
		// What was held up (retention waits for room among the dead) happens
		// when it can, not when it should have.
		s.clock = max(s.clock, at)
		then := now.earlier(s.clock)
		switch what {
		case timerEvent:
			s.fire(then, s.timers[0])
		case shelfEvent:
			s.fillDelayed()
		case retentionEvent:
			s.expireOldest(then)
		case deadRetentionEvent:
			s.discard(s.dead.oldest())
			s.expireByCount(then)
		}
	}
	s.clock = max(s.clock, now.At)
	s.expireByCount(now)
}

// fire handles the entry whose Due has come.
func (s *Shard) fire(at Moment, e *Entry) {
	if e.State == InFlight {
		s.expire(at, e)
		return
	}
	s.timers.remove(e)
	if s.window != nil {
		s.window.heldDelayed--
	}
	s.stats.Delayed--
	s.stats.Ready++
	e.State = Ready
	s.offer(e)
	if e.group != nil {
		s.groups.settle(e.group)
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

// nextEvent returns the earliest event. Of several at one time, timers come
// first, so that a message whose lease and retention end together is seen
// coming back before it is judged by its age.
func (s *Shard) nextEvent() (at Instant, what event) {
	at = never
	if len(s.timers) > 0 {
		at, what = s.timers[0].Due, timerEvent
	}
	if w := s.window; w != nil && w.dueHorizon.Due < at {
		at, what = w.dueHorizon.Due, shelfEvent
	}
	if s.config.RetainReady.Age > 0 && !s.deadFull() {
		if oldest := s.ages.head(); oldest != nil {
			if due := oldest.Born.Add(s.config.RetainReady.Age); due < at {
				at, what = due, retentionEvent
			}
		}
	}
	if s.config.RetainDead.Age > 0 {
		if oldest := s.dead.oldest(); oldest != nil {
			if due := oldest.Born.Add(s.config.RetainDead.Age); due < at {
				at, what = due, deadRetentionEvent
			}
		}
	}
	return at, what
}

// tracksAge reports whether waiting messages are kept by age.
func (s *Shard) tracksAge() bool {
	return s.config.RetainReady != driver.Retention{}
}
