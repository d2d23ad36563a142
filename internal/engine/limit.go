package engine

import (
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// With limits, a group has at most a number of messages in flight, and its deliveries take
// tokens from a bucket that fills at a rate. A group at its limit is not eligible, whatever
// waits in it, so Receive never meets it. It comes back when a message of it leaves the
// messages in flight, or at its wake, when its bucket has a token again.
//
// A bucket is one instant, when it will be full. A group whose bucket is full and that is idle
// is forgotten, as without limits.
//
// A shard without limits compares a pointer with nil.

// groupLimits are the limits of a shard's groups.
type groupLimits struct {
	text   string // Config.GroupLimits
	base   limit
	byName map[string]limit
	wakes  groupHeap
}

// limit is what a group may use.
type limit struct {
	inFlight int           // 0: any number
	interval time.Duration // between two tokens; 0: no rate
	slack    time.Duration // the time that a whole bucket takes to fill, but for one token
}

// limitState is what a group has used.
type limitState struct {
	limit
	full  Instant // when the bucket is full
	until Instant // no delivery before: the group was throttled
}

func newLimit(from driver.GroupLimit) limit {
	l := limit{inFlight: from.MaxInFlight}
	if from.Rate > 0 {
		l.interval = max(time.Duration(float64(time.Second)/from.Rate), 1)
		l.slack = time.Duration(from.Burst-1) * l.interval
	}
	return l
}

// setLimits changes the limits to those of a valid Config.GroupLimits.
func (s *Shard) setLimits(text string) {
	if s.limits == nil && text == "" || s.limits != nil && s.limits.text == text {
		return
	}
	l := s.limitGroups()
	l.text, l.byName = text, nil
	base, byName, _ := driver.Config{GroupLimits: text}.ParseGroupLimits()
	l.base = newLimit(base)
	for name, override := range byName {
		if l.byName == nil {
			l.byName = make(map[string]limit, len(byName))
		}
		l.byName[name] = newLimit(override)
	}
	for _, g := range s.groups.byName {
		if state := g.limits; state != nil {
			state.limit = l.of(g.name)
			state.full = min(state.full, max(s.clock, state.until).Add(state.slack+state.interval))
		}
		s.regroup(g)
	}
}

// of returns the limit of a group. Messages without a group have none.
func (l *groupLimits) of(name string) limit {
	if name == "" {
		return limit{}
	}
	if override, ok := l.byName[name]; ok {
		return override
	}
	return l.base
}

// limitGroups makes the shard one whose groups can have limits. Every fair group with messages
// is known from then on, because strays have none.
func (s *Shard) limitGroups() *groupLimits {
	if s.limits != nil {
		return s.limits
	}
	s.limits = &groupLimits{}
	if s.config.FairGroups && s.window != nil && len(s.groups.byName) > 0 {
		s.window.reread = true
		for _, e := range s.inFlight.slots {
			if e != nil && e.group == nil && s.isFair(e) {
				e.group = s.groups.get(e.groupName())
				e.group.out++
			}
		}
	}
	return s.limits
}

// limitsOf returns what a group has used, in a shard with limits.
func (s *Shard) limitsOf(g *group) *limitState {
	if g.limits == nil {
		now := max(s.clock, -never/2) // the clock may not be set yet
		g.limits = &limitState{limit: s.limits.of(g.name), full: now, until: now}
	}
	return g.limits
}

// Throttle delivers no message of a group for a time, or longer if it is throttled already;
// then its bucket is empty. A time of 0 ends that. It is called with strict and fair groups.
func (s *Shard) Throttle(now Moment, name string, wait time.Duration) {
	s.Advance(now)
	s.limitGroups()
	g := s.groups.get(name)
	state := s.limitsOf(g)
	if wait == 0 {
		state.until, state.full = s.clock, min(state.full, s.clock.Add(state.slack))
	} else {
		state.until = max(state.until, s.clock.Add(wait))
		state.full = max(state.full, state.until.Add(state.slack))
	}
	s.regroup(g)
}

// next returns when the bucket has a token and the group is not throttled.
func (l *limitState) next() Instant { return max(l.full.Add(-l.slack), l.until) }

// isOver reports whether a group is at its limit, and sets its wake.
func (s *Shard) isOver(g *group) bool {
	if s.limits == nil || g.name == "" {
		return false
	}
	state := s.limitsOf(g)
	if next := state.next(); next > s.clock {
		s.limits.setWake(g, next)
		return true
	}
	return state.atMost(g.out)
}

// atMost reports whether no more messages may be in flight.
func (l *limitState) atMost(out int) bool { return l.inFlight > 0 && out >= l.inFlight }

// fillsLimit reports whether the group of a message has as many messages in flight as it may.
func (s *Shard) fillsLimit(e *Entry) bool {
	g := s.groups.byName[e.groupName()]
	return g != nil && g.limits != nil && g.limits.atMost(g.out)
}

// countLook bounds how many messages of the backlog one count of throttled messages reads.
const countLook = 10_000

// throttled counts the ready messages of groups at their limit. Beyond countLook messages of a
// backlog, it counts those in memory.
func (s *Shard) throttled() (n int) {
	look := countLook
	for _, g := range s.groups.byName {
		if !s.isOver(g) {
			continue
		}
		n += g.waiting.size - g.waiting.gone
		if s.window == nil || (g.known && !g.more) {
			continue
		}
		from := g.from
		if !g.known {
			from = 0
		}
		for e := range s.backlog().Group(g.name, from) {
			if look--; look < 0 {
				break
			}
			if s.isReady(e) {
				n++
			}
		}
	}
	return n
}

// spend takes a token for a delivery.
func (s *Shard) spend(g *group) {
	if s.limits != nil && g.name != "" {
		state := s.limitsOf(g)
		state.full = max(state.full, s.clock).Add(state.interval)
	}
}

// refund gives the token of a delivery back that did not count. The bucket of a throttled group
// stays empty.
func (s *Shard) refund(g *group) {
	if s.limits == nil || g == nil || g.limits == nil {
		return
	}
	state := g.limits
	state.full = state.full.Add(-state.interval)
	if state.until > s.clock {
		state.full = max(state.full, state.until.Add(state.slack))
	}
	s.regroup(g)
}

// remembers reports whether a group that is idle has a bucket that is not full. It is then
// kept, but not its turn, and looked at again when the bucket is.
func (s *Shard) remembers(g *group) bool {
	state := g.limits
	if state == nil || (state.full <= s.clock && state.until <= s.clock) {
		return false
	}
	g.served, g.after = 0, 0
	s.limits.setWake(g, max(state.full, state.until))
	return true
}

// wakeGroups looks at the groups whose wakes are over. The group of a wake may have been
// forgotten when the clock moved.
func (s *Shard) wakeGroups() {
	for g, at := s.limits.nextWake(); g != nil && at <= s.clock; g, at = s.limits.nextWake() {
		s.limits.wakes.remove(wakeHeap, g)
		s.regroup(g)
	}
}

// purgeGroups empties a shard's groups, except for their buckets.
func (s *Shard) purgeGroups() {
	old := s.groups
	s.groups = groups{}
	if s.limits == nil {
		return
	}
	s.limits.wakes = nil
	for _, g := range old.byName {
		if state := g.limits; state != nil && max(state.full, state.until) > s.clock {
			kept := s.groups.get(g.name)
			kept.limits = state
			s.limits.setWake(kept, max(state.full, state.until))
		}
	}
}

// wakeTurn is the turn of a group in the heap of wakes.
func wakeTurn(at Instant) turn { return turn{place: uint64(at) ^ 1<<63} }

// setWake puts a group into the heap of wakes, or moves it there.
func (l *groupLimits) setWake(g *group, at Instant) { l.wakes.put(wakeHeap, g, wakeTurn(at)) }

// nextWake returns the first group of the heap of wakes, and its wake.
func (l *groupLimits) nextWake() (g *group, at Instant) {
	if len(l.wakes) == 0 {
		return nil, never
	}
	g, its := l.wakes.first()
	return g, Instant(its.place ^ 1<<63)
}
