package engine

import "github.com/mailboxmq/mailbox/driver"

// The order by age holds every ready message and, until they come to its head,
// messages that are not ready any more. One of those at the head is taken out and
// marked: it is judged when it comes back, and put in again if it may stay. So a
// message that is delayed or in flight neither expires nor counts.

// While the dead letters are full, retention waits: a message past its time
// stays deliverable rather than being lost. Where nothing is kept of what is past
// its time, there is nothing to wait for.

// trackArrival puts a new message into the order by age, if it is ready.
func (s *Shard) trackArrival(e *Entry) {
	switch {
	case s.window != nil && e.State == Ready:
		s.window.arrived(e)
	case s.holdsAges() && e.State == Ready:
		s.ages.push(e)
	default:
		e.set(unaged, s.holdsAges())
	}
}

// trackAge puts a message that is ready again, or at last, into the order by age.
func (s *Shard) trackAge(e *Entry) {
	switch {
	case e.State != Ready:
	case s.window != nil:
		s.window.returned(e)
	case s.tracksAge() && e.Is(unaged):
		e.set(unaged, false)
		s.ages.push(e)
	}
}

// oldestBorn returns a time at or before which the oldest ready message was
// born; ok is false if there is none.
func (s *Shard) oldestBorn() (born Instant, ok bool) {
	if s.window != nil {
		return s.window.oldestBorn()
	}
	if oldest := s.oldestReady(); oldest != nil {
		return oldest.Born, true
	}
	return 0, false
}

// oldestReady returns the oldest message that is ready, or nil.
func (s *Shard) oldestReady() *Entry {
	if s.window != nil {
		return s.findOldest()
	}
	for {
		e := s.ages.head()
		if e == nil || e.State == Ready {
			return e
		}
		e.set(unaged, true)
		s.ages.pop()
	}
}

// expireOldest handles the oldest message, if its time is over. It may not be:
// those before it may be in flight, or gone.
func (s *Shard) expireOldest(at Moment) {
	if oldest := s.oldestReady(); oldest != nil && s.tooOld(at.At, oldest) {
		s.expireWaiting(at, oldest)
	}
}

// expireWaiting makes a waiting message an expired dead letter, or drops it.
func (s *Shard) expireWaiting(at Moment, e *Entry) {
	letter := s.takeWaiting(e)
	place := letter.Place
	if s.config.DropExpired {
		s.leave(letter)
		s.effect(Withdrawn, letter)
		s.ended(driver.EndingDropped, letter)
	} else {
		s.condemn(at, letter, driver.ReasonExpired)
		s.bury(letter)
	}
	s.leftGroup(letter, place)
}

// takeWaiting takes a waiting message out of its order, and returns it. With a
// shelf, leftGroup has to follow when the shelf can know.
func (s *Shard) takeWaiting(e *Entry) *Entry {
	if s.window != nil {
		return s.takeShelved(e)
	}
	return s.extract(e)
}

// mayExpire reports whether a message that is past its time can go.
func (s *Shard) mayExpire() bool { return s.config.DropExpired || !s.deadFull(driver.ReasonExpired) }

// tooOld reports whether e is past its retention.
func (s *Shard) tooOld(at Instant, e *Entry) bool {
	age := s.config.RetainReady.Age
	return age > 0 && e.Born.Add(age) <= at
}

// expireByCount lets the oldest ready messages die while there are more than
// retention allows, and reports whether any did.
func (s *Shard) expireByCount(now Moment) (expired bool) {
	most := s.config.RetainReady.Count
	if most == 0 {
		return false
	}
	for s.stats.Ready > most && s.mayExpire() {
		e := s.oldestReady()
		if e == nil {
			return expired
		}
		s.expireWaiting(now, e)
		expired = true
	}
	return expired
}

// expireDeadByCount removes the oldest dead letters while there are more than
// retention allows.
func (s *Shard) expireDeadByCount() {
	most := s.config.RetainDead.Count
	for most > 0 && s.stats.Dead > most && s.unseen == 0 {
		oldest := s.oldestDead()
		if oldest == nil { // the shelf cannot be read
			return
		}
		s.expireDead(oldest)
	}
}

// expireDead removes a dead letter that is past its retention.
func (s *Shard) expireDead(letter *Entry) {
	s.ended(driver.EndingRemoved, letter)
	s.discard(letter)
}

// rebuildAges fills the order by age when retention is turned on.
func (s *Shard) rebuildAges() {
	for _, e := range s.inFlight.slots {
		if e != nil {
			e.set(unaged, true) // staged ones are not among the entries below
		}
	}
	s.ages.clear()
	for e := range s.entries {
		e.set(unaged, e.State != Ready)
		if e.State == Ready {
			s.ages.push(e)
		}
	}
	s.ages.truncate(func(entries []*Entry) int { return len(entries) }) // sorts them
}
