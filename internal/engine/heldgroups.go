package engine

// With a shelf, the messages of strict groups are looked at in the order of
// their places, up to the horizon. Of those before it, a ready one is
//
//   - held, in its group's waiting, or
//   - at or after its group's from, where the group has more, or
//   - behind a delayed one of its group, and its group may not be known at all.
//
// A delayed message is never in its group's waiting: it is among the timers, if
// it is held. When it falls due, or leaves, its group is looked up again. So
// what is held depends on what is in flight and on the limits, and neither on
// how many messages wait nor on how many groups there are.

const (
	// groupHold is how many messages are held of a group that may not go.
	groupHold = 16
	// groupFill is how many are read at once of one that may.
	groupFill = 64
)

// waitInGroup makes e ready, or delayed until it is due. The shelf must know
// before the group is looked at.
func (s *Shard) waitInGroup(e *Entry, how EffectKind) {
	g := e.group
	if g == nil {
		g = s.groups.byName[e.groupName()]
	}
	e.group = nil
	if e.Due <= s.clock {
		e.State = Ready
		s.stats.Ready++
		s.effect(how, e)
		s.offerInGroup(g, e)
		return
	}
	s.stats.Delayed++
	s.delay(e)
	s.effect(how, e)
	if g != nil {
		s.cutGroup(g, e.Place)
		s.settleGroup(g)
	}
}

// offerInGroup puts a ready message where Receive finds it. g is its group, nil
// if it is not known.
func (s *Shard) offerInGroup(g *group, e *Entry) {
	w := s.window
	if w.horizon == allPlaces && w.full() && e.Place > w.highest {
		w.horizon = e.Place
	}
	switch {
	case e.Place >= w.horizon:
		if g != nil {
			s.settleGroup(g)
		}
		return
	case g == nil && s.stats.Delayed > 0:
		s.unblock(e.groupName(), e.Place) // something may be before it
		return
	case g == nil:
		g = s.groups.get(e.groupName())
	}
	enough := g.waiting.size >= groupHold || w.full()
	if !g.more && g.out > 0 && !g.taken && enough && e.Place > g.waiting.last {
		g.more, g.from = true, e.Place
	}
	if !g.more || e.Place < g.from {
		s.holdInGroup(g, e)
	}
	s.settleGroup(g)
}

func (s *Shard) holdInGroup(g *group, e *Entry) {
	e.State = Ready
	e.timerIndex = -1
	e.group = g
	g.waiting.push(e)
	s.window.let(e)
	s.window.highest = max(s.window.highest, e.Place)
}

// cutGroup makes g end before place, as far as it is held.
func (s *Shard) cutGroup(g *group, place uint64) {
	if place >= s.window.horizon || (g.more && g.from <= place) {
		return
	}
	g.more, g.from = true, place
	var kept []*Entry
	for e := range g.waiting.sorted {
		if e.Place < place {
			kept = append(kept, e)
		} else {
			s.window.letGo(e)
		}
	}
	g.waiting.clear()
	for _, e := range kept {
		g.waiting.push(e)
	}
}

// unblock looks at a group again, of which the message at a place has fallen
// due, or is gone, or whose state is not known.
func (s *Shard) unblock(name string, place uint64) {
	if place >= s.window.horizon {
		return
	}
	g := s.groups.byName[name]
	if g == nil {
		g = s.groups.get(name)
		g.more, g.from = true, 0
	} else {
		s.cutGroup(g, place)
	}
	s.settleGroup(g)
}

// leftGroup looks at the group of a message that was taken while it waited at a
// place. Without a shelf, or without groups, there is nothing left to do.
func (s *Shard) leftGroup(e *Entry, place uint64) {
	if s.window == nil || !(s.config.StrictGroups || s.isFair(e)) {
		return
	}
	if e.Due > s.clock && s.config.StrictGroups {
		s.unblock(e.groupName(), place)
	} else if g := s.groups.byName[e.groupName()]; g != nil {
		s.settleGroup(g)
	}
}

// forgetGroups lets go of all messages that wait in groups, to look at them anew.
func (s *Shard) forgetGroups() {
	w := s.window
	w.reread = false
	w.horizon, w.heldReady, w.readyBytes = 0, 0, 0
	for _, g := range s.groups.byName {
		g.waiting.clear()
		g.more, g.from = false, 0
		s.groups.settle(g)
	}
}

// fillGroups looks at the next messages from the shelf, until a group may go.
func (s *Shard) fillGroups() {
	w := s.window
	if w.horizon == allPlaces {
		return
	}
	looked := 0
	for e := range s.shelf().Waiting(w.horizon) {
		w.horizon = e.Place + 1
		if !s.news(e) {
			g := s.groups.byName[e.groupName()]
			if e.Due <= s.clock {
				s.offerInGroup(g, e)
			} else if g != nil {
				s.cutGroup(g, e.Place)
			}
		}
		looked++
		if looked >= w.limits.Look || (looked >= w.limits.Messages && len(s.groups.eligible) > 0) {
			return
		}
	}
	if !w.stopped() {
		w.horizon = allPlaces
	}
}

// fillGroup reads the next messages of a group that could go if it had any.
func (s *Shard) fillGroup(g *group) {
	if !g.more || g.waiting.head() != nil || (g.out > 0 && !g.taken) {
		return
	}
	read := 0
	for e := range s.shelf().Group(g.name, g.from) {
		if e.Place >= s.window.horizon {
			break
		}
		if s.news(e) {
			g.from = e.Place + 1
			continue
		}
		if e.Due > s.clock {
			g.from = e.Place
			return
		}
		g.from = e.Place + 1
		s.holdInGroup(g, e)
		if read++; read == groupFill || s.window.full() {
			return
		}
	}
	if !s.window.stopped() {
		g.more = false
	}
}
