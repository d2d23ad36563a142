package engine

import (
	"container/heap"
	"time"
)

// A message can have a time to live. It ends at a wall time that is fixed when the message
// is sent, redriven or rescheduled. When the wall clock reaches it and the message waits, ready or
// delayed, the message expires. One that is in flight may be settled; it expires when it
// comes back.
//
// Without a backlog, Shard.alarms.ends is a heap of the waiting messages that have a time to live.
// With one, window.ends is a point in the order of the backlog by end: no waiting message is
// before it.
//
// While the dead letters are full, a message whose time is over is not delivered either: the
// first receive that meets it delays it, and it dies as soon as there is room.

// Life is the time to live of a message.
type Life struct {
	// TTL is how long it lives from when it is due.
	TTL time.Duration
	// Ends is when that is over, a wall time.
	Ends  int64
	index int32 // in Shard.alarms.ends
}

// roomWait is how long a message whose time to live is over is delayed while the dead
// letters are full. It dies earlier if there is room earlier.
const roomWait = 366 * 24 * time.Hour

// life returns the time to live of e, or nil.
func (e *Entry) life() *Life {
	if e.Extra == nil {
		return nil
	}
	return e.Extra.Life
}

// startLife sets the end of the life of a message that is staged to arrive, or rescheduled. Due
// is not a wall time yet.
func (s *Shard) startLife(now Moment, e *Entry) {
	if l := e.life(); l != nil {
		e.Extra.Life = &Life{TTL: l.TTL, Ends: now.Wall + int64(max(e.Due-now.At, 0)) + int64(l.TTL)}
	}
}

// endPoint returns the point of a message with a time to live in the order by end.
func (e *Entry) endPoint() DuePoint { return DuePoint{Due: Instant(e.Extra.Life.Ends), Seq: e.Seq} }

// outlived reports whether the time to live of e is over.
func outlived(at Moment, e *Entry) bool {
	l := e.life()
	return l != nil && l.Ends <= at.Wall
}

// followLife notes when a message with a time to live that begins to wait ends.
func (s *Shard) followLife(e *Entry) {
	if s.window == nil {
		heap.Push(&s.setAlarms().ends, e)
	} else if p := e.endPoint(); p.before(s.window.ends) {
		s.window.ends = p
	}
}

// leaveLife takes a message with a time to live that waited out of the heap.
func (s *Shard) leaveLife(e *Entry) {
	if s.window == nil {
		heap.Remove(&s.alarms.ends, int(e.Extra.Life.index))
	}
}

// firstEnd returns a lower bound for the first end of a waiting message, a wall time; ok is
// false if there is none.
func (s *Shard) firstEnd() (ends Instant, ok bool) {
	if s.window != nil {
		return s.window.ends.Due, s.window.ends != allTimes
	}
	if s.alarms == nil || len(s.alarms.ends) == 0 {
		return 0, false
	}
	return s.alarms.ends[0].endPoint().Due, true
}

// nextEnd returns the end of the next life if it is before the event at the time at, and
// that event otherwise.
func (s *Shard) nextEnd(at Instant, what event) (Instant, event) {
	if ends, ok := s.firstEnd(); ok {
		if due := ends - s.ahead(); due < at && s.mayExpire() {
			return due, lifeEvent
		}
	}
	return at, what
}

// endLife expires the message whose life ended first, if it is over. It may not be, because
// firstEnd is only a lower bound.
func (s *Shard) endLife(at Moment) {
	if s.window == nil {
		s.expireWaiting(at, s.alarms.ends[0])
		return
	}
	w := s.window
	for e := range s.backlog().Ends(w.ends) {
		point := e.endPoint()
		if point.Due > w.ends.Due { // an event of its own, which others may come before
			w.ends = point
			return
		}
		w.ends = DuePoint{Due: point.Due, Seq: point.Seq + 1}
		if !s.notWaiting(e) {
			s.expireWaiting(at, e)
			return // the backlog has not seen it yet
		}
	}
	w.ends = allTimes
}

// ends is a heap of waiting messages by the end of their life, then by Seq.
type ends []*Entry

func (h ends) Len() int           { return len(h) }
func (h ends) Less(i, j int) bool { return h[i].endPoint().before(h[j].endPoint()) }

func (h ends) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].Extra.Life.index, h[j].Extra.Life.index = int32(i), int32(j)
}

func (h *ends) Push(e any) {
	added := e.(*Entry)
	added.Extra.Life.index = int32(len(*h))
	*h = append(*h, added)
}

func (h *ends) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return e
}
