package engine

// admits reports whether a message that becomes ready is to be held.
func (w *window) admits(e *Entry, held *order) bool {
	if w.horizon == allPlaces && w.full() && !held.fifo.empty() && e.Place > held.last {
		w.horizon = e.Place
	}
	return e.Place < w.horizon
}

func (s *Shard) holdReady(e *Entry) {
	s.window.let(e)
	s.ready.push(e)
}

// fillReady holds the next ready messages from the shelf.
func (s *Shard) fillReady() {
	w := s.window
	if w.horizon == allPlaces {
		return
	}
	looked := 0
	for e := range s.shelf().Waiting(w.horizon) {
		w.horizon = e.Place + 1
		if !s.news(e) && e.Due <= s.clock {
			e.State = Ready
			e.timerIndex = -1
			s.holdReady(e)
		}
		if looked++; looked >= w.limits.Look || w.full() {
			return
		}
	}
	if !w.stopped() {
		w.horizon = allPlaces
	}
}

// trimReady lets go of the farthest ready messages when far more are held than
// asked for, which happens when many come back to early places.
func (s *Shard) trimReady() {
	w := s.window
	if !w.limits.tooMany(w.heldReady, w.readyBytes) {
		return
	}
	for _, e := range s.ready.truncate(w.limits.prefix) {
		w.horizon = min(w.horizon, e.Place)
		w.letGo(e)
	}
}
