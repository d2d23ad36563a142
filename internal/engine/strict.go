package engine

import (
	"cmp"
	"slices"
)

// With strict groups, a message that is in flight, or was delivered and is delayed,
// blocks all messages of its group at later places, and none at earlier ones. So a
// group is eligible when its first ready message is before all of its blockers. A
// message that was sent with a delay joins its group when it is due.
//
// A batch takes as many messages from one group as it can; those it takes do not block
// the batch itself. Then the group goes behind all messages sent by then, as a fair
// group does, and the batch goes on with the next group.

// blocksWhileDelayed reports whether e blocks its group while it is delayed.
func (s *Shard) blocksWhileDelayed(e *Entry) bool {
	return s.config.StrictGroups && e.HasReturned()
}

// limit returns the place before which messages of a group can be delivered.
func (g *group) limit() uint64 {
	if g.taken {
		return g.bound
	}
	return g.blockers.lowest()
}

// block adds the place of a delayed message to the blockers, also for the batch being
// received.
func (g *group) block(place uint64) {
	g.blockers.add(place)
	g.bound = min(g.bound, place)
}

// hold counts a message of a strict group as in flight. The batch being received may
// take more messages from the group.
func (s *Shard) hold(e *Entry) {
	g := e.group
	if !g.taken {
		g.taken, g.bound = true, g.blockers.lowest()
		if s.taken == nil {
			g.nextTaken = g
		} else {
			s.taken.nextTaken, g.nextTaken = g, s.taken.nextTaken
		}
		s.taken = g
	}
	g.out++
	s.spend(g)
	g.blockers.add(e.Place)
	s.regroup(g)
}

// endBatch puts the groups that a batch has taken from behind the others.
func (s *Shard) endBatch() {
	last := s.taken
	s.taken = nil
	for g := last; g != nil; {
		g, last.nextTaken = last.nextTaken, last.nextTaken.nextTaken // the first
		g.nextTaken, g.taken = nil, false
		s.noteServed(g)
		s.regroup(g)
		if g == last {
			return
		}
	}
}

// unblock removes the blocker at a place, if there is one, and settles the group.
func (s *Shard) unblock(name string, place uint64) {
	if g := s.groups.byName[name]; g != nil {
		g.blockers.remove(place)
		s.regroup(g)
	}
}

// isBlocked reports whether a known blocker is before e.
func (s *Shard) isBlocked(e *Entry) bool {
	if !s.config.StrictGroups {
		return false
	}
	g := s.groups.byName[e.groupName()]
	return g != nil && g.blockers.lowest() < e.Place
}

// places is a set of places, the highest first: a new blocker is nearly always lower
// than the others.
type places []uint64

func (p places) find(place uint64) (int, bool) {
	return slices.BinarySearchFunc(p, place, func(a, b uint64) int { return cmp.Compare(b, a) })
}

func (p *places) add(place uint64) {
	if i, found := p.find(place); !found {
		*p = slices.Insert(*p, i, place)
	}
}

func (p *places) remove(place uint64) {
	if i, found := p.find(place); found {
		*p = slices.Delete(*p, i, i+1)
	}
}

// lowest returns the lowest place, or allPlaces if the set is empty.
func (p places) lowest() uint64 {
	if len(p) == 0 {
		return allPlaces
	}
	return p[len(p)-1]
}
