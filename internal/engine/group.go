package engine

// groups orders the messages of a queue with strict or fair groups. A group may go
// when its first ready message may; see strict.go and fair.go for when that is. Those
// that may go wait in a heap by their turns. Receive takes groups from that heap and
// never searches messages.
type groups struct {
	byName map[string]*group
	// eligible is a heap of the groups that may go.
	eligible []*group
	// served counts how often a group was served.
	served uint64
	// idle is the first of the groups that had nothing left at some time in the
	// present instant.
	idle *group
}

type group struct {
	name string
	// waiting holds ready messages.
	waiting order
	// out is how many messages are in flight.
	out int
	// blockers are the places of a strict group's messages that block later ones.
	blockers places
	// taken: the batch being received has taken from this strict group already, and
	// may take what is before bound.
	taken bool
	bound uint64
	// index is the position in eligible, -1 when not there.
	index int
	// turn is where it stands in eligible.
	turn turn
	// served is the number of the latest time that it was served, and after the last
	// place that was given by then.
	served, after uint64
	// more: of the messages at or after from, the shelf has some that are not
	// in waiting; see heldgroups.go.
	more bool
	from uint64
	// sure, known: see heldgroups.go.
	sure, known bool
	// listed: it is among the idle ones, before nextIdle.
	listed   bool
	nextIdle *group
}

// turn says where a group stands among those that may go.
type turn struct {
	out    int
	place  uint64
	served uint64 // the number of its latest delivery; 0: none
}

func (t turn) before(u turn) bool {
	if t.out != u.out {
		return t.out < u.out
	}
	if t.place != u.place {
		return t.place < u.place
	}
	return t.served < u.served
}

func (g *groups) get(name string) *group {
	if g.byName == nil {
		g.byName = make(map[string]*group)
	}
	if found := g.byName[name]; found != nil {
		return found
	}
	made := &group{name: name, index: -1}
	g.byName[name] = made
	return made
}

// put lets a group stand where its turn says.
func (g *groups) put(gr *group, at turn) {
	switch {
	case gr.index < 0:
		gr.turn = at
		gr.index = len(g.eligible)
		g.eligible = append(g.eligible, gr)
		g.up(gr.index)
	case gr.turn != at:
		gr.turn = at
		g.up(gr.index)
		g.down(gr.index)
	}
}

// forget removes a group that has nothing left.
func (g *groups) forget(gr *group) {
	g.remove(gr)
	delete(g.byName, gr.name)
}

func (g *groups) remove(gr *group) {
	i, last := gr.index, len(g.eligible)-1
	if i < 0 {
		return
	}
	if i != last {
		g.swap(i, last)
	}
	g.eligible[last] = nil
	g.eligible = g.eligible[:last]
	if i != last {
		moved := g.eligible[i]
		g.up(i)
		g.down(moved.index)
	}
	gr.index = -1
}

func (g *groups) swap(i, j int) {
	e := g.eligible
	e[i], e[j] = e[j], e[i]
	e[i].index, e[j].index = i, j
}

func (g *groups) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !g.eligible[i].turn.before(g.eligible[parent].turn) {
			return
		}
		g.swap(i, parent)
		i = parent
	}
}

func (g *groups) down(i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(g.eligible); child++ {
			if g.eligible[child].turn.before(g.eligible[least].turn) {
				least = child
			}
		}
		if least == i {
			return
		}
		g.swap(i, least)
		i = least
	}
}

// inGroup reports whether e waits in a group.
func (s *Shard) inGroup(e *Entry) bool {
	return s.config.StrictGroups || s.isFair(e)
}

// waitInGroup makes a message of a group ready, or delayed until it is due.
func (s *Shard) waitInGroup(e *Entry, how EffectKind) {
	left := e.group // it was in flight, or first in its group
	e.group = nil
	if e.Due > s.clock {
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
		s.effect(how, e) // a shelf must know before the group is looked at
		s.offer(e)
	}
	if left != nil {
		s.settleGroup(left)
	}
}

// offerInGroup lets a ready message wait in its group. It reports false if the
// message has to wait like one without a group.
func (s *Shard) offerInGroup(e *Entry) bool {
	if s.window != nil && s.leavesUnknown(e) {
		if g := s.groups.byName[e.groupName()]; g != nil {
			s.settleGroup(g) // e may have been all that it had
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
	} else {
		s.offerShelved(g, e)
	}
	s.settleGroup(g)
	return true
}

// settleGroup brings the heap in line with the state of one group.
func (s *Shard) settleGroup(g *group) {
	head, limit := g.waiting.head(), g.limit()
	if head == nil && g.more && !g.sure && g.from < limit {
		s.fillGroup(g, 0)
		head, limit = g.waiting.head(), g.limit()
	}
	next := g.from
	if head != nil {
		next = head.Place
	}
	switch {
	case head == nil && !g.more:
		s.groups.remove(g)
		if g.out == 0 && len(g.blockers) == 0 && !g.listed {
			g.listed, g.nextIdle = true, s.groups.idle
			s.groups.idle = g
		}
	case next >= limit:
		s.groups.remove(g)
		if head != nil && s.window != nil && s.window.full() {
			s.shelveGroup(g) // others need the room now
		}
	case g.taken && g.index >= 0: // the batch goes on with it
	default:
		s.groups.put(g, s.turnOf(g, next))
	}
}

// turnOf returns the turn of a group whose next message is at a place.
func (s *Shard) turnOf(g *group, next uint64) turn {
	at := turn{place: max(next, g.after), served: g.served}
	if s.config.FairGroups {
		at.out = g.out
	}
	return at
}

// noteServed puts a group behind all that had been sent by now.
func (s *Shard) noteServed(g *group) {
	s.groups.served++
	g.served, g.after = s.groups.served, s.nextSeq-1
}

// forgetIdle forgets the groups that have nothing left as an instant ends.
func (s *Shard) forgetIdle() {
	for g := s.groups.idle; g != nil; g = s.groups.idle {
		s.groups.idle = g.nextIdle
		g.listed, g.nextIdle = false, nil
		if g.isIdle() {
			s.groups.forget(g)
		}
	}
}

// isIdle reports whether a group has nothing left.
func (g *group) isIdle() bool {
	return g.out == 0 && len(g.blockers) == 0 && !g.more && g.waiting.head() == nil
}

// groupHead returns the message that goes next, or nil.
func (s *Shard) groupHead() *Entry {
	for {
		if s.window != nil && s.window.reread {
			s.forgetGroups()
		}
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
		s.fillGroup(g, 1)
		s.settleGroup(g)
		if s.window.stopped() {
			return nil
		}
	}
}
