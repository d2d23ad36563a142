package engine

import (
	"cmp"
	"container/heap"
	"iter"
)

// InState yields the entries in one state: ready ones by place, delayed and in-flight
// ones by Due, dead ones by death. The shard must not change meanwhile. Stopping early
// saves work: without a backlog, messages of strict groups and delayed and in-flight ones
// are collected first, and put in order as they are yielded.
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
	case state == Ready && !s.config.StrictGroups:
		return s.movable(0)
	}
	return func(yield func(*Entry) bool) {
		order := entryOrder{before: func(a, b *Entry) bool { return a.Place < b.Place }}
		all := s.entries
		if state != Ready {
			all = s.timed
			order.before = func(a, b *Entry) bool {
				return cmp.Or(cmp.Compare(s.dueAt(a), s.dueAt(b)), cmp.Compare(a.Seq, b.Seq)) < 0
			}
		}
		for e := range all {
			if e.State == state {
				order.entries = append(order.entries, e)
			}
		}
		heap.Init(&order)
		for len(order.entries) > 0 {
			if !yield(heap.Pop(&order).(*Entry)) {
				return
			}
		}
	}
}

// Behind is InState for the ready or dead entries after a place. Without a backlog and strict groups it
// passes over the others quickly, and otherwise may yield them too.
func (s *Shard) Behind(state State, place uint64) iter.Seq[*Entry] {
	switch {
	case s.window != nil || s.config.StrictGroups && state == Ready:
		return s.InState(state)
	case state == Dead:
		return func(yield func(*Entry) bool) { s.dead.byDeath.sortedAfter(place, yield) }
	}
	return s.movable(place)
}

// An entryOrder is a heap of entries.
type entryOrder struct {
	entries []*Entry
	before  func(a, b *Entry) bool
}

func (o *entryOrder) Len() int           { return len(o.entries) }
func (o *entryOrder) Less(i, j int) bool { return o.before(o.entries[i], o.entries[j]) }
func (o *entryOrder) Swap(i, j int)      { o.entries[i], o.entries[j] = o.entries[j], o.entries[i] }
func (o *entryOrder) Push(any)           {} // all are there from the beginning

func (o *entryOrder) Pop() any {
	last := len(o.entries) - 1
	e := o.entries[last]
	o.entries = o.entries[:last]
	return e
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

// Covers reports whether e, which is in this state, is at the position or before it.
func (p *Point) Covers(state State, e *Entry) bool {
	switch {
	case state == Ready || state == Dead:
		return e.Place <= p.Place
	case e.Is(Wall):
		return !p.Alarm.before(e.duePoint())
	}
	return !p.Due.before(e.duePoint())
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
