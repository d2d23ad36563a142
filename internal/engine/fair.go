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

// fairGroup returns the group of that name, and nil if it is one too many: what
// waits in it is a stray.
func (s *Shard) fairGroup(name string) *group {
	if g := s.groups.byName[name]; g != nil {
		return g
	}
	if w := s.window; w != nil && w.limits.Groups > 0 && len(s.groups.byName) >= w.limits.Groups {
		w.strayed = true
		return nil
	}
	return s.groups.get(name)
}

// waitFairly makes a message of a fair group ready, or delayed until it is due.
func (s *Shard) waitFairly(e *Entry, how EffectKind) {
	left := e.group // it was out
	e.group = nil
	if e.Due > s.clock {
		s.stats.Delayed++
		s.delay(e)
		s.effect(how, e)
	} else {
		e.State = Ready
		s.stats.Ready++
		s.effect(how, e) // a shelf must know before the group is looked at
		s.offer(e)
	}
	if left != nil {
		s.settleFair(left)
	}
}

// offerFairly lets a ready message wait in its group. It reports false if the
// message has to wait like one without a group.
func (s *Shard) offerFairly(e *Entry) bool {
	g := s.fairGroup(e.groupName())
	if g == nil {
		return false
	}
	if s.window == nil {
		e.group = g
		g.waiting.push(e)
	} else {
		s.offerShelved(g, e)
	}
	s.settleFair(g)
	return true
}

// serve counts one more message of g out. Now it is the turn of others.
func (s *Shard) serve(g *group) {
	g.out++
	s.groups.served++
	g.turn.served, g.after = s.groups.served, s.nextSeq-1
	s.settleFair(g)
}

// settleFair brings the heap in line with the state of one fair group.
func (s *Shard) settleFair(g *group) {
	head := g.waiting.head()
	if head == nil && g.more && !g.sure {
		s.fillFair(g, 0)
		head = g.waiting.head()
	}
	switch {
	case head != nil:
		s.groups.put(g, turn{out: g.out, place: max(head.Place, g.after), served: g.turn.served})
	case g.more:
		s.groups.put(g, turn{out: g.out, place: max(g.from, g.after), served: g.turn.served})
	default:
		s.groups.remove(g)
		if g.out == 0 && !g.listed {
			g.listed, g.nextIdle = true, s.groups.idle
			s.groups.idle = g
		}
	}
}

// passTo moves the clock.
func (s *Shard) passTo(at Instant) {
	if at <= s.clock {
		return
	}
	s.clock = at
	if s.config.FairGroups {
		s.forgetIdle()
	}
}

func (s *Shard) forgetIdle() {
	for g := s.groups.idle; g != nil; g = s.groups.idle {
		s.groups.idle = g.nextIdle
		g.listed, g.nextIdle = false, nil
		if g.isIdle() {
			s.groups.forget(g)
		}
	}
}

// isIdle reports whether a fair group has nothing left.
func (g *group) isIdle() bool { return g.out == 0 && !g.more && g.waiting.head() == nil }

// fairHead returns the message that goes next, or nil.
func (s *Shard) fairHead() *Entry {
	for {
		e := s.ready.head()
		var g *group
		if len(s.groups.eligible) > 0 {
			g = s.groups.eligible[0]
			if e != nil && !g.turn.before(turn{place: e.Place}) {
				g = nil
			}
		}
		if s.window != nil && s.mayFindQuieter(e, g) {
			s.fillReady()
			continue
		}
		if g == nil {
			return e
		}
		if head := g.waiting.head(); head != nil {
			return head
		}
		s.fillFair(g, 1)
		s.settleFair(g)
		if s.window.stopped() {
			return nil
		}
	}
}
