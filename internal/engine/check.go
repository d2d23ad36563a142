package engine

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/mailboxmq/mailbox/driver"
)

// Check verifies every structural invariant and returns an error for the first that
// does not hold. It reads every message: for tests and offline tools.
func (s *Shard) Check() error {
	var counted driver.Stats
	size := 0
	for e := range s.entries {
		size += int(e.Size)
		switch e.State {
		case Ready:
			counted.Ready++
		case Delayed:
			counted.Delayed++
		case InFlight:
			counted.InFlight++
			if s.inFlight.get(e.Seq) != e {
				return fmt.Errorf("engine: entry %d is in flight but has no lease", e.Seq)
			}
		case Gone, Dead, Staged:
			return fmt.Errorf("engine: entry %d is in an order in state %d", e.Seq, e.State)
		}
		if e.Seq >= s.nextSeq || e.Place >= s.nextSeq {
			return fmt.Errorf("engine: entry %d at place %d is beyond %d", e.Seq, e.Place, s.nextSeq)
		}
		if s.tracksAge() && e.State == Ready && e.Is(unaged) && s.window == nil {
			return fmt.Errorf("engine: ready entry %d is not in the order by age", e.Seq)
		}
	}
	for e := range s.dead.byDeath.all {
		counted.Dead++
		if s.dead.byID[e.ID] != e {
			return fmt.Errorf("engine: dead letter %s is not found by its id", e.ID)
		}
	}
	for _, e := range s.inFlight.slots {
		if e != nil && e.State == Staged {
			counted.InFlight++ // it has no timer, but counts as in flight
			size += int(e.Size)
		}
	}
	if s.window != nil {
		if err := s.checkBacklog(&counted); err != nil {
			return err
		}
		size = s.bytes
	}
	if size != s.bytes {
		return fmt.Errorf("engine: bodies have %d bytes, counted %d", size, s.bytes)
	}
	counted.Paused = s.stats.Paused
	if counted != s.stats {
		return fmt.Errorf("engine: found %+v, counted %+v", counted, s.stats)
	}
	if err := s.checkReturned(); err != nil {
		return err
	}
	if int(s.inFlight.count) != s.stats.InFlight {
		return fmt.Errorf("engine: %d leases for %d messages in flight", s.inFlight.count, s.stats.InFlight)
	}
	if err := s.checkTimers(); err != nil {
		return err
	}
	if err := s.checkLives(); err != nil {
		return err
	}
	if err := cmp.Or(s.checkLevels(), s.checkHolders()); err != nil {
		return err
	}
	if err := checkOrder("ages", &s.ages); err != nil {
		return err
	}
	return s.checkGroups()
}

// checkLevels checks that every ready message is in the order of its priority, and that the
// ranks of the heads are right.
func (s *Shard) checkLevels() error {
	for priority, ready := range s.readyOrders() {
		if err := checkOrder("ready", ready); err != nil {
			return err
		}
		for e := range ready.all {
			if e.Priority != priority {
				return fmt.Errorf("engine: entry %d of priority %d is among those of %d", e.Seq, e.Priority, priority)
			}
		}
		if l := s.levels; l != nil && l.stale>>priority&1 == 0 && s.clock < l.rise {
			rank := uint64(noRank)
			if e := ready.head(); e != nil {
				rank = rankOf(s.level(e), e.Place)
			}
			if l.ranks[priority] != rank {
				return fmt.Errorf("engine: the head of priority %d has rank %x, and %x is noted", priority, rank, l.ranks[priority])
			}
		}
	}
	return nil
}

// checkReturned checks that every message that waits after a delivery is in returned.
func (s *Shard) checkReturned() error {
	found := 0
	for e := range s.entries {
		if s.window != nil || !e.Waits() || !e.HasReturned() {
			continue
		}
		found++
		if s.returned.get(e.Seq) != e {
			return fmt.Errorf("engine: entry %d waits after a delivery but is not in returned", e.Seq)
		}
	}
	if found != int(s.returned.count) {
		return fmt.Errorf("engine: %d messages wait after a delivery, counted %d", found, s.returned.count)
	}
	return nil
}

func (s *Shard) checkTimers() error {
	staged := 0
	for _, e := range s.inFlight.slots {
		if e != nil && e.State == Staged {
			staged++
		}
	}
	delayed := s.stats.Delayed
	if w := s.window; w != nil {
		delayed = w.delays.held + w.alarms.held
	}
	var due timers
	if s.alarms != nil {
		due = s.alarms.due
	}
	if s.timers.len()+due.len() != delayed+s.stats.InFlight-staged {
		return fmt.Errorf("engine: %d timers and %d alarms for %+v", s.timers.len(), due.len(), s.stats)
	}
	return cmp.Or(s.timers.check(false), due.check(true))
}

