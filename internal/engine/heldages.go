package engine

import (
	"cmp"
	"slices"
)

// With a shelf, messages that were sent without a delay are as old as their Seq says,
// and the shard remembers a point in that order: no ready one of them is before it, but
// for those in backs, which were not ready when the point passed them. Messages that were
// sent with a delay are in backs from when they may go.

// agePoint is a point in the order by age: a time at or before which a message was born,
// and its Seq.
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

// arrived notes a message that is new and ready. Nearly always it is the youngest.
func (w *window) arrived(e *Entry) {
	if w.oldest == noAges && !e.Is(Late) {
		w.oldest = e.agePoint()
		return
	}
	w.returned(e)
}

// returned notes a message that is ready again, or at last.
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

// findOldest returns the oldest message that is ready, from the shelf.
func (s *Shard) findOldest() *Entry {
	scanned := s.findOldestBySeq()
	back := s.findOldestBack()
	if back == nil || (scanned != nil && scanned.agePoint().compare(back.agePoint()) < 0) {
		return scanned
	}
	return back
}

// findOldestBySeq moves the point up to the first ready message that was sent without a
// delay, and returns that.
func (s *Shard) findOldestBySeq() *Entry {
	w := s.window
	for e := range s.shelf().Aged(w.oldest.seq) {
		e = s.whole(e)
		switch {
		case !s.isReady(e): // noted when it is
		case e.Is(Late):
			w.returned(e) // after a restart it may not be there
		default:
			w.oldest = e.agePoint()
			return e
		}
	}
	w.oldest = noAges
	return nil
}

// findOldestBack returns the oldest message in backs that is ready, and drops those
// before it.
func (s *Shard) findOldestBack() *Entry {
	w := s.window
	for len(w.backs) > 0 {
		for e := range s.shelf().Aged(w.backs[0].seq) {
			e = s.whole(e)
			if e.Seq == w.backs[0].seq && s.isReady(e) {
				return e
			}
			break
		}
		w.backs = w.backs[1:]
	}
	return nil
}

// isReady reports whether a message from the shelf is ready. One that is due now may
// not have been told yet.
func (s *Shard) isReady(e *Entry) bool {
	if s.news(e) || e.Due > s.clock {
		return false
	}
	return e.Due < s.clock || s.findDelayed(e) == nil
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

// find returns the entry at this place, or nil. It is quick near the head.
func (o *order) find(place uint64) *Entry {
	for _, e := range o.back {
		if e.Place == place && e.State != Gone {
			return e
		}
	}
	for e := range o.fifo.all {
		if e.Place >= place {
			if e.Place == place && e.State != Gone {
				return e
			}
			return nil
		}
	}
	return nil
}
