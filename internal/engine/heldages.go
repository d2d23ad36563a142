package engine

import (
	"cmp"
	"slices"
)

// With a shelf, the order by age is the shelf's, and the shard remembers a
// point in it: no waiting message is older, but for those that were in flight
// when the point passed them and have come back since.

// agePoint is a point in the order by age: where a message is, and a time at or
// before which it was born.
type agePoint struct {
	seq  uint64
	born Instant
}

var (
	allAges = agePoint{seq: 0, born: -never}
	noAges  = agePoint{seq: ^uint64(0), born: never}
)

// arrived notes a message that is new. Nearly always it is the youngest.
func (w *window) arrived(e *Entry) {
	if w.oldest == noAges && (len(w.backs) == 0 || w.backs[len(w.backs)-1].seq < e.Seq) {
		w.oldest = agePoint{seq: e.Seq, born: e.Born}
		return
	}
	w.returned(e)
}

// returned notes a message that waits again.
func (w *window) returned(e *Entry) {
	if e.Seq >= w.oldest.seq {
		return
	}
	i, found := slices.BinarySearchFunc(w.backs, e.Seq, func(p agePoint, seq uint64) int { return cmp.Compare(p.seq, seq) })
	if !found {
		w.backs = slices.Insert(w.backs, i, agePoint{seq: e.Seq, born: e.Born})
	}
}

func (w *window) oldestBorn() (born Instant, ok bool) {
	if len(w.backs) > 0 {
		return w.backs[0].born, true
	}
	return w.oldest.born, w.oldest != noAges
}

// findOldest returns the oldest message that waits, from the shelf, and moves
// the point up to it.
func (s *Shard) findOldest() *Entry {
	w := s.window
	for len(w.backs) > 0 {
		for e := range s.shelf().Aged(w.backs[0].seq) {
			e = s.whole(e)
			if e.Seq == w.backs[0].seq && !s.news(e) {
				return e
			}
			break
		}
		w.backs = w.backs[1:]
	}
	for e := range s.shelf().Aged(w.oldest.seq) {
		e = s.whole(e)
		if s.news(e) {
			continue // judged when it comes back
		}
		w.oldest = agePoint{seq: e.Seq, born: e.Born}
		return e
	}
	w.oldest = noAges
	return nil
}

// takeShelved takes a waiting message that was read from the shelf out of
// whatever may hold it, and returns it.
func (s *Shard) takeShelved(e *Entry) *Entry {
	e.timerIndex = -1
	if e.Due >= s.clock { // what is due now may not have been told yet
		if held := s.findDelayed(e); held != nil {
			s.stats.Delayed--
			s.dropDelayed(held)
			return e
		}
	}
	if e.Due > s.clock {
		s.stats.Delayed--
		return e
	}
	s.stats.Ready--
	if (s.inGroup(e) && s.takeFromGroup(e)) || s.config.StrictGroups {
		return e
	}
	if e.Place < s.window.horizon {
		if held := s.ready.find(e.Place); held != nil {
			s.window.letGo(held)
			s.vanish(held)
			s.ready.lost()
		}
	}
	return e
}

// find returns the entry with this number, or nil. It is quick near the head.
func (o *order) find(number uint64) *Entry {
	for _, e := range o.back {
		if o.number(e) == number && e.State != Gone {
			return e
		}
	}
	for e := range o.fifo.all {
		if o.number(e) >= number {
			if o.number(e) == number && e.State != Gone {
				return e
			}
			return nil
		}
	}
	return nil
}
