package engine

// window bounds how many ready messages a shard holds in memory when its owner
// keeps all of them in a store. Every ready message whose place is below the
// horizon is held; the others are only counted, and the owner loads them in
// order when the shard asks.
type window struct {
	limit   int    // 0: hold everything
	horizon uint64 // first place that is not held
	stored  int    // ready messages at or beyond the horizon
}

// complete says that everything that is ready is held.
func (w *window) complete() { w.horizon, w.stored = ^uint64(0), 0 }

// admits reports whether a message that becomes ready is to be held, and
// counts it if it is not.
func (w *window) admits(e *Entry, held *order) bool {
	if w.limit == 0 {
		return true
	}
	full := held.size >= w.limit && w.stored == 0
	if full && !held.fifo.empty() && e.Place > held.last {
		w.horizon = e.Place
	}
	if e.Place < w.horizon {
		return true
	}
	w.stored++
	return false
}

// SetWindow tells the shard to hold about limit ready messages in memory and
// to ask for more with Missing. It is for owners that keep every message in a
// store, is set once, before anything arrives, and does not go with strict
// groups.
func (s *Shard) SetWindow(limit int) { s.window.limit = limit }

// Missing says which ready messages the shard wants from the store: up to n,
// in order of place, the first at or after from. n is 0 when it has enough.
func (s *Shard) Missing() (from uint64, n int) {
	w := &s.window
	if w.stored == 0 || s.ready.size-s.ready.gone > w.limit/2 {
		return 0, 0
	}
	return w.horizon, w.limit - (s.ready.size - s.ready.gone)
}

// Stored describes a ready message in the store.
type Stored struct {
	Entry
	// Age starts at Born on the owner's axis.
	Born Instant
}

// Load hands the shard the messages it asked for, in order of place, without
// gaps; end says that the store has no more.
func (s *Shard) Load(stored []Stored, end bool) {
	for i := range stored {
		e := s.newEntry()
		*e = stored[i].Entry
		e.born = stored[i].Born
		e.State = Ready
		e.timerIndex = -1
		s.ready.push(e)
		s.window.horizon = e.Place + 1
		s.window.stored--
	}
	if end {
		s.window.complete()
	}
}

// trim lets go of the farthest ready messages when far more are held than the
// window asks for, which happens when many come back to early places.
func (s *Shard) trim() {
	w := &s.window
	if w.limit == 0 || s.ready.size <= 2*w.limit {
		return
	}
	dropped := s.ready.truncate(w.limit)
	if len(dropped) == 0 {
		return
	}
	w.horizon = dropped[0].Place
	w.stored += len(dropped)
	for _, e := range dropped {
		s.release(e)
	}
}
