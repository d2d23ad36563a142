package engine

import (
	"cmp"
	"iter"
	"slices"
)

// InState yields the entries in one state: ready ones by place, delayed and in-flight
// ones by Due, dead ones by death. The shard must not change meanwhile. Stopping early
// saves work for dead letters, and for ready messages in queues without groups; the
// others are sorted first.
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
		return s.movable()
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
			return cmp.Or(cmp.Compare(s.dueAt(a), s.dueAt(b)), cmp.Compare(a.Seq, b.Seq))
		})
		for _, e := range found {
			if !yield(e) {
				return
			}
		}
	}
}

// Point is a position among the entries in one state: the Place of an entry, and the
// due points of the last delayed messages without and with the mark Wall. The zero Point
// is before all entries.
type Point struct {
	Place uint64
	Due   DuePoint
	Alarm DuePoint
}

// Pass moves the position to e, which is after it.
func (p *Point) Pass(e *Entry) {
	p.Place = e.Place
	if e.Is(Wall) {
		p.Alarm = e.duePoint()
	} else {
		p.Due = e.duePoint()
	}
}

// After is InState after a point, for a shard with a backlog and all states but
// InFlight. It yields every entry that it reads, and whether it is in that state.
func (s *Shard) After(state State, last Point) iter.Seq2[*Entry, bool] {
	return func(yield func(*Entry, bool) bool) {
		var all iter.Seq[*Entry]
		switch {
		case state == Dead:
			all = s.backlog().Dead(last.Place + 1)
		case state == Ready:
			all = s.backlog().Waiting(last.Place + 1)
		default:
			all = s.delayedAfter(last)
		}
		for e := range all {
			found := s.inFlight.get(e.Seq) == nil && (state == Dead || !s.notWaiting(e)) && (state != Ready || e.Due <= s.clockOf(e))
			if found {
				e.State = state
			}
			if !yield(e, found) {
				return
			}
		}
	}
}
