package engine

// groups orders the messages of a queue with strict or fair groups. A group is
// eligible when its first ready message can be delivered; see strict.go and fair.go.
// Receive takes the eligible group with the lowest turn and never searches messages.
type groups struct {
	byName map[string]*group
	// eligible has the groups that can be received from; nil if there were none.
	eligible *turns
	// served counts how often a group was served.
	served uint64
	// idle is a list of the groups that became empty since the clock last moved.
	idle *group
}

type group struct {
	name string
	// waiting holds ready messages. The place of none of them is after last.
	waiting order
	last    uint64
	// out is the number of messages in flight.
	out int
	// blockers are the places of a strict group's messages that block later ones.
	blockers places
	// taken: the batch being received has taken from this strict group already, and
	// may go on taking messages before bound.
	taken     bool
	bound     uint64
	nextTaken *group // by that batch, after this group; see Shard.taken
	// position in each heap, and slot in the list of turns, from 1 on; 0: not there.
	position [heapKinds]int32
	slot     uint64
	// served numbers the latest time it was served, and after is the last place that
	// existed then.
	served, after uint64
	// more: at or after the place from, the backlog has messages that are not in
	// waiting; see window_groups.go.
	more bool
	from uint64
	// sure, known: see window_groups.go.
	sure, known bool
	limits      *limitState // nil without limits; see limit.go
	// listed: it is in the list of idle groups, before nextIdle.
	listed   bool
	nextIdle *group
}

func (g *groups) get(name string) *group {
	if g.byName == nil {
		g.byName = make(map[string]*group)
	}
	if found := g.byName[name]; found != nil {
		return found
	}
	made := &group{name: name}
	g.byName[name] = made
	return made
}

// forget removes an empty group.
func (g *groups) forget(gr *group) {
	g.eligible.remove(gr)
	delete(g.byName, gr.name)
}

// inGroup reports whether e waits in a group.
func (s *Shard) inGroup(e *Entry) bool {
	return s.config.StrictGroups || s.isFair(e)
}

// waitInGroup makes a message of a group ready, or delayed until it is due.
func (s *Shard) waitInGroup(e *Entry, how EffectKind) {
	left := e.group // set if it was in flight, or the head of its group
	e.group = nil
	if e.Due > s.clockOf(e) {
		s.stats.Delayed++
		s.delay(e)
		s.effect(how, e)
		if s.blocksWhileDelayed(e) {
			left = s.groups.get(e.groupName())
			left.block(e.Place)
		}
	} else {
		e.State = Ready
		s.stats.Ready++
		s.effect(how, e) // the backlog must see it before the group is read
		s.offer(e)
	}
	if left != nil {
		s.regroup(left)
	}
}

// offerInGroup puts a ready message into its group. It reports false if the message
// has to wait like one without a group.
func (s *Shard) offerInGroup(e *Entry) bool {
	if s.window != nil && s.leavesUnknown(e) {
		if g := s.groups.byName[e.groupName()]; g != nil {
			s.regroup(g) // e may have been its only message
		}
		return true
	}
	g := s.groupFor(e.groupName())
	if g == nil {
		return false
	}
	if s.window == nil {
		e.group = g
		g.waiting.push(e)
		g.last = max(g.last, e.Place)
	} else {
		s.offerInWindow(g, e)
	}
	s.regroup(g)
	return true
}

// regroup puts a group where it belongs after a change: into the heap of groups that may be
// served if its first message is before all messages that block it and it is below its limit, and
// out of it otherwise.
func (s *Shard) regroup(g *group) {
	head, limit := g.waiting.head(), g.limit()
	if head == nil && g.more && !g.sure && g.from < limit {
		s.refillGroup(g, 0)
		head, limit = g.waiting.head(), g.limit()
	}
	next := g.from
	switch {
	case head == nil:
	case limit == allPlaces && s.window == nil && g.last <= g.after:
		next = g.after // or earlier, which makes its turn no other: reading the message is a cache miss
	default:
		next = head.Place
	}
	over := s.limits != nil && s.isOver(g)
	switch {
	case head == nil && !g.more:
		s.groups.eligible.remove(g)
		if g.out == 0 && len(g.blockers) == 0 && !g.listed {
			g.listed, g.nextIdle = true, s.groups.idle
			s.groups.idle = g
		}
	case next >= limit || over:
		s.groups.eligible.remove(g)
		if head != nil && s.window != nil && s.window.full() {
			s.evictGroup(g) // other groups need the room
		}
	case g.taken && (g.slot > 0 || g.position[eligibleHeap] > 0): // the batch goes on taking from it
	default:
		if s.groups.eligible == nil {
			s.groups.eligible = &turns{first: 1, end: 1}
		}
		s.groups.eligible.put(g, s.turnOf(g, next))
	}
}

// turnOf returns the turn of a group whose next message is at the place next.
func (s *Shard) turnOf(g *group, next uint64) turn {
	at := turn{place: max(next, g.after), served: g.served}
	if s.config.FairGroups {
		at.out = g.out
	}
	return at
}

// noteServed puts a group behind all messages sent by now.
func (s *Shard) noteServed(g *group) {
	s.groups.served++
	g.served, g.after = s.groups.served, s.nextSeq-1
}

// forgetIdle forgets the groups that are still empty when the clock moves.
func (s *Shard) forgetIdle() {
	for g := s.groups.idle; g != nil; g = s.groups.idle {
		s.groups.idle = g.nextIdle
		g.listed, g.nextIdle = false, nil
		if g.isIdle() && !s.remembers(g) {
			if g.limits != nil {
				s.limits.wakes.remove(wakeHeap, g)
			}
			s.groups.forget(g)
		}
	}
}

// isIdle reports whether a group is empty.
func (g *group) isIdle() bool {
	return g.out == 0 && len(g.blockers) == 0 && !g.more && g.waiting.head() == nil
}

// groupHead returns the next message to deliver, or nil.
func (s *Shard) groupHead() *Entry {
	s.fetchGroups()
	for {
		if s.window != nil && s.window.reread {
			s.forgetGroups()
		}
		e := s.ready.head()
		g, its := s.groups.eligible.next()
		if g != nil && e != nil && !its.before(turn{place: e.Place}) {
			g = nil
		}
		if s.window != nil && s.mayFindQuieter(e, g, its) {
			s.searchGroups()
			continue
		}
		if g == nil {
			return e
		}
		if head := g.waiting.head(); head != nil {
			return head
		}
		s.refillGroup(g, 1)
		s.regroup(g)
		if s.window.stopped() {
			return nil
		}
	}
}