// checkLives checks that the ends of all waiting messages with a time to live are followed.
func (s *Shard) checkLives() error {
	lives := 0
	for _, state := range []State{Ready, Delayed} {
		for e := range s.InState(state) {
			l := e.life()
			switch {
			case l == nil:
			case s.window != nil && e.endPoint().before(s.window.ends):
				return fmt.Errorf("engine: the life of message %d ends before %v", e.Seq, s.window.ends)
			case s.window == nil && s.alarms.ends[l.index] != e:
				return fmt.Errorf("engine: message %d is not where its life says", e.Seq)
			default:
				lives++
			}
		}
	}
	if s.window == nil && s.alarms != nil && len(s.alarms.ends) != lives {
		return fmt.Errorf("engine: %d messages have a time to live, %d are followed", lives, len(s.alarms.ends))
	}
	return nil
}

func (t *timers) check(wall bool) error {
	err := t.young.check(wall)
	if t.old != nil {
		err = cmp.Or(err, t.old.check(wall))
	}
	return err
}

func (t timerHeap) check(wall bool) error {
	for i, e := range t {
		if int(e.timerIndex) != i {
			return fmt.Errorf("engine: timer %d has index %d", i, e.timerIndex)
		}
		if i > 0 && e.firesBefore(t[(i-1)/heapChildren]) {
			return fmt.Errorf("engine: timer %d is before its parent", i)
		}
		if e.Is(Wall) != wall {
			return fmt.Errorf("engine: message %d is among the wrong timers", e.Seq)
		}
	}
	return nil
}

func checkOrder(name string, o *order) error {
	inside, gone := 0, 0
	var last *Entry
	for e := range o.fifo.all {
		if last != nil && !o.before(last, e) {
			return fmt.Errorf("engine: %s: %d follows %d", name, e.Seq, last.Seq)
		}
		last = e
		inside++
		if e.State == Gone {
			gone++
		}
	}
	for i, e := range o.back {
		if i > 0 && o.before(e, o.back[(i-1)/2]) {
			return fmt.Errorf("engine: %s: returned entry %d is before its parent", name, i)
		}
		inside++
		if e.State == Gone {
			gone++
		}
	}
	if inside != o.size || gone != o.gone {
		return fmt.Errorf("engine: %s: %d entries, %d gone; counted %d and %d", name, inside, gone, o.size, o.gone)
	}
	return nil
}

func (s *Shard) checkGroups() error {
	out, eligible, inGroups := 0, 0, 0
	for _, e := range s.inFlight.slots {
		if e != nil && e.group != nil {
			inGroups++
		}
	}
	for name, g := range s.groups.byName {
		head := g.waiting.head()
		out += g.out
		if g.isIdle() && !g.listed && (g.limits == nil || max(g.limits.full, g.limits.until) <= s.clock) {
			return fmt.Errorf("engine: group %q is empty", name)
		}
		next, mayGo := g.from, head != nil || g.more
		if head != nil {
			next = head.Place
		}
		if state := g.limits; mayGo && state != nil && state.next() > s.clock {
			wake, ok := s.limits.wakes.turnOf(wakeHeap, g)
			if !ok || wakeTurn(state.next()).before(wake) {
				return fmt.Errorf("engine: group %q has a token at %d, and no wake", name, state.next())
			}
		}
		mayGo = mayGo && next < g.limit() && (g.limits == nil || (g.limits.next() <= s.clock && !g.limits.atMost(g.out)))
		stands := s.turnOf(g, next)
		its, isThere := s.groups.eligible.turnOf(g)
		if mayGo != isThere {
			return fmt.Errorf("engine: group %q may go: %v, is in the heap: %v", name, mayGo, isThere)
		}
		if mayGo {
			eligible++
			if its != stands {
				return fmt.Errorf("engine: group %q is misplaced in the heap", name)
			}
		}
		if err := checkOrder("group "+name, &g.waiting); err != nil {
			return err
		}
	}
	if s.config.StrictGroups {
		inGroups = s.stats.InFlight
		if err := s.checkBlockers(); err != nil {
			return err
		}
	}
	if out != inGroups {
		return fmt.Errorf("engine: groups count %d messages in flight, there are %d", out, inGroups)
	}
	if eligible != s.groups.eligible.len() {
		return fmt.Errorf("engine: %d groups may go, %d are in the heap", eligible, s.groups.eligible.len())
	}
	if s.limits != nil {
		if err := s.groups.checkHeap(wakeHeap, s.limits.wakes); err != nil {
			return err
		}
	}
	return s.groups.checkTurns()
}

// checkTurns checks the list and the heap of eligible groups.
func (g *groups) checkTurns() error {
	t := g.eligible
	if t == nil {
		return nil
	}
	gone := 0
	for n := t.first; n < t.end; n++ {
		switch slot := t.at(n); {
		case slot.group == nil:
			gone++
		case slot.group.slot != n || slot.group.position[eligibleHeap] > 0 || g.byName[slot.group.name] != slot.group:
			return fmt.Errorf("engine: group %q is misplaced in slot %d", slot.group.name, n)
		}
		if n > t.first && t.at(n).turn.before(t.at(n-1).turn) {
			return fmt.Errorf("engine: slot %d is before the slot before it", n)
		}
	}
	if gone != t.gone || t.first < t.end && (t.at(t.first).group == nil || t.at(t.end-1).group == nil) {
		return fmt.Errorf("engine: %d slots have no group, counted %d", gone, t.gone)
	}
	return g.checkHeap(eligibleHeap, t.heap)
}

