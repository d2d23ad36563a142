package engine

import (
	"cmp"
	"iter"
	"slices"
)

// A Shelf is where an owner keeps the messages of a shard that holds only some
// of them. The shard reads from it, and the owner writes to it what effects and
// staged entries tell. A message is on the shelf before it is published, and
// off it before its removal is; a shelf may be ahead of the shard, never
// behind.
//
// Sequences yield entries that belong to the shard from then on, with
// everything set but State. Bodies may be left out.
type Shelf interface {
	// Waiting yields the messages that are not dead by Place, the first at or
	// after from.
	Waiting(from uint64) iter.Seq[*Entry]
	// Delayed yields the messages that were given a delay, by Due and Seq, the
	// first at or after from.
	Delayed(from DuePoint) iter.Seq[*Entry]
}

// DuePoint is a point in the order of delayed messages.
type DuePoint struct {
	Due Instant
	Seq uint64
}

func (p DuePoint) before(q DuePoint) bool {
	return p.Due < q.Due || (p.Due == q.Due && p.Seq < q.Seq)
}

func (e *Entry) duePoint() DuePoint { return DuePoint{Due: e.Due, Seq: e.Seq} }

// window is the part of a shelf that a shard holds: every ready message whose
// place is before horizon, and every delayed one whose due point is before
// dueHorizon. The others are only counted.
type window struct {
	Shelf
	limit       int // about how many ready, and how many delayed, messages to hold
	horizon     uint64
	dueHorizon  DuePoint
	heldDelayed int
	unpublished []uint64            // places given to staged messages, ascending
	doomed      map[uint64]struct{} // died of themselves; the shelf may not know yet
}

// Nothing is at or beyond these: all there is is held.
const allPlaces = ^uint64(0)

var allTimes = DuePoint{Due: never, Seq: ^uint64(0)}

// SetShelf makes the shard hold about limit ready and limit delayed messages
// and read the others from shelf. It is called before anything else.
func (s *Shard) SetShelf(shelf Shelf, limit int) {
	s.window = &window{Shelf: shelf, limit: limit, horizon: allPlaces, dueHorizon: allTimes, doomed: make(map[uint64]struct{})}
}

// publishedBefore is the first place that a staged message holds: from there on
// the shelf is not to be believed.
func (w *window) publishedBefore() uint64 {
	if len(w.unpublished) == 0 {
		return allPlaces
	}
	return w.unpublished[0]
}

// admits reports whether a message that becomes ready is to be held.
func (w *window) admits(e *Entry, held *order) bool {
	full := held.size >= w.limit && w.horizon == allPlaces
	if full && !held.fifo.empty() && e.Place > held.last {
		w.horizon = e.Place
	}
	return e.Place < w.horizon
}

// fillReady holds the next ready messages from the shelf.
func (s *Shard) fillReady() {
	w := s.window
	if w.horizon == allPlaces {
		return
	}
	before := w.publishedBefore()
	for e := range w.Waiting(w.horizon) {
		if e.Place >= before {
			break
		}
		w.horizon = e.Place + 1
		if e.Due > s.clock || !s.onlyShelved(e) {
			continue
		}
		e.State = Ready
		e.timerIndex = -1
		s.ready.push(e)
		if s.ready.size >= w.limit {
			return
		}
	}
	w.horizon = allPlaces
}

// onlyShelved reports whether the shard knows nothing newer of a message than
// the shelf does.
func (s *Shard) onlyShelved(e *Entry) bool {
	_, doomed := s.window.doomed[e.Seq]
	return !doomed && s.inFlight.get(e.Seq) == nil
}

// trimReady lets go of the farthest ready messages when far more are held than
// asked for, which happens when many come back to early places.
func (s *Shard) trimReady() {
	w := s.window
	if s.ready.size <= 2*w.limit {
		return
	}
	for _, e := range s.ready.truncate(w.limit) {
		w.horizon = min(w.horizon, e.Place)
		s.release(e)
	}
}

// fillDelayed holds the next delayed messages from the shelf.
func (s *Shard) fillDelayed() {
	w := s.window
	before := w.publishedBefore()
	for e := range w.Delayed(w.dueHorizon) {
		if w.heldDelayed >= w.limit {
			w.dueHorizon = e.duePoint()
			return
		}
		if e.Place >= before || !s.onlyShelved(e) {
			continue // will be held when it is published
		}
		s.holdDelayed(e)
	}
	w.dueHorizon = allTimes
}

// holdDelayed puts a delayed message among the timers.
func (s *Shard) holdDelayed(e *Entry) {
	e.State = Delayed
	s.timers.push(e)
	if s.window == nil {
		return
	}
	s.window.heldDelayed++
	s.trimDelayed()
}

// trimDelayed lets go of the delayed messages that are due last when far more
// are held than asked for.
func (s *Shard) trimDelayed() {
	w := s.window
	if w.heldDelayed <= 2*w.limit {
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
	for _, e := range delayed[:w.limit] {
		kept.push(e)
	}
	s.timers = kept
	w.dueHorizon = delayed[w.limit].duePoint()
	w.heldDelayed = w.limit
	for _, e := range delayed[w.limit:] {
		s.release(e)
	}
}
