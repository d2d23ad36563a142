package engine

// The messages of a plain queue lie one behind the other, and the processor reads them ahead. The
// next messages of one of ten priorities, or of ten thousand groups, lie anywhere: a receive that
// reads them one by one waits for memory each time, for those of groups several times. So every
// fetchAhead receives, one of them reads the next few at once, and the processor waits for all of
// them together. See docs/decisions/0076.

// fetchAhead is how many messages or groups are read at once. They stay in the processor's cache
// until they are received.
const fetchAhead = 16

// fetched is a sum of what was read ahead. It has no meaning: it keeps the compiler from leaving
// the reads out.
type fetched uint64

// entry reads every cache line of a message that a receive uses, and the slot of its lease.
func (f *fetched) entry(e *Entry, inFlight *leases) {
	sum := e.Seq + uint64(e.Born)
	if x := e.Extra; x != nil {
		if x.Attributes != nil {
			sum++
		}
		sum += uint64(x.DeliverAt) + uint64(len(x.LastError))
	}
	if len(inFlight.slots) > 0 && inFlight.slots[inFlight.home(e.Seq)] != nil {
		sum++
	}
	*f += fetched(sum)
}

// group reads every cache line of a group that a receive uses, and its next message.
func (f *fetched) group(g *group, inFlight *leases) {
	*f += fetched(g.last) + fetched(g.position[eligibleHeap])
	if g.limits != nil {
		*f += fetched(g.limits.until)
	}
	if e := g.waiting.fifo.first(); e != nil {
		f.entry(e, inFlight)
	}
}

// fetchLevel reads the next messages of a priority, if a multiple of fetchAhead was taken from
// the chunk that they are in.
func (s *Shard) fetchLevel(ready *order) {
	c := ready.fifo.head
	if c == nil || c.read%fetchAhead != 0 {
		return
	}
	for _, e := range c.items[c.read:min(c.read+fetchAhead, len(c.items))] {
		s.fetched.entry(e, &s.inFlight)
	}
}

// fetchGroups reads the groups that are next in the list of turns, unless it has read the first.
func (s *Shard) fetchGroups() {
	t := s.groups.eligible
	if t == nil || t.first < t.fetchedTo {
		return
	}
	t.fetchedTo = t.first + fetchAhead
	for n := t.first; n < min(t.fetchedTo, t.end); n++ {
		if g := t.at(n).group; g != nil {
			s.fetched.group(g, &s.inFlight)
		}
	}
}
