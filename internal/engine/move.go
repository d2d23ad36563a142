package engine

import (
	"container/heap"
	"iter"
)

// A message is transferred from one shard to another in steps, so that an owner with a
// disk can write its removal and its arrival in one piece:
//
//	Movable      finds messages that can move
//	Withdraw     takes one out of its shard
//	StageArrival prepares it in the other shard, which must have Room
//	             (the owner writes both)
//	PublishNow   makes it visible there
//	UnblockGroup unblocks the messages behind it here

// Tail returns the next place, which is beyond all messages.
func (s *Shard) Tail() uint64 { return s.nextSeq }

// maxLook is how many messages one call of Movable looks at without a backlog.
const maxLook = 1 << 16

// Movable returns up to n ready messages after the place last and before until for
// which wanted returns true, by place, and how far it has looked: until if there are no
// more. It changes nothing. Withdraw checks whether a message is still there and, with
// a backlog, whether it is blocked in its strict group.
func (s *Shard) Movable(now Moment, last, until uint64, n int, wanted func(*Entry) bool) (found []*Entry, looked uint64) {
	s.Advance(now)
	all, most := s.movable(0), maxLook
	if s.window != nil {
		all, most = s.backlogFrom(last+1), s.window.limits.Look
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

// backlogFrom yields the messages of the backlog from a place on. Only ready ones have
// State Ready.
func (s *Shard) backlogFrom(place uint64) iter.Seq[*Entry] {
	return func(yield func(*Entry) bool) {
		for e := range s.backlog().Waiting(place) {
			e.State = Gone
			if !s.notWaiting(e) && e.Due <= s.clockOf(e) {
				e.State = Ready
			}
			if !yield(e) {
				return
			}
		}
	}
}

// movable yields the ready messages after a place, by place; of strict groups, those that are
// blocked at most by messages yielded before.
func (s *Shard) movable(after uint64) iter.Seq[*Entry] {
	s.ready.head() // drops Gone entries at the head
	if len(s.groups.byName) == 0 && s.levels == nil {
		return func(yield func(*Entry) bool) { s.ready.sortedAfter(after, yield) }
	}
	return func(yield func(*Entry) bool) {
		var front groupFront
		defer front.stop()
		for _, ready := range s.readyOrders() {
			front.follow(ready, after)
		}
		for _, g := range s.groups.byName { // limits are for deliveries
			if head := g.waiting.head(); head != nil && head.Place < g.limit() {
				front.follow(&g.waiting, after)
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

// groupFront merges the messages of several orders by place: a heap of the next message
// of each.
type groupFront []groupHead

// groupHead is the next message of an order, and how to get the one after it. An order
// is sorted only once its first message was taken.
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

// follow adds the messages of an order that are after a place. heap.Init has to follow.
func (f *groupFront) follow(waiting *order, place uint64) {
	head := groupHead{entry: waiting.head(), waiting: waiting}
	if head.entry == nil {
		return
	}
	if head.entry.Place <= place {
		head.after, head.stop = iter.Pull(func(yield func(*Entry) bool) { waiting.sortedAfter(place, yield) })
		var ok bool
		if head.entry, ok = head.after(); !ok {
			head.stop()
			return
		}
	}
	*f = append(*f, head)
}

// next takes the message with the lowest place.
func (f *groupFront) next() *Entry {
	head := heap.Pop(f).(groupHead)
	entry := head.entry
	if head.after == nil {
		head.after, head.stop = iter.Pull(head.waiting.sorted)
		head.after() // skips the first
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

// keptBack reports whether e is blocked in its strict group. With a backlog, it moves
// the horizon past e first, so that all blockers before e are known.
func (s *Shard) keptBack(e *Entry) bool {
	for s.config.StrictGroups && s.window != nil && s.window.horizon <= e.Place {
		if s.refillReady(0); s.window.stopped() {
			return true
		}
	}
	return s.isBlocked(e)
}

// Mark identifies a message that Movable returned, even if the entry is reused for
// another message.
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

// Withdraw takes a ready message out of the shard and returns it; nil means that it can
// no longer move. There is no effect: the owner writes the transfer and then calls
// UnblockGroup.
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

// marked returns the message of a mark if it can move, or nil.
func (s *Shard) marked(mark Mark) *Entry {
	e := mark.entry
	if s.window != nil {
		if e = s.findInBacklog(mark.Seq); e == nil || e.Due > s.clockOf(e) {
			return nil
		}
		e.State = Ready
	}
	if e.Seq != mark.Seq || e.Place != mark.Place || e.State != Ready || s.keptBack(e) {
		return nil
	}
	return e
}

// UnblockGroup updates the group of a withdrawn message.
func (s *Shard) UnblockGroup(gone *Entry) { s.leftGroup(gone, gone.Place) }

// StageArrival prepares a message that was withdrawn from another shard, with a new
// extra. The caller has called Room with the same now.
func (s *Shard) StageArrival(now Moment, gone *Entry, extra *Extra) *Entry {
	e := s.newEntry()
	e.Content, e.Size = gone.Content, gone.Size
	e.Extra = extra
	e.EnqueuedAt, e.FirstReceivedAt = gone.EnqueuedAt, gone.FirstReceivedAt
	e.Due = now.At
	s.arrive(now, e)
	return e
}
