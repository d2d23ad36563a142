package engine

// admits reports whether a message that becomes ready is to be held.
func (w *window) admits(e *Entry, held *order) bool {
	if w.horizon == allPlaces && w.full() && held.isLast(e) {
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
	if s.window.horizon == allPlaces {
		return
	}
	for _, g := range s.lookOn() {
		s.settleGroup(g)
	}
}

// lookOn moves the horizon. It returns the groups that it has come to, whose
// own messages are looked at afterwards: not all of them are before the horizon, and
// one that is damaged must not be met twice.
func (s *Shard) lookOn() (met []*group) {
	w := s.window
	looked := 0
	for e := range s.shelf().Waiting(w.horizon) {
		w.horizon = e.Place + 1
		isNews := s.news(e)
		switch {
		case isNews:
		case e.Due > s.clock:
			if s.blocksWhileDelayed(e) {
				s.groups.get(e.groupName()).block(e.Place)
			}
		default:
			g, isNew := s.meetGroup(e)
			switch {
			case isNew:
				met = append(met, g)
			case g == nil:
				e.State = Ready
				e.timerIndex = -1
				s.holdReady(e)
			}
		}
		looked++
		w.looks--
		if looked >= w.limits.Look || (w.full() && s.ready.head() != nil) {
			return met
		}
	}
	if !w.stopped() {
		w.horizon = allPlaces
	}
	return met
}

// trimReady lets go of the farthest ready messages when far more are held than
// asked for, which happens when many come back to early places.
func (s *Shard) trimReady() {
	w := s.window
	if !w.limits.tooMany(w.heldReady, w.readyBytes) {
		return
	}
	if s.config.FairGroups || s.config.StrictGroups {
		s.shelveGroups()
	}
	for _, e := range s.ready.truncate(w.limits.prefix) {
		w.horizon = min(w.horizon, e.Place)
		w.letGo(e)
	}
}
