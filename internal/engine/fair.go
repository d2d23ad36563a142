package engine

// With fair groups, ready messages of a group wait in their group, and messages
// without a group in the order of their places. The message with the lowest turn is
// delivered next. A message without a group has the turn of a group of its own with
// nothing in flight: its place. The turn of a group is
//
//   - the number of its messages in flight, then
//   - the place of its first ready message, or, if that is higher, the last place
//     that existed when the group was last served: the group is behind all messages
//     sent by then, and ahead of later ones, then
//   - how long ago it was served.
//
// So a noisy group (many messages, slow messages, or both) is behind a quiet one, and
// equally busy groups take turns. A group with nothing in flight is served once the
// messages sent before it are gone, whatever is sent later, so none starves.
//
// A group with nothing ready and nothing in flight is forgotten when the clock moves
// on, and not earlier, so that the order of simultaneous events does not matter.

// isFair reports whether e belongs to a fair group.
func (s *Shard) isFair(e *Entry) bool {
	return s.config.FairGroups && e.Extra != nil && e.Extra.Group != ""
}

// groupFor returns the group of that name. It returns nil for a fair group beyond
// Limits.Groups, whose messages are strays; see window_groups.go. With limits there are none.
func (s *Shard) groupFor(name string) *group {
	if g := s.groups.byName[name]; g != nil {
		return g
	}
	if s.config.FairGroups && s.window != nil && s.limits == nil && s.window.groupsEnough(&s.groups) {
		s.window.strayed = true
		return nil
	}
	return s.groups.get(name)
}

// serve counts one more message of g in flight and puts g behind the others.
func (s *Shard) serve(g *group) {
	g.out++
	s.spend(g)
	s.noteServed(g)
	s.regroup(g)
}

// moveClock moves the clock forward to at, and forgets idle groups.
func (s *Shard) moveClock(at Instant) {
	if at <= s.clock {
		return
	}
	s.clock = at
	s.forgetIdle()
}
