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
		if e.State == Ready && !s.isBlocked(e) && wanted(e) {
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
	s.ready.head() // lets go of those that have moved
	if len(s.groups.byName) == 0 {
		return s.ready.sorted
	}
	return func(yield func(*Entry) bool) {
		var front groupFront
		defer front.stop()
		front.follow(&s.ready)
		if s.config.StrictGroups {
			for _, g := range s.groups.eligible {
				front.follow(&g.waiting)
			}
		} else {
			for _, g := range s.groups.byName {
				front.follow(&g.waiting)
			}
		}
		heap.Init(&front)
		for len(front) > 0 {
			if !yield(front.next()) {
				return
			}
		}
	}
}

// groupFront goes through groups in the order of their messages' places: a heap by
// place of the next message of each.
type groupFront []groupHead

// groupHead is the next message of a group, and how to get the one after. A group is
// not gone through before its first message has come.
type groupHead struct {
	entry   *Entry
	waiting *order
	after   func() (*Entry, bool)
	stop    func()
}

func (f groupFront) Len() int           { return len(f) }
func (f groupFront) Less(i, j int) bool { return f[i].entry.Place < f[j].entry.Place }
func (f groupFront) Swap(i, j int)      { f[i], f[j] = f[j], f[i] }
func (f *groupFront) Push(head any)     { *f = append(*f, head.(groupHead)) }

func (f *groupFront) Pop() any {
	last := len(*f) - 1
	head := (*f)[last]
	*f = (*f)[:last]
	return head
}

// follow adds the messages of a group. The heap has to be made afterwards.
func (f *groupFront) follow(waiting *order) {
	if head := waiting.head(); head != nil {
		*f = append(*f, groupHead{entry: head, waiting: waiting})
	}
}

// next takes the message with the lowest place.
func (f *groupFront) next() *Entry {
	head := heap.Pop(f).(groupHead)
	entry := head.entry
	if head.after == nil {
		head.after, head.stop = iter.Pull(head.waiting.sorted)
		head.after() // the first
	}
	var ok bool
	if head.entry, ok = head.after(); ok {
		heap.Push(f, head)
	} else {
		head.stop()
	}
	return entry
}

func (f *groupFront) stop() {
	for _, head := range *f {
		if head.stop != nil {
			head.stop()
		}
	}
}

// keptBack reports whether another message of its strict group keeps e back. With a
// shelf, it lets the horizon pass e, so that all blockers before it are known.
func (s *Shard) keptBack(e *Entry) bool {
	for s.config.StrictGroups && s.window != nil && s.window.horizon <= e.Place {
		if s.fillReady(); s.window.stopped() {
			return true
		}
	}
	return s.isBlocked(e)
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
