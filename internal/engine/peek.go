package engine

import (
	"cmp"
	"iter"
	"slices"
)

// InState yields the entries in one state: ready ones in the order of their
// places, delayed and in-flight ones by Due, dead ones by death. The shard must
// not be changed while it runs. Stopping early saves the rest of the work where
// the order is at hand, which it is for ready messages without strict groups or
// fair ones, and for dead ones.
func (s *Shard) InState(state State) iter.Seq[*Entry] {
	switch {
	case s.window != nil && state != InFlight:
		return func(yield func(*Entry) bool) {
			for e, found := range s.After(state, Point{}) {
				if found && !yield(e) {
					return
				}
			}
		}
	case state == Dead:
		return s.dead.byDeath.sorted
	case state == Ready && !s.config.StrictGroups && len(s.groups.byName) == 0:
		return s.ready.sorted
	}
	return func(yield func(*Entry) bool) {
		var found []*Entry
		for e := range s.entries {
			if e.State == state {
				found = append(found, e)
			}
		}
		slices.SortFunc(found, func(a, b *Entry) int {
			if state == Ready {
				return cmp.Compare(a.Place, b.Place)
			}
			return cmp.Or(cmp.Compare(a.Due, b.Due), cmp.Compare(a.Seq, b.Seq))
		})
		for _, e := range found {
			if !yield(e) {
				return
			}
		}
	}
}

// Point says how far a walk over the entries in one state has come: the Place
// of the last one, and its Due and Seq. The zero Point is before them all.
type Point struct {
	Place uint64
	Due   DuePoint
}

// PointOf returns the point at which e is.
func PointOf(e *Entry) Point { return Point{Place: e.Place, Due: e.duePoint()} }

// After is InState from after a point on, in a shard with a shelf, for all
// states but InFlight. It yields everything that it looks at, and whether it is
// in that state.
func (s *Shard) After(state State, last Point) iter.Seq2[*Entry, bool] {
	return func(yield func(*Entry, bool) bool) {
		var all iter.Seq[*Entry]
		switch {
		case state == Dead:
			all = s.shelf().Dead(last.Place + 1)
		case state == Ready:
			all = s.shelf().Waiting(last.Place + 1)
		case last.Due.Due > s.clock:
			all = s.shelf().Delayed(DuePoint{Due: last.Due.Due, Seq: last.Due.Seq + 1})
		default:
			all = s.shelf().Delayed(DuePoint{Due: s.clock + 1})
		}
		for e := range all {
			found := s.inFlight.get(e.Seq) == nil && (state == Dead || !s.news(e)) && (state != Ready || e.Due <= s.clock)
			if found {
				e.State = state
			}
			if !yield(e, found) {
				return
			}
		}
	}
}

// sorted yields the entries of an order by place that are not gone, lowest first.
func (o *order) sorted(yield func(*Entry) bool) {
	back := slices.Clone(o.back)
	slices.SortFunc(back, func(a, b *Entry) int { return cmp.Compare(a.Place, b.Place) })
	next := 0
	upTo := func(limit uint64) bool {
		for ; next < len(back) && back[next].Place < limit; next++ {
			if back[next].State != Gone && !yield(back[next]) {
				return false
			}
		}
		return true
	}
	for e := range o.fifo.all {
		if !upTo(e.Place) || (e.State != Gone && !yield(e)) {
			return
		}
	}
	upTo(^uint64(0))
}
