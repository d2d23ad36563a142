package engine

import (
	"container/heap"
	"iter"
)

// A message moves from one shard to another in steps, so that an owner with a disk
// can write down in one piece that it left and that it came:
//
//	Movable      says which may go
//	Withdraw     takes one out of its shard
//	StageArrival prepares it in the other, which must have Room
//	             here the owner writes both down
//	Fulfil       makes it visible there
//	LetGroupGo   and lets those behind it go here

// Tail returns a place that is beyond every message there is.
func (s *Shard) Tail() uint64 { return s.nextSeq }

// maxLook is how many messages Movable looks at without a shelf, at a time.
const maxLook = 1 << 16

// Movable returns up to n ready messages at places after last and before until that
// are wanted, in the order of their places, and up to where it has looked: until if
// there are no more. It only looks: Withdraw tells whether a message is still there,
// and, with a shelf, whether another of its strict group keeps it back.
func (s *Shard) Movable(now Moment, last, until uint64, n int, wanted func(*Entry) bool) (found []*Entry, looked uint64) {
	s.Advance(now)
	all, most := s.movable(), maxLook
	if s.window != nil {
		all, most = s.shelvedFrom(last+1), s.window.limits.Look
	}
	looks := 0
	for e := range all {
		if e.Place >= until {
			break
		}
		if e.Place <= last {
			continue
		}
		looks++
		if e.State == Ready && !s.isOut(s.groups.byName[e.groupName()]) && wanted(e) {
			found = append(found, e)
		}
		if len(found) == n || looks == most {
			return found, e.Place
		}
	}
	return found, until
}

// shelvedFrom yields what is on the shelf from a place on. What is not ready has
// another State.
func (s *Shard) shelvedFrom(place uint64) iter.Seq[*Entry] {
	return func(yield func(*Entry) bool) {
		for e := range s.shelf().Waiting(place) {
			e.State = Gone
			if !s.news(e) && e.Due <= s.clock {
				e.State = Ready
			}
			if !yield(e) {
				return
			}
		}
	}
}

// movable yields ready messages by place, of strict groups those that may go if
// the ones before them do.
func (s *Shard) movable() iter.Seq[*Entry] {
	if !s.config.StrictGroups {
		s.ready.head() // lets go of those that have moved
		if len(s.groups.byName) == 0 {
			return s.ready.sorted
		}
	}
	return func(yield func(*Entry) bool) {
		front := groupFront{eligible: s.groups.eligible}
		defer front.stop()
		if s.config.FairGroups {
			front.follow(&s.ready, -1)
			for _, g := range s.groups.byName {
				front.follow(&g.waiting, -1)
			}
		} else {
			front.add(0)
		}
		for len(front.heads) > 0 {
			if !yield(front.next()) {
				return
			}
		}
	}
}

// groupFront goes through the groups that may go in the order of their messages'
// places. Strict ones are in a heap; one is looked at when its parent was.
type groupFront struct {
	eligible []*group
	heads    []groupHead // a heap by place
}

// groupHead is the next message of a group, and how to get the one after.
type groupHead struct {
	entry *Entry
	index int // in eligible; -1: its children were added
	after func() (*Entry, bool)
	stop  func()
}

func (f *groupFront) Len() int           { return len(f.heads) }
func (f *groupFront) Less(i, j int) bool { return f.heads[i].entry.Place < f.heads[j].entry.Place }
func (f *groupFront) Swap(i, j int)      { f.heads[i], f.heads[j] = f.heads[j], f.heads[i] }
func (f *groupFront) Push(head any)      { f.heads = append(f.heads, head.(groupHead)) }

func (f *groupFront) Pop() any {
	last := len(f.heads) - 1
	head := f.heads[last]
	f.heads = f.heads[:last]
	return head
}

// add adds the group at an index of eligible, if there is one.
func (f *groupFront) add(index int) {
	if index >= len(f.eligible) {
		return
	}
	f.follow(&f.eligible[index].waiting, index)
}

