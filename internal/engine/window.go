package engine

import (
	"cmp"
	"slices"
)

// Limits bound the window of a shard with a backlog.
type Limits struct {
	// Messages and Bytes are about how many messages of each state (ready, delayed,
	// dead) are held, and their total size.
	Messages int
	Bytes    int
	// Room is for more ready messages; nil means that there is none.
	Room Room
	// Look is how many messages a call reads to find one that it can deliver; see
	// Searching.
	Look int
	// Pass is how many messages of known strict groups a call reads in a row before it
	// lists the groups instead; see window_groups.go.
	Pass int
	// Groups is how many groups are known at a time; 0 means no limit. See
	// window_groups.go.
	Groups int
}

// enough reports whether n messages with this many bytes fill the window.
func (l Limits) enough(n, bytes int) bool {
	return n >= l.Messages || (bytes >= l.Bytes && n > 0)
}

// tooMany reports whether they are so many that some must be evicted.
func (l Limits) tooMany(n, bytes int) bool {
	return n > 2*l.Messages || (bytes > 2*l.Bytes && n > 1)
}

// prefix returns how many of the first entries fill the window.
func (l Limits) prefix(entries []*Entry) (n int) {
	bytes := 0
	for n < len(entries) && !l.enough(n, bytes) {
		bytes += int(entries[n].Size)
		n++
	}
	return n
}

// window is the part of a backlog that a shard holds in memory: every ready message
// whose place is before horizon, every delayed one whose due point is before
// the horizon of delays or alarms, and every dead letter whose place is before deadHorizon. Others are
// only counted. Messages of groups are held by group; see window_groups.go.
type window struct {
	Backlog
	limits Limits

	horizon    uint64
	heldReady  int
	readyBytes int
	taken      int64 // of limits.Room

	delays delays
	alarms delays   // of messages that wait for the wall clock; see wall.go
	ends   DuePoint // no life of a waiting message ends before; see ttl.go

	deadHorizon uint64

	oldest agePoint
	backs  []agePoint // ready messages that oldest has passed; see retention.go

	unpublished []uint64 // places of staged messages, ascending

	was *Entry // the message that is being edited, before

	reread  bool // groups must be read again from the first place on
	listing      // of strict groups
	// strayed: Shard.ready may hold messages of unknown fair groups.
	strayed bool
	looks   int // how many more messages this call may read to find a quieter group
}

// delays are the delayed messages in a window.
type delays struct {
	horizon     DuePoint
	held, bytes int
}

// allPlaces and allTimes are beyond all messages: as horizons they mean that every
// message is held.
const allPlaces = ^uint64(0)

var allTimes = DuePoint{Due: never, Seq: ^uint64(0)}

// SetBacklog makes the shard hold a limited number of messages and read the others
// from backlog. It must be the first call.
func (s *Shard) SetBacklog(backlog Backlog, limits Limits) {
	s.window = &window{Backlog: backlog, limits: limits}
	s.window.empty()
	s.window.deadHorizon = allPlaces
}

// empty empties the window, except for dead letters.
func (w *window) empty() {
	w.emptyReady(allPlaces)
	w.delays, w.alarms = delays{horizon: allTimes}, delays{horizon: allTimes}
	w.ends = allTimes
	w.oldest, w.backs = noAges, nil
	w.listing = listing{}
}

// admits reports whether a message that becomes ready enters the window.
func (s *Shard) admits(e *Entry) bool {
	held, horizon := s.readyFor(e.Priority), s.horizonOf(e.Priority)
	if *horizon == allPlaces && s.fullOf(held) && held.isBeyond(e) {
		*horizon = e.Place
	}
	return e.Place < *horizon
}

func (s *Shard) holdReady(e *Entry) {
	s.window.addReady(e)
	s.readyFor(e.Priority).push(e)
}

// refillReady loads the next ready messages of a priority from the backlog into the
// window, and updates the groups it met.
func (s *Shard) refillReady(priority uint8) {
	if *s.horizonOf(priority) == allPlaces {
		return
	}
	s.regroupAll(s.advanceHorizon(priority))
}

// advanceHorizon reads the next messages of a priority from the backlog and moves the horizon past
// them. It returns the groups that became known. Their messages are read afterwards,
// because not all of them are before the horizon, and so that a damaged one is not
// met twice.
func (s *Shard) advanceHorizon(priority uint8) (met []*group) {
	w, ready, horizon := s.window, s.readyFor(priority), s.horizonOf(priority)
	looked, listed := 0, s.listsGroups()
	for e := range s.waitingFrom(priority, *horizon) {
		*horizon = e.Place + 1
		isNews := s.notWaiting(e)
		switch {
		case isNews:
		case e.Due > s.clockOf(e):
			if s.blocksWhileDelayed(e) {
				s.groups.get(e.groupName()).block(e.Place)
			}
		default:
			g, isNew := s.meetGroup(e)
			switch {
			case isNew:
				w.passed = 0
				met = append(met, g)
			case g != nil:
				w.passed++
			default:
				e.State = Ready
				e.timerIndex = -1
				s.holdReady(e)
			}
		}
		looked++
		w.looks--
		if looked >= w.limits.Look || s.listsGroups() != listed || (s.fullOf(ready) && ready.head() != nil) {
			return met
		}
	}
	if !w.stopped() {
		*horizon = allPlaces
	}
	return met
}

// trimReady evicts the last ready messages when far more are held than the limits
// say, which happens when many return to early places.
func (s *Shard) trimReady() {
	w := s.window
	if w.limits.tooMany(w.heldReady, w.readyBytes) && w.taken >= 2*w.limits.freeRoom() {
		s.evictReady()
	}
}

