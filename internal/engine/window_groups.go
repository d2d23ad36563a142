package engine

// With a shelf, messages of groups are held group by group. Of a group that is
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
// Beyond Limits.Groups, no more fair groups get known. Ready messages of others are
// strays: they wait like those without a group, until there is room and their group
// gets known. A message of a strict group beyond that is left to the horizon.
//
// What blocks a strict group is known if it is in flight, before the horizon, or
// before everything that the group has more of. So blockers cost memory, like
// messages in flight, and messages behind them do not.

// groupFill is how many messages of a group are read at once.
const groupFill = 64

// groupsEnough reports whether no more groups are to be known.
func (w *window) groupsEnough(g *groups) bool {
	return w.limits.Groups > 0 && len(g.byName) >= w.limits.Groups
}

// leavesUnknown reports whether the strict group of a message that is ready stays
// unknown. The horizon comes to it later.
func (s *Shard) leavesUnknown(e *Entry) bool {
	if !s.config.StrictGroups {
		return false
	}
	if g := s.groups.byName[e.groupName()]; g != nil && g.known {
		return false
	}
	if e.Place < s.window.horizon && !s.window.groupsEnough(&s.groups) {
		return false
	}
	s.window.horizon = min(s.window.horizon, e.Place)
	return true
}

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
	if s.inGroup(e) {
		g = s.groupFor(e.groupName())
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
	last := g.waiting.head() == nil || g.waiting.isLast(e)
	if !g.more && enough && last {
		g.more, g.from, g.sure = true, e.Place, true
	}
	if !g.more || e.Place < g.from {
		s.holdInGroup(g, e)
		s.trimReady()
	}
}

// holdInGroup makes a ready message one that is held.
func (s *Shard) holdInGroup(g *group, e *Entry) {
	e.State = Ready
	e.timerIndex = -1
	e.group = g
	g.waiting.push(e)
	s.window.let(e)
}

// fillGroup holds the next messages of a group that may go, at least as many as asked
// for and others while there is room. If it holds none it finds out where the next
// one is.
func (s *Shard) fillGroup(g *group, least int) {
	g.sure = false
	read := 0
	for e := range s.shelf().Group(g.name, g.from) {
		if e.Place >= g.limit() {
			g.from = e.Place
			return
		}
		g.from = e.Place + 1
		if s.news(e) {
			continue
		}
		if s.isDelayed(e) {
			if s.blocksWhileDelayed(e) {
				g.block(e.Place)
			}
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

// takeFromGroup takes a ready message out of its group, and reports whether it was
// there.
func (s *Shard) takeFromGroup(e *Entry) bool {
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
		s.shelveGroup(g)
	}
}

// shelveGroup lets go of all messages that wait in a group.
func (s *Shard) shelveGroup(g *group) {
	head := g.waiting.head()
	if head == nil {
		return
	}
	for e := range g.waiting.all {
		s.window.letGo(e)
	}
	g.waiting.clear()
	g.more, g.from, g.sure = true, head.Place, true
}

// leftGroup looks at the group of a message that was taken while it waited at a
// place.
func (s *Shard) leftGroup(e *Entry, place uint64) {
	if s.config.StrictGroups || (s.window != nil && s.isFair(e)) {
		s.unblock(e.groupName(), place)
	}
}

// forgetGroups lets go of everything that is known of strict groups but what is in
// flight, to look at them again.
func (s *Shard) forgetGroups() {
	w := s.window
	w.reread = false
	w.horizon, w.heldReady, w.readyBytes = 0, 0, 0
	for _, g := range s.groups.byName {
		g.waiting.clear()
		g.blockers = g.blockers[:0]
		g.more, g.sure, g.known, g.from = false, false, false, 0
	}
	for _, e := range s.inFlight.slots {
		if e != nil {
			e.group.blockers.add(e.placeInGroup())
		}
	}
	for _, g := range s.groups.byName {
		s.settleGroup(g)
	}
}
