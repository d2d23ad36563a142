package engine

// admitsDead reports whether a message that has just died is to be held.
func (w *window) admitsDead(e *Entry, held *deadLetters) bool {
	byDeath := &held.byDeath
	full := w.limits.enough(byDeath.size, held.bytes)
	if full && w.deadHorizon == allPlaces && byDeath.isLast(e) {
		w.deadHorizon = e.Place
	}
	return e.Place < w.deadHorizon
}

// fillDead holds the next dead letters from the shelf. Those that are staged
// are held when they are published.
func (s *Shard) fillDead() {
	w := s.window
	if w.deadHorizon == allPlaces {
		return
	}
	for e := range s.shelf().Dead(w.deadHorizon) {
		w.deadHorizon = e.Place + 1
		if s.inFlight.get(e.Seq) != nil {
			continue
		}
		e.State = Dead
		if e.Is(Damaged) && e.Born == 0 { // when it died is not known
			e.Born = s.clock
		}
		s.holdDead(e)
		if w.limits.enough(s.dead.byDeath.size, s.dead.bytes) {
			return
		}
	}
	if !w.stopped() {
		w.deadHorizon = allPlaces
	}
}

// findShelvedDead returns a dead letter that is not held, or nil.
func (s *Shard) findShelvedDead(id string) *Entry {
	if s.window.deadHorizon == allPlaces {
		return nil
	}
	e := s.shelf().FindDead(id)
	if e == nil || s.inFlight.get(e.Seq) != nil {
		return nil
	}
	e.State = Dead
	return e
}