// follow adds the messages of a group.
func (f *groupFront) follow(waiting *order, index int) {
	after, stop := iter.Pull(waiting.sorted)
	f.push(groupHead{index: index, after: after, stop: stop})
}

// push adds the next message of a group, unless it is delayed or there is none.
func (f *groupFront) push(head groupHead) {
	entry, ok := head.after()
	if !ok || entry.State != Ready {
		head.stop()
		return
	}
	head.entry = entry
	heap.Push(f, head)
}

// next takes the message with the lowest place.
func (f *groupFront) next() *Entry {
	head := heap.Pop(f).(groupHead)
	entry := head.entry
	if index := head.index; index >= 0 {
		f.add(2*index + 1)
		f.add(2*index + 2)
	}
	head.index = -1
	f.push(head)
	return entry
}

func (f *groupFront) stop() {
	for _, head := range f.heads {
		head.stop()
	}
}

// isOut reports whether a message of a strict group is out.
func (s *Shard) isOut(g *group) bool { return s.config.StrictGroups && g != nil && g.out > 0 }

// keptBack reports whether another message of its strict group keeps e back: one
// that is out, or one before it that is delayed.
func (s *Shard) keptBack(e *Entry) bool {
	if !s.config.StrictGroups {
		return false
	}
	g := s.groups.byName[e.groupName()]
	switch {
	case s.isOut(g):
		return true
	case s.stats.Delayed == 0:
		return false
	}
	var before iter.Seq[*Entry]
	switch {
	case s.window != nil:
		before = s.shelf().Group(e.groupName(), 0)
	case g != nil:
		before = g.waiting.sorted
	default:
		return false
	}
	for other := range before {
		if other.Place >= e.Place {
			break
		}
		if other.Due > s.clock && (s.window == nil || !s.window.isStaged(other)) {
			return true
		}
	}
	return false
}

// Mark names a message that Movable returned, also when the entry is used for
// another by now.
type Mark struct {
	entry      *Entry
	Seq, Place uint64
}

// MarkOf returns the mark of a message.
func MarkOf(e *Entry) Mark { return Mark{entry: e, Seq: e.Seq, Place: e.Place} }

// CanGo reports whether Withdraw would return a message.
func (s *Shard) CanGo(now Moment, mark Mark) bool {
	s.Advance(now)
	return s.marked(mark) != nil
}

// Withdraw takes a ready message out, and returns it; nil means that it cannot go
// any more. There is no effect: the owner writes down where it went, and then
// calls LetGroupGo.
func (s *Shard) Withdraw(now Moment, mark Mark) *Entry {
	s.Advance(now)
	e := s.marked(mark)
	if e == nil {
		return nil
	}
	gone := s.takeWaiting(e)
	s.leave(gone)
	return gone
}

// marked returns the message that a mark names, if it can go.
func (s *Shard) marked(mark Mark) *Entry {
	e := mark.entry
	if s.window != nil {
		if e = s.findShelved(mark.Seq); e == nil || e.Due > s.clock {
			return nil
		}
		e.State = Ready
	}
	if e.Seq != mark.Seq || e.Place != mark.Place || e.State != Ready || s.keptBack(e) {
		return nil
	}
	return e
}

// LetGroupGo lets a strict group go on without a message that was withdrawn.
func (s *Shard) LetGroupGo(gone *Entry) { s.leftGroup(gone, gone.Place) }

// StageArrival prepares a message that was withdrawn from another shard, with
// another extra. The caller has made sure, at the same moment, that there is Room.
func (s *Shard) StageArrival(now Moment, gone *Entry, extra *Extra) *Entry {
	e := s.newEntry()
	e.ID, e.Body, e.Extra, e.Size = gone.ID, gone.Body, extra, gone.Size
	e.EnqueuedAt, e.FirstReceivedAt = gone.EnqueuedAt, gone.FirstReceivedAt
	e.Due = now.At
	s.arrive(now, e)
	return e
}
