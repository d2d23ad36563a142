package engine

import (
	"slices"

	"github.com/mailboxmq/mailbox/driver"
)

// The order by age holds every waiting message and, until they come to its
// head, messages in flight. A message in flight at the head is taken out and
// marked: it is judged when it comes back, and put in again if it may stay.

// While the dead letters are full, retention waits: a message past its time
// stays deliverable rather than being lost.

// trackAge puts a message that came back into the order by age again.
func (s *Shard) trackAge(e *Entry) {
	if s.tracksAge() && e.unaged {
		e.unaged = false
		s.ages.push(e)
	}
}

// oldestWaiting returns the oldest message that waits, or nil.
func (s *Shard) oldestWaiting() *Entry {
	for {
		e := s.ages.head()
		if e == nil || e.Waits() {
			return e
		}
		e.unaged = true
		s.ages.pop()
	}
}

// expireOldest handles the oldest message, whose time is over.
func (s *Shard) expireOldest(at Moment) {
	oldest := s.ages.head()
	if !oldest.Waits() {
		s.oldestWaiting() // moves it out of the way
		return
	}
	s.expireWaiting(at, oldest)
}

// expireWaiting makes a waiting message an expired dead letter.
func (s *Shard) expireWaiting(at Moment, e *Entry) {
	letter := s.extract(e)
	s.condemn(at, letter, driver.ReasonExpired)
	s.bury(at, letter)
}

// tooOld reports whether e is past its retention.
func (s *Shard) tooOld(at Instant, e *Entry) bool {
	age := s.config.RetainReady.Age
	return age > 0 && e.Born.Add(age) <= at
}

// expireByCount lets the oldest waiting messages die while there are more than
// retention allows.
func (s *Shard) expireByCount(now Moment) {
	most := s.config.RetainReady.Count
	if most == 0 {
		return
	}
	for s.stats.Ready+s.stats.Delayed > most && !s.deadFull() {
		e := s.oldestWaiting()
		if e == nil {
			return
		}
		s.expireWaiting(now, e)
	}
}

// expireDeadByCount removes the oldest dead letters while there are more than
// retention allows.
func (s *Shard) expireDeadByCount() {
	most := s.config.RetainDead.Count
	for most > 0 && s.stats.Dead > most {
		s.discard(s.dead.oldest())
	}
}

// rebuildAges fills the order by age when retention is turned on.
func (s *Shard) rebuildAges() {
	for _, e := range s.inFlight.slots {
		if e != nil {
			e.unaged = true // staged ones are not among the entries below
		}
	}
	var all []*Entry
	for e := range s.entries {
		e.unaged = false
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b *Entry) int {
		if a.Seq < b.Seq {
			return -1
		}
		return 1
	})
	s.ages.clear()
	for _, e := range all {
		s.ages.push(e)
	}
}
