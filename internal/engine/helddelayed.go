package engine

import (
	"cmp"
	"slices"
)

// DuePoint is a point in the order of delayed messages.
type DuePoint struct {
	Due Instant
	Seq uint64
}

func (p DuePoint) before(q DuePoint) bool {
	return p.Due < q.Due || (p.Due == q.Due && p.Seq < q.Seq)
}

func (e *Entry) duePoint() DuePoint { return DuePoint{Due: e.Due, Seq: e.Seq} }

// fillDelayed holds the next delayed messages from the shelf, and all that are
// due together with the first.
func (s *Shard) fillDelayed() {
	w := s.window
	first := w.dueHorizon.Due
	for e := range s.shelf().Delayed(w.dueHorizon) {
		if e.Due > first && w.limits.enough(w.heldDelayed, w.delayedBytes) {
			w.dueHorizon = e.duePoint()
			return
		}
		if !s.news(e) {
			s.holdDelayed(e)
		}
	}
	w.dueHorizon = allTimes
}

// holdDelayed puts a delayed message among the timers.
func (s *Shard) holdDelayed(e *Entry) {
	e.State = Delayed
	e.group = nil
	s.timers.push(e)
	s.window.heldDelayed++
	s.window.delayedBytes += int(e.Size)
}

// findDelayed returns the held entry of a delayed message, or nil.
func (s *Shard) findDelayed(e *Entry) *Entry {
	if !e.duePoint().before(s.window.dueHorizon) {
		return nil
	}
	for _, held := range s.timers {
		if held.Seq == e.Seq && held.State == Delayed {
			return held
		}
	}
	return nil
}

// trimDelayed lets go of the delayed messages that are due last when far more
// are held than asked for.
func (s *Shard) trimDelayed() {
	w := s.window
	if !w.limits.tooMany(w.heldDelayed, w.delayedBytes) {
		return
	}
	var delayed []*Entry
	var kept timers
	for _, e := range s.timers {
		if e.State == Delayed {
			delayed = append(delayed, e)
		} else {
			kept.push(e)
		}
	}
	slices.SortFunc(delayed, func(a, b *Entry) int {
		return cmp.Or(cmp.Compare(a.Due, b.Due), cmp.Compare(a.Seq, b.Seq))
	})
	keep := w.limits.prefix(delayed)
	w.heldDelayed, w.delayedBytes = keep, 0
	for _, e := range delayed[:keep] {
		kept.push(e)
		w.delayedBytes += int(e.Size)
	}
	s.timers = kept
	if keep < len(delayed) {
		w.dueHorizon = delayed[keep].duePoint()
	}
}
