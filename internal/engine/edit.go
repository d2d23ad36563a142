package engine

import "time"

// Find returns the message with this id that is not dead, and its state, or nil. Without a
// backlog it looks at all messages. With one it relies on ids that grow with Seq, as those
// of messages do that were sent to this shard; of others it finds only those in flight, and
// Search finds all. The entry is for Remove and Reschedule, before any other call.
func (s *Shard) Find(now Moment, id string) (*Entry, State) {
	s.Advance(now)
	for _, e := range s.inFlight.slots {
		if e != nil && e.ID == id {
			return e, InFlight
		}
	}
	if s.window != nil {
		return s.found(s.searchBacklog(id))
	}
	for e := range s.entries {
		if e.ID == id {
			return e, e.State
		}
	}
	return nil, Gone
}

// searchLook and searchBytes bound how many messages one call of Search reads, and about how
// many bytes of bodies: the owner holds a lock meanwhile.
const (
	searchLook  = 128
	searchBytes = 256 << 10
)

// Search is Find for a shard with a backlog, whatever the ids are. It looks at a limited
// number of messages, the first at or after Seq from, and returns where to go on, or 0 if it
// has looked at all.
func (s *Shard) Search(now Moment, id string, from uint64) (e *Entry, state State, next uint64) {
	s.Advance(now)
	looked, bytes := 0, 0
	for e := range s.backlog().Aged(from) {
		if looked == min(s.window.limits.Look, searchLook) || bytes >= searchBytes {
			return nil, Gone, e.Seq
		}
		looked++
		bytes += int(e.Size)
		switch e = s.intact(e); {
		case e.ID != id:
		case s.inFlight.get(e.Seq) != nil:
			return e, InFlight, 0
		case !s.notWaiting(e):
			e, state = s.found(e)
			return e, state, 0
		}
	}
	return nil, Gone, 0
}

// found returns a waiting message of the backlog with its state.
func (s *Shard) found(e *Entry) (*Entry, State) {
	switch {
	case e == nil:
		return nil, Gone
	case s.isDelayed(e):
		e.State = Delayed
	default:
		e.State = Ready
	}
	return e, e.State
}

// searchBacklog searches a waiting message by halving the range of Seq.
func (s *Shard) searchBacklog(id string) *Entry {
	from, to := uint64(1), s.nextSeq
	for from < to {
		middle := from + (to-from)/2
		var next *Entry
		for e := range s.backlog().Aged(middle) {
			next = s.intact(e)
			break
		}
		switch {
		case next == nil || next.Seq >= to || next.ID > id:
			to = middle
		case next.ID < id:
			from = next.Seq + 1
		case s.notWaiting(next):
			return nil
		default:
			return next
		}
	}
	return nil
}

// Remove removes a message that Find or Search has found waiting.
func (s *Shard) Remove(e *Entry) {
	gone := s.takeWaiting(e)
	s.leave(gone)
	s.effect(Withdrawn, gone)
	s.leftGroup(gone, gone.Place)
}

// Reschedule makes a message that Find or Search has found waiting wait until a due time, a
// wall time; a time that is past makes it ready. It keeps its place, and its age and its time
// to live count from then on.
func (s *Shard) Reschedule(now Moment, e *Entry, due int64) {
	s.rewait(now, e, now.At.Add(max(time.Duration(due-now.Wall), 0)), Rescheduled, func(e *Entry) {
		extra := Extra{}
		if e.Extra != nil {
			extra = *e.Extra
		}
		extra.DeliverAt = 0
		if due > now.Wall {
			extra.DeliverAt = due
		}
		e.Extra = &extra
	})
}

// rewait takes a waiting message out of its order, changes it, and lets it wait until it is due,
// at its place. change sets an Extra of its own.
func (s *Shard) rewait(now Moment, e *Entry, due Instant, how EffectKind, change func(*Entry)) {
	was := *e
	moved := s.takeWaiting(e)
	s.inFlight.add(moved) // while its group is updated, the backlog must not find it as it was
	s.leftGroup(moved, moved.Place)
	s.inFlight.remove(moved)
	change(moved)
	moved.group = nil
	moved.Due = due
	moved.Born, moved.restart = max(now.At, due), restart{}
	s.startLife(now, moved)
	moved.Left = 0
	moved.set(Wall, false)
	moved.set(Timed, moved.Due > now.At)
	moved.set(Late, true)
	moved.set(unaged, s.holdsAges())
	s.followWall(now, moved)
	if s.window == nil && moved.HasReturned() {
		s.returned.add(moved)
	}
	if s.window != nil {
		s.window.was = &was
	}
	s.wait(moved, how)
	s.trackAge(moved)
	s.Advance(now)
}