// evictReady evicts the ready messages that are beyond the limits.
func (s *Shard) evictReady() {
	w := s.window
	if s.config.FairGroups || s.config.StrictGroups {
		s.evictGroups()
	}
	limits := s.levelLimits()
	for priority := range s.readyOrders() {
		horizon := s.horizonOf(priority)
		for _, e := range s.readyFor(priority).truncate(limits.prefix) {
			*horizon = min(*horizon, e.Place)
			w.dropReady(e)
		}
	}
}

// addReady counts a ready message that enters the window, and dropReady one that
// leaves it.
func (w *window) addReady(e *Entry) {
	w.heldReady++
	w.readyBytes += int(e.Size)
	w.balance()
}

func (w *window) dropReady(e *Entry) {
	w.heldReady--
	w.readyBytes -= int(e.Size)
	w.balance()
}

// emptyReady forgets all ready messages of the window, which begins at a horizon then.
func (w *window) emptyReady(horizon uint64) {
	w.horizon, w.heldReady, w.readyBytes = horizon, 0, 0
	w.balance()
}

// full reports whether the window has enough ready messages.
func (w *window) full() bool {
	return w.limits.enough(w.heldReady, w.readyBytes) && w.taken >= w.limits.freeRoom()
}

// Searching reports whether the next Receive goes on reading where the last one
// stopped. One call reads a limited number of messages, so Receive may return none,
// or fewer than it could, although messages are ready.
func (s *Shard) Searching() bool {
	w := s.window
	if w == nil || s.stats.Ready == 0 || s.stats.Paused || w.stopped() {
		return false
	}
	if s.levels != nil {
		return s.unknownLevel() >= 0
	}
	if w.knowsAll() {
		return false
	}
	return s.ready.head() == nil && s.groups.eligible.len() == 0
}

// DuePoint is a point in the order of delayed messages.
type DuePoint struct {
	Due Instant
	Seq uint64
}

func (p DuePoint) before(q DuePoint) bool {
	return p.Due < q.Due || (p.Due == q.Due && p.Seq < q.Seq)
}

func (e *Entry) duePoint() DuePoint { return DuePoint{Due: e.Due, Seq: e.Seq} }

// refillDelayed loads the next delayed messages of one kind from the backlog, and at
// least all that are due together with the first.
func (s *Shard) refillDelayed(d *delays, wall bool) {
	first := d.horizon.Due
	for e := range s.backlog().Delayed(wall, d.horizon) {
		if e.Due > first && s.window.limits.enough(d.held, d.bytes) {
			d.horizon = e.duePoint()
			return
		}
		if !s.notWaiting(e) {
			s.holdDelayed(e)
		}
	}
	d.horizon = allTimes
}

// holdDelayed puts a delayed message among the timers.
func (s *Shard) holdDelayed(e *Entry) {
	e.State = Delayed
	e.group = nil
	s.timersOf(e).push(e)
	d := s.window.delaysOf(e)
	d.held++
	d.bytes += int(e.Size)
}

// findDelayed returns the entry of a delayed message in the window, or nil.
func (s *Shard) findDelayed(e *Entry) *Entry {
	if !e.duePoint().before(s.window.delaysOf(e).horizon) {
		return nil
	}
	for held := range s.timersOf(e).all {
		if held.Seq == e.Seq && held.State == Delayed {
			return held
		}
	}
	return nil
}

// trimDelayed evicts the delayed messages of one kind that are due last when far more
// are held than the limits say.
func (s *Shard) trimDelayed(d *delays, held *timers) {
	if !s.window.limits.tooMany(d.held, d.bytes) {
		return
	}
	var delayed []*Entry
	var kept timers
	for e := range held.all {
		if e.State == Delayed {
			delayed = append(delayed, e)
		} else {
			kept.push(e)
		}
	}
	slices.SortFunc(delayed, func(a, b *Entry) int {
		return cmp.Or(cmp.Compare(a.Due, b.Due), cmp.Compare(a.Seq, b.Seq))
	})
	keep := s.window.limits.prefix(delayed)
	d.held, d.bytes = keep, 0
	for _, e := range delayed[:keep] {
		kept.push(e)
		d.bytes += int(e.Size)
	}
	*held = kept
	if keep < len(delayed) {
		d.horizon = delayed[keep].duePoint()
	}
}

// admitsDead reports whether a new dead letter enters the window.
func (w *window) admitsDead(e *Entry, held *deadLetters) bool {
	byDeath := &held.byDeath
	full := w.limits.enough(byDeath.size, held.bytes)
	if full && w.deadHorizon == allPlaces && byDeath.isBeyond(e) {
		w.deadHorizon = e.Place
	}
	return e.Place < w.deadHorizon
}

// refillDead loads the next dead letters from the backlog. Staged ones enter the
// window when they are published.
func (s *Shard) refillDead() {
	w := s.window
	if w.deadHorizon == allPlaces {
		return
	}
	for e := range s.backlog().Dead(w.deadHorizon) {
		w.deadHorizon = e.Place + 1
		if s.inFlight.get(e.Seq) != nil {
			continue
		}
		e.State = Dead
		if e.Is(Damaged) && e.Born == 0 { // when it died is not known
			e.Born = s.clock
		}
		s.holdDead(e)
		if w.limits.enough(s.dead.byDeath.size, s.dead.bytes) {
			return
		}
	}
	if !w.stopped() {
		w.deadHorizon = allPlaces
	}
}

// findDeadInBacklog returns a dead letter that is not in the window, or nil.
func (s *Shard) findDeadInBacklog(id string) *Entry {
	if s.window.deadHorizon == allPlaces {
		return nil
	}
	e := s.backlog().FindDead(id)
	if e == nil || s.inFlight.get(e.Seq) != nil {
		return nil
	}
	e.State = Dead
	return e
}
