package engine

// With fair groups, messages of a group that are ready wait in their group, and
// those without a group in the order of their places. What goes next is the
// message whose turn is the lowest. The turn of a message without a group is its
// place, with nothing out, as if it were a group of its own. The turn of a group is
//
//   - how many of its messages are out, then
//   - the place of its first message; or the last place that was given when the
//     group was served last, if that is higher: it stands behind all that had
//     been sent by then, and ahead of what is sent later, then
//   - how long ago it was served.
//
// So a group that is noisy, because much of it waits, is slow, or both, goes behind
// one that is quiet, and groups that are equally busy take turns. A group with
// nothing out comes to its turn when what was sent before has gone, whatever is sent
// later, so nothing waits for ever.
//
// A group that has nothing ready and nothing out when an instant is over is
// forgotten. Not earlier, so that it does not matter in what order things happen
// that happen together.

// isFair reports whether e belongs to a fair group.
func (s *Shard) isFair(e *Entry) bool {
	return s.config.FairGroups && e.Extra != nil && e.Extra.Group != ""
}

// groupFor returns the group of that name, and nil if it is a fair one too many:
// what waits in it is a stray.
func (s *Shard) groupFor(name string) *group {
	if g := s.groups.byName[name]; g != nil {
		return g
	}
	if s.config.FairGroups && s.window != nil && s.window.groupsEnough(&s.groups) {
		s.window.strayed = true
		return nil
	}
	return s.groups.get(name)
}

// serve counts one more message of g out. Now it is the turn of others.
func (s *Shard) serve(g *group) {
	g.out++
	s.noteServed(g)
	s.settleGroup(g)
}

// passTo moves the clock.
func (s *Shard) passTo(at Instant) {
	if at <= s.clock {
		return
	}
	s.clock = at
	s.forgetIdle()
}
