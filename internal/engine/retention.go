package engine

import (
	"cmp"
	"slices"

	"github.com/mailboxmq/mailbox/driver"
)

// Retention removes ready messages and dead letters by age and by count. Delayed and
// in-flight messages neither expire nor count; their age is checked when they become
// ready or their delivery ends.
//
// The order by age holds every ready message. A message that is no longer ready stays
// in it until it comes to the head; then it is taken out and marked unaged, and put
// back when it is ready again.
//
// While the dead letters are full, retention waits: an expired message stays
// deliverable rather than being lost. With DropExpired there is nothing to wait for.

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

// trackAge puts a message that has become ready into the order by age.
func (s *Shard) trackAge(e *Entry) {
	switch {
	case e.State != Ready:
	case s.window != nil && s.tracksAge():
		if s.stats.Ready == 1 { // the others are gone
			s.window.backs = nil
		}
		s.window.returned(e)
	case s.tracksAge() && e.Is(unaged):
		e.set(unaged, false)
		s.ages.push(e)
	}
}

// oldestBorn returns a lower bound for Born of the oldest ready message; ok is false
// if there is none.
func (s *Shard) oldestBorn() (born Instant, ok bool) {
	if s.window != nil {
		return s.window.oldestBorn()
	}
	if oldest := s.oldestReady(); oldest != nil {
		return oldest.Born, true
	}
	return 0, false
}

// oldestReady returns the oldest ready message, or nil.
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

// expireOldest expires the oldest ready message if it is too old. It may not be,
// because oldestBorn is only a lower bound.
func (s *Shard) expireOldest(at Moment) {
	bound, _ := s.oldestBorn()
	oldest := s.oldestReady()
	if born, ok := s.oldestBorn(); ok && born > bound {
		return // another event may come before
	}
	if oldest != nil && s.tooOld(at.At, oldest) {
		s.expireWaiting(at, oldest)
	}
}

// expireWaiting dead-letters a waiting message as expired, or drops it.
func (s *Shard) expireWaiting(at Moment, e *Entry) {
	taken := s.takeWaiting(e)
	place := taken.Place
	if s.config.DropExpired {
		s.leave(taken)
		s.effect(Withdrawn, taken)
		s.ended(driver.EndingDropped, taken)
	} else {
		s.stageDeath(at, taken, driver.ReasonExpired)
		s.addDeadLetter(taken)
	}
	s.leftGroup(taken, place)
}

// takeWaiting takes a waiting message out of its order, and returns it. With a
// backlog, leftGroup must follow once the effect is recorded.
func (s *Shard) takeWaiting(e *Entry) *Entry {
	if s.window != nil {
		return s.takeFromWindow(e)
	}
	return s.extract(e)
}

// mayExpire reports whether there is room for expired messages.
func (s *Shard) mayExpire() bool { return s.config.DropExpired || !s.deadFull(driver.ReasonExpired) }

// tooOld reports whether e is past its retention.
func (s *Shard) tooOld(at Instant, e *Entry) bool {
	age := s.config.RetainReady.Age
	return age > 0 && e.Born.Add(age) <= at
}

// expireByCount expires the oldest ready messages while there are more than
// retention allows, and reports whether it expired any.
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
		if oldest == nil { // the backlog cannot be read
			return
		}
		s.expireDead(oldest)
	}
}

// expireDead removes a dead letter that is past its retention.
func (s *Shard) expireDead(dead *Entry) {
	s.ended(driver.EndingRemoved, dead)
	s.discard(dead)
}

