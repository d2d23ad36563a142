package engine

// With a shelf, messages of fair groups are held group by group. Of a group that is
// known, a ready message is
//
//   - held, in its group's waiting, or
//   - at or after its group's from, where the group has more; sure says that there
//     is one right there.
//
// A group gets known when a message of it becomes ready, or when the horizon comes
// to one: all ready messages of other groups are at or after the horizon. So there
// is no need to look beyond it while something is before it that has nothing out.
// Once the horizon has passed all there is, which it does after a restart, every
// group with something ready is known: it costs some hundred bytes, and its
// messages are read when it is their turn.
//
// Beyond Limits.Groups, no more groups get known. Ready messages of others are
// strays: they wait like those without a group, until there is room and their group
// gets known.

// mayLook lets a call look beyond the horizon for a quieter group.
func (s *Shard) mayLook() {
	if s.window != nil {
		s.window.looks = s.window.limits.Look
	}
}

// mayFindQuieter reports whether beyond the horizon may be what goes before both the
// message e and the group g, of which one may be nil, and whether to look there now.
func (s *Shard) mayFindQuieter(e *Entry, g *group) bool {
	w := s.window
	switch {
	case w.horizon == allPlaces || w.looks <= 0 || w.stopped():
		return false
	case g != nil:
		return !g.turn.before(turn{place: w.horizon})
	}
	return e == nil // it is held, and so before the horizon
}

// meetGroup makes the group of a ready message that the horizon has come to known,
// and says whether it was not; then it is to be settled. If the message has to wait
// like one without a group, it returns nil.
func (s *Shard) meetGroup(e *Entry) (g *group, isNew bool) {
	if s.isFair(e) {
		g = s.fairGroup(e.groupName())
	}
	return g, g != nil && s.know(g, e.Place)
}

// know makes a group known of which a message at a place is ready, and reports
// whether it was not.
func (s *Shard) know(g *group, place uint64) bool {
	if g.known {
		return false
	}
	g.known = true
	from := s.window.horizon
	if s.window.strayed {
		from = min(from, s.gatherStrays(g.name))
	}
	if from != allPlaces {
		g.more, g.from, g.sure = true, min(from, place), false
	}
	return true
}

// gatherStrays lets go of the strays of a group that gets known, and returns the
// place of the first.
func (s *Shard) gatherStrays(name string) (first uint64) {
	s.shelf() // knows of all that is let go
	var mine []*Entry
	s.window.strayed = false
	for e := range s.ready.all {
		switch {
		case !s.isFair(e):
		case e.groupName() == name:
			mine = append(mine, e)
		default:
			s.window.strayed = true
		}
	}
	first = allPlaces
	for _, e := range mine {
		first = min(first, e.Place)
		s.window.letGo(e)
		s.vanish(e)
		s.ready.lost()
	}
	return first
}

// offerShelved puts a ready message where its group finds it.
func (s *Shard) offerShelved(g *group, e *Entry) {
	s.know(g, e.Place)
	enough := g.waiting.size >= groupFill || s.window.full()
	last := g.waiting.head() == nil || (!g.waiting.fifo.empty() && e.Place > g.waiting.last)
	if !g.more && enough && last {
		g.more, g.from, g.sure = true, e.Place, true
	}
	if !g.more || e.Place < g.from {
		s.holdInGroup(g, e)
		s.trimReady()
	}
}

// fillFair holds the next messages of a group, at least as many as asked for and
// others while there is room. If it holds none it finds out where the next one is.
func (s *Shard) fillFair(g *group, least int) {
	g.sure = false
	read := 0
	for e := range s.shelf().Group(g.name, g.from) {
		g.from = e.Place + 1
		if s.news(e) || s.isDelayed(e) {
			continue
		}
		if s.window.full() && read >= least {
			g.from, g.sure = e.Place, true
			return
		}
		s.holdInGroup(g, e)
		if read++; read == groupFill {
			return
		}
	}
	if !s.window.stopped() {
		g.more = false
	}
}

// isDelayed reports whether a message from the shelf is delayed. What is due now
// may not have been told yet, and is offered when it is.
func (s *Shard) isDelayed(e *Entry) bool {
	return e.Due > s.clock || (e.Due == s.clock && e.Is(Timed) && s.findDelayed(e) != nil)
}

// takeFairly takes a ready message out of its group, and reports whether it was
// there.
func (s *Shard) takeFairly(e *Entry) bool {
	g := s.groups.byName[e.groupName()]
	if g == nil {
		return false
	}
	if g.more && e.Place >= g.from {
		g.sure = g.sure && e.Place != g.from
		return true
	}
	held := g.waiting.find(e.Place)
	if held == nil {
		return false
	}
	s.window.letGo(held)
	s.vanish(held)
	g.waiting.lost()
	return true
}

// shelveGroups lets go of all messages that wait in groups.
func (s *Shard) shelveGroups() {
	for _, g := range s.groups.byName {
		head := g.waiting.head()
		if head == nil {
			continue
		}
		for e := range g.waiting.all {
			s.window.letGo(e)
		}
		g.waiting.clear()
		g.more, g.from, g.sure = true, head.Place, true
	}
}