func (g *groups) checkHeap(kind heapKind, h groupHeap) error {
	for i, slot := range h {
		if int(slot.group.position[kind]) != i+1 || g.byName[slot.group.name] != slot.group {
			return fmt.Errorf("engine: group %q is misplaced in heap %d", slot.group.name, kind)
		}
		if i > 0 && slot.turn.before(h[(i-1)/heapChildren].turn) {
			return fmt.Errorf("engine: group %d of heap %d is before its parent", i, kind)
		}
	}
	return nil
}

// checkBacklog counts the messages of the backlog, and checks that every ready message
// can be found.
func (s *Shard) checkBacklog(counted *driver.Stats) error {
	counted.Ready, counted.Delayed, counted.Dead = 0, 0, 0
	held, bytes := 0, 0
	ready := make(map[uint64]bool)
	for e := range s.InState(Ready) {
		counted.Ready++
		ready[e.Place] = true
		if s.inGroup(e) {
			isHeld, err := s.checkGrouped(e)
			if err != nil {
				return err
			}
			if isHeld {
				held++
				bytes += int(e.Size)
			}
			continue
		}
		if e.Place >= *s.horizonOf(e.Priority) {
			continue
		}
		if s.orderOf(e.Priority).find(e.Place) == nil {
			return fmt.Errorf("engine: message %d is ready but not in the window", e.Seq)
		}
		held++
		bytes += int(e.Size)
	}
	for name, g := range s.groups.byName {
		if g.sure && !ready[g.from] {
			return fmt.Errorf("engine: group %q is sure of place %d, where nothing is ready", name, g.from)
		}
	}
	if held != s.window.heldReady || bytes != s.window.readyBytes {
		return fmt.Errorf("engine: %d ready messages with %d bytes are held, counted %d with %d", held, bytes, s.window.heldReady, s.window.readyBytes)
	}
	for e := range s.InState(Delayed) {
		counted.Delayed++
		if e.duePoint().before(s.window.delaysOf(e).horizon) && s.findDelayed(e) == nil {
			return fmt.Errorf("engine: message %d is delayed but not in the window", e.Seq)
		}
	}
	for e := range s.InState(Dead) {
		counted.Dead++
		if e.Place < s.window.deadHorizon && s.dead.byID[e.ID] == nil {
			return fmt.Errorf("engine: dead letter %s is not in the window", e.ID)
		}
	}
	return nil
}

// checkGrouped checks that a ready message of a group can be found.
func (s *Shard) checkGrouped(e *Entry) (held bool, err error) {
	g := s.groups.byName[e.groupName()]
	switch {
	case g != nil && g.known && s.ready.find(e.Place) != nil:
		return false, fmt.Errorf("engine: message %d of group %q is a stray although its group is known", e.Seq, e.groupName())
	case g != nil && g.waiting.find(e.Place) != nil, s.ready.find(e.Place) != nil:
		return true, nil
	case g != nil && g.known && g.more && g.from <= e.Place:
	case (g == nil || !g.known) && (e.Place >= s.window.horizon && !s.window.done || s.window.reread):
	default:
		return false, fmt.Errorf("engine: message %d of group %q is ready but not in the window", e.Seq, e.groupName())
	}
	return false, nil
}

// checkBlockers checks that the blockers of strict groups are exactly those that should
// be known.
func (s *Shard) checkBlockers() error {
	blockers := make(map[string]places)
	want := func(e *Entry, place uint64) {
		name := e.groupName()
		known := blockers[name]
		known.add(place)
		blockers[name] = known
	}
	for _, e := range s.inFlight.slots {
		if e != nil {
			want(e, e.placeInGroup())
		}
	}
	for e := range s.InState(Delayed) {
		if !s.blocksWhileDelayed(e) {
			continue
		}
		g := s.groups.byName[e.groupName()]
		isKnown := s.window == nil || e.Place < s.window.horizon || (g != nil && g.known && !(g.more && g.from <= e.Place))
		if _, found := s.blockersOf(e.groupName()).find(e.Place); found || (isKnown && !s.isReread()) {
			want(e, e.Place)
		}
	}
	for name, g := range s.groups.byName {
		if !slices.Equal(g.blockers, blockers[name]) && !s.isReread() {
			return fmt.Errorf("engine: group %q is blocked at %d, want %d", name, g.blockers, blockers[name])
		}
		delete(blockers, name)
	}
	if len(blockers) > 0 {
		return fmt.Errorf("engine: blocked groups are unknown: %v", blockers)
	}
	return nil
}

func (s *Shard) blockersOf(name string) places {
	if g := s.groups.byName[name]; g != nil {
		return g.blockers
	}
	return nil
}

// isReread reports whether the strict groups will be read again.
func (s *Shard) isReread() bool { return s.window != nil && s.window.reread }