// rebuildAges fills the order by age when retention is turned on.
func (s *Shard) rebuildAges() {
	for _, e := range s.inFlight.slots {
		if e != nil {
			e.set(unaged, true) // entries, below, does not yield staged ones
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

// With a backlog, the order by age is read from it. Messages that were sent without a
// delay are ordered by Seq, and window.oldest is a point in that order: no ready one
// is before it, except those in window.backs, which were not ready when the point
// passed them. Messages that were sent with a delay are in backs once they are ready.

// agePoint is a point in the order by age: a lower bound for Born of a message, and
// its Seq.
type agePoint struct {
	born Instant
	seq  uint64
}

func (p agePoint) compare(q agePoint) int {
	return cmp.Or(cmp.Compare(p.born, q.born), cmp.Compare(p.seq, q.seq))
}

func (e *Entry) agePoint() agePoint { return agePoint{born: e.Born, seq: e.Seq} }

var (
	allAges = agePoint{seq: 0, born: -never}
	noAges  = agePoint{seq: ^uint64(0), born: never}
)

// arrived notes a new ready message. Nearly always it is the youngest.
func (w *window) arrived(e *Entry) {
	if w.oldest == noAges && !e.Is(Late) {
		w.oldest = e.agePoint()
		return
	}
	w.returned(e)
}

// returned notes a message that has become ready after a delay or a lease.
func (w *window) returned(e *Entry) {
	if e.Seq >= w.oldest.seq && !e.Is(Late) {
		return
	}
	i, found := slices.BinarySearchFunc(w.backs, e.agePoint(), agePoint.compare)
	if !found {
		w.backs = slices.Insert(w.backs, i, e.agePoint())
	}
}

func (w *window) oldestBorn() (born Instant, ok bool) {
	if len(w.backs) > 0 {
		return min(w.backs[0].born, w.oldest.born), true
	}
	return w.oldest.born, w.oldest != noAges
}

// findOldest returns the oldest ready message from the backlog, or nil.
func (s *Shard) findOldest() *Entry {
	scanned := s.findOldestBySeq()
	back := s.findOldestBack()
	if back == nil || (scanned != nil && scanned.agePoint().compare(back.agePoint()) < 0) {
		return scanned
	}
	return back
}

// findOldestBySeq moves window.oldest up to the first ready message that was sent
// without a delay, and returns that message.
func (s *Shard) findOldestBySeq() *Entry {
	w := s.window
	for e := range s.backlog().Aged(w.oldest.seq) {
		e = s.intact(e)
		switch {
		case !s.isReady(e): // noted when it becomes ready
		case e.Is(Late):
			w.returned(e) // backs is empty after a restart
		default:
			w.oldest = e.agePoint()
			return e
		}
	}
	w.oldest = noAges
	return nil
}

// findOldestBack returns the oldest ready message in backs, and drops the points
// before it.
func (s *Shard) findOldestBack() *Entry {
	w := s.window
	for len(w.backs) > 0 {
		for e := range s.backlog().Aged(w.backs[0].seq) {
			e = s.intact(e)
			if e.agePoint() == w.backs[0] && s.isReady(e) {
				return e
			}
			break // its due time was changed, or it is not ready
		}
		w.backs = w.backs[1:]
	}
	return nil
}

// isReady reports whether a message from the backlog is ready. A message that is due
// right now may still be among the timers.
func (s *Shard) isReady(e *Entry) bool {
	if s.notWaiting(e) || e.Due > s.clockOf(e) {
		return false
	}
	return e.Due < s.clockOf(e) || s.findDelayed(e) == nil
}

// takeFromWindow takes a waiting message that was read from the backlog out of the
// window, if it is there, and returns it.
func (s *Shard) takeFromWindow(e *Entry) *Entry {
	e.timerIndex = -1
	if e.Due >= s.clockOf(e) { // it may still be among the timers
		if held := s.findDelayed(e); held != nil {
			s.stats.Delayed--
			s.dropDelayed(held)
			return e
		}
	}
	if e.Due > s.clockOf(e) {
		s.stats.Delayed--
		return e
	}
	s.stats.Ready--
	if (s.inGroup(e) && s.takeFromGroup(e)) || s.config.StrictGroups {
		return e
	}
	if ready := s.readyFor(e.Priority); e.Place < *s.horizonOf(e.Priority) {
		if held := ready.find(e.Place); held != nil {
			s.window.dropReady(held)
			s.vanish(held)
			ready.lost()
		}
	}
	return e
}
