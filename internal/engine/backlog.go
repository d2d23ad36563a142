package engine

import (
	"iter"
	"slices"

	"github.com/mailboxmq/mailbox/driver"
)

// A Backlog stores all messages of a shard that holds only a window of them in
// memory. The shard reads from it; the owner writes to it what was staged and what
// effects report. Staged changes are in the backlog before they are published, and
// before each read the shard passes the latest effects to CatchUp. So a backlog may
// be ahead of the shard, by the staged changes, and is never behind.
type Backlog interface {
	// CatchUp records the effects since the last call.
	CatchUp(effects []Effect)
	Reader
}

// A Reader reads a backlog.
//
// Sequences yield entries with all fields set but State; the entries belong to the
// shard. A sequence ends early where the backlog cannot be read, and Err returns
// why.
type Reader interface {
	// Waiting yields the messages that are not dead by Place, the first at or
	// after from.
	Waiting(from uint64) iter.Seq[*Entry]
	// Level yields those of one priority by Place, the first at or after from. It is not
	// called with strict and fair groups.
	Level(priority uint8, from uint64) iter.Seq[*Entry]
	// Aged yields the same messages as Waiting by Seq, the first at or after from.
	Aged(from uint64) iter.Seq[*Entry]
	// Delayed yields the delayed messages with or without the mark Wall by Due and
	// Seq, the first at or after from.
	Delayed(wall bool, from DuePoint) iter.Seq[*Entry]
	// Ends yields the messages with a time to live that are not dead and not damaged,
	// by its end and Seq, the first at or after from.
	Ends(from DuePoint) iter.Seq[*Entry]
	// Group yields the messages of a group that are not dead by Place, the first at
	// or after from. It is called with strict groups, and with fair groups that
	// have a name.
	Group(name string, from uint64) iter.Seq[*Entry]
	// Groups calls visit with the first message that is not dead at or after a position
	// in the order of groups, then with the first at or after the position that visit
	// returns, and so on until visit returns false. end reports that there was no
	// further message. It is called with strict groups.
	Groups(from GroupPoint, visit func(e *Entry, at GroupPoint) (next GroupPoint, more bool)) (end bool)
	// Dead yields the dead letters by death, the first at or after from.
	Dead(from uint64) iter.Seq[*Entry]
	// FindDead returns the dead letter with this id, or nil.
	FindDead(id string) *Entry
	// Err returns why the backlog cannot be read, or nil. An error is permanent.
	Err() error
}

// GroupPoint is a position in the order of a backlog by group and Place. Group stands for
// the name of a group; which comes first is up to the backlog.
type GroupPoint struct {
	Group string
	Place uint64
}

// nextMessage and nextGroup return the positions after a message and after its group.
func (p GroupPoint) nextMessage() GroupPoint { return GroupPoint{p.Group, p.Place + 1} }
func (p GroupPoint) nextGroup() GroupPoint   { return GroupPoint{p.Group, allPlaces} }

// backlog returns the backlog after passing it the effects it does not have yet.
func (s *Shard) backlog() Backlog {
	if news := s.effects[s.caughtUp:]; len(news) > 0 {
		s.caughtUp = int32(len(s.effects))
		s.window.CatchUp(news)
		for i := range news {
			news[i].Recorded = true
		}
	}
	return s.window.Backlog
}

// published notes that the new place of a message is published. Nearly always it is
// the first in unpublished; a forwarded dead letter is published earlier than its turn.
func (w *window) published(e *Entry) {
	i, _ := slices.BinarySearch(w.unpublished, e.Place)
	if i == 0 {
		w.unpublished = w.unpublished[1:]
		return
	}
	w.unpublished = slices.Delete(w.unpublished, i, i+1)
}

// isStaged reports whether a message from the backlog has a place that is not
// published yet.
func (w *window) isStaged(e *Entry) bool {
	_, staged := slices.BinarySearch(w.unpublished, e.Place)
	return staged
}

// stopped reports whether reads end early because the backlog cannot be read.
func (w *window) stopped() bool { return w.Err() != nil }

// notWaiting reports whether a message from the backlog is in flight or staged in
// the shard; it enters the window when it is published or returns. A damaged message
// is dead-lettered here, and does not wait either.
func (s *Shard) notWaiting(e *Entry) bool {
	if s.inFlight.get(e.Seq) != nil {
		return true
	}
	if s.window.isStaged(e) {
		return true
	}
	if e.Is(Damaged | Misplaced) {
		s.deadLetterDamaged(e)
		return true
	}
	return false
}

// deadLetterDamaged dead-letters a message that the backlog cannot read completely. A
// message in the window was read before the damage and is left alone.
func (s *Shard) deadLetterDamaged(e *Entry) {
	w := s.window
	if s.heldWaiting(e.Seq) != nil {
		return
	}
	if e.Due > s.clockOf(e) || !e.duePoint().before(w.delaysOf(e).horizon) { // otherwise it fell due, and was in the window then
		s.stats.Delayed--
		w.reread = s.config.StrictGroups // it may have blocked a group, and which one is unknown
	} else {
		s.stats.Ready--
	}
	s.stageDeath(s.moment, e, driver.ReasonIntegrity)
	if e.Is(Damaged) {
		e.set(Leaving, false) // a receiver could not use it
	}
	e.extra().LastError = "what was stored is damaged"
	s.addDeadLetter(e)
}

// heldWaiting returns the waiting message with this Seq if it is in the window, or
// nil. It searches the whole window.
func (s *Shard) heldWaiting(seq uint64) *Entry {
	for e := range s.entries {
		if e.Seq == seq && e.Waits() {
			return e
		}
	}
	return nil
}

// intact returns e, or a copy of it from the window if the backlog cannot read it any
// more.
func (s *Shard) intact(e *Entry) *Entry {
	if e.Is(Damaged | Misplaced) {
		if held := s.heldWaiting(e.Seq); held != nil {
			copied := *held
			copied.group = nil
			return &copied
		}
	}
	return e
}
