package engine

import (
	"iter"
	"math/bits"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// Messages have a priority, and are ready in one order for each. A receive compares the heads
// of these orders: the head with the highest level goes next, and of several the one with the
// lowest place. The level of a message is its priority, and rises while it is ready.
//
// With a backlog each order has its own horizon, and a receive that has not found the head of
// an order yet delivers nothing and goes on reading; see Searching.
//
// A shard that has never had a message with a priority above 0 has only Shard.ready, and pays
// for the others with a comparison with nil.

// priorities is how many there are.
const priorities = driver.MaxPriority + 1

// levels are the ready messages with priorities above 0, and the ranks of the heads of all ten
// orders. A rank is computed again when its order was changed, and all ranks are when the level
// of a head rises. So a receive compares ten numbers, and looks at one or two messages.
type levels struct {
	ready    [priorities - 1]order
	horizons [priorities - 1]uint64 // with a backlog; see window.horizon

	ranks [priorities]uint64 // of the heads; the lowest goes next
	stale uint16             // the priorities whose rank is not known, as bits
	rise  Instant            // no level of a head rises before
}

// levelShift is where a rank has the level; below is the place, which has 48 bits in receipts.
const levelShift = 60

// staleRanks are all ranks.
const staleRanks = 1<<priorities - 1

// noRank is the rank of an empty order.
const noRank = ^uint64(0)

// addLevels makes room for messages with priorities above 0; the window begins at a horizon.
func (s *Shard) addLevels(horizon uint64) {
	s.levels = &levels{stale: staleRanks, rise: never}
	for i := range s.levels.horizons {
		s.levels.horizons[i] = horizon
	}
}

// readyFor returns the order of the ready messages with a priority, for a change of it.
func (s *Shard) readyFor(priority uint8) *order {
	if s.levels == nil {
		if priority == 0 {
			return &s.ready
		}
		s.addLevels(allPlaces) // see horizonOf
	}
	s.levels.stale |= 1 << priority
	return s.orderOf(priority)
}

// orderOf returns the order of the ready messages with a priority, in a shard with levels.
func (s *Shard) orderOf(priority uint8) *order {
	if priority == 0 {
		return &s.ready
	}
	return &s.levels.ready[priority-1]
}

// horizonOf returns the horizon of the ready messages with a priority.
func (s *Shard) horizonOf(priority uint8) *uint64 {
	if priority == 0 {
		return &s.window.horizon
	}
	if s.levels == nil {
		s.addLevels(allPlaces) // every message in the backlog that has a priority has been offered when it became ready
	}
	return &s.levels.horizons[priority-1]
}

// readyOrders yields the orders of ready messages that exist, by priority.
func (s *Shard) readyOrders() iter.Seq2[uint8, *order] {
	return func(yield func(uint8, *order) bool) {
		if !yield(0, &s.ready) || s.levels == nil {
			return
		}
		for i := range s.levels.ready {
			if !yield(uint8(i+1), &s.levels.ready[i]) {
				return
			}
		}
	}
}

// levelHead returns the next message to deliver of a shard with levels, or nil.
func (s *Shard) levelHead() *Entry {
	l := s.levels
	if s.clock >= l.rise {
		l.stale, l.rise = staleRanks, never
	}
	for l.stale != 0 {
		priority := uint8(bits.TrailingZeros16(l.stale))
		if !s.rank(priority) {
			return nil // it may be next; see Searching
		}
		l.stale &^= 1 << priority
	}
	first := 0
	for i, rank := range l.ranks {
		if rank < l.ranks[first] {
			first = i
		}
	}
	return s.orderOf(uint8(first)).head()
}

// rank computes the rank of the head of an order, and reports whether that is known.
func (s *Shard) rank(priority uint8) bool {
	l, ready := s.levels, s.orderOf(priority)
	e := ready.head()
	if e == nil && s.window != nil && *s.horizonOf(priority) != allPlaces {
		s.refillReady(priority)
		e = ready.head()
		if e == nil && *s.horizonOf(priority) != allPlaces && !s.window.stopped() {
			return false
		}
	}
	if e == nil {
		l.ranks[priority] = noRank
		return true
	}
	s.fetchLevel(ready)
	level := s.level(e)
	l.ranks[priority] = rankOf(level, e.Place)
	if aging := s.config.PriorityAging; aging > 0 && level < driver.MaxPriority {
		l.rise = min(l.rise, s.clock.Add(aging-s.waited(e)%aging))
	}
	return true
}

// rankOf returns the rank of a message at a place: a higher level comes first, then a lower place.
func rankOf(level int, place uint64) uint64 {
	return uint64(driver.MaxPriority-level)<<levelShift | place
}

// unknownLevel returns a priority whose first ready message is not known, or -1.
func (s *Shard) unknownLevel() int {
	for priority := range uint8(priorities) {
		if *s.horizonOf(priority) != allPlaces && s.orderOf(priority).head() == nil {
			return int(priority)
		}
	}
	return -1
}

// level returns the level of a ready message.
func (s *Shard) level(e *Entry) int {
	level, aging := int(e.Priority), s.config.PriorityAging
	waited := s.waited(e)
	switch {
	case aging == 0 || waited < aging || level == driver.MaxPriority:
		return level
	case waited/time.Duration(driver.MaxPriority-level) >= aging:
		return driver.MaxPriority
	}
	return level + int(waited/aging)
}

// waited returns the age of a ready message for its level.
func (s *Shard) waited(e *Entry) time.Duration {
	return time.Duration(s.clock-e.Born) - e.restart.after()
}

// fullOf reports whether the window has enough ready messages of an order. With levels, none
// of them takes the memory of the others.
func (s *Shard) fullOf(ready *order) bool {
	return s.window.full() && (s.levels == nil || ready.size-ready.gone >= s.levelLimits().Messages)
}

// levelLimits returns the limits of one order of ready messages.
func (s *Shard) levelLimits() Limits {
	limits := s.window.limits
	if s.levels != nil {
		limits.Messages, limits.Bytes = max(limits.Messages/priorities, 1), max(limits.Bytes/priorities, 1)
	}
	return limits
}

// waitingFrom yields the messages of the backlog that Receive takes from, the first at or after
// a place. With groups that is all messages, and otherwise those of a priority.
func (s *Shard) waitingFrom(priority uint8, place uint64) iter.Seq[*Entry] {
	if s.config.FairGroups || s.config.StrictGroups {
		return s.backlog().Waiting(place)
	}
	return s.backlog().Level(priority, place)
}

// Prioritize changes the priority of a message that Find or Search has found waiting. It keeps
// its place and its age.
func (s *Shard) Prioritize(now Moment, e *Entry, priority uint8) {
	was := *e
	moved := s.takeWaiting(e)
	moved.group = nil
	moved.Priority = priority
	moved.set(unaged, s.holdsAges())
	if s.window == nil && moved.HasReturned() {
		s.returned.add(moved)
	}
	if s.window != nil {
		s.window.was = &was
	}
	s.wait(moved, Prioritized)
	s.trackAge(moved)
	s.Advance(now)
}

// restart is how long after Born the age of a message started again for its level, in
// microseconds: 48 bits, because that is what is left in an entry.
type restart struct {
	high uint16
	low  uint32
}

func (r restart) after() time.Duration {
	return time.Duration(uint64(r.high)<<32|uint64(r.low)) * time.Microsecond
}

// RestartedAfter returns how long after Born the age of e started again for its level.
func (e *Entry) RestartedAfter() time.Duration { return e.restart.after() }

// SetRestartedAfter sets what RestartedAfter returns, for a backlog that reads e.
func (e *Entry) SetRestartedAfter(d time.Duration) {
	micros := uint64(min(max(d.Microseconds(), 0), 1<<48-1))
	e.restart = restart{high: uint16(micros >> 32), low: uint32(micros)}
}

// restartAge lets the age of a message that gets another place begin when it is due.
func (e *Entry) restartAge() { e.SetRestartedAfter(time.Duration(e.Due - e.Born)) }
