package engine

// With a backlog, messages of groups are held by group. A ready message of a known
// group is either
//
//   - held, in the group's waiting, or
//   - in the backlog at or after the group's from; the group then has more, and sure
//     says that a message is exactly at from.
//
// A group becomes known when one of its messages becomes ready, or when the horizon
// reaches one: all ready messages of unknown groups are at or after the horizon. So
// reading beyond the horizon is unnecessary while a group before it has nothing in
// flight. After a restart the horizon passes the backlog, until every group with a
// ready message is known. A known group costs some hundred bytes, and its messages
// are read when it is their turn. A strict group that is held may have any number of
// messages before those of the next group, so the horizon does not pass them all: after
// Limits.Pass messages of known groups, the groups are listed instead.
//
// Beyond Limits.Groups, no more fair groups become known. Ready messages of the others
// are strays: they wait like messages without a group until there is room and their
// group becomes known. Messages of further strict groups wait until the horizon
// reaches them.
//
// A blocker of a strict group is known if it is in flight, before the horizon, or
// before the group's from. So blockers cost memory, like messages in flight, and
// messages behind them do not.

// groupFill is how many messages of a group are read at a time.
const groupFill = 64

// groupsEnough reports whether no more groups may become known.
func (w *window) groupsEnough(g *groups) bool {
	return w.limits.Groups > 0 && len(g.byName) >= w.limits.Groups
}

// leavesUnknown reports whether the strict group of a ready message stays unknown
// until the horizon reaches the message.
func (s *Shard) leavesUnknown(e *Entry) bool {
	if !s.config.StrictGroups {
		return false
	}
	if g := s.groups.byName[e.groupName()]; g != nil && g.known {
		return false
	}
	w := s.window
	enough := w.groupsEnough(&s.groups)
	if !enough && (e.Place < w.horizon || w.begun()) {
		return false
	}
	if enough {
		w.listing = listing{given: true}
	}
	w.horizon = min(w.horizon, e.Place)
	return true
}

// listing is how far the strict groups of a backlog were listed. While it goes on, a
// group that gets a message becomes known at once, so that none is missed.
type listing struct {
	passed int        // messages of known groups that the horizon has passed in a row
	at     GroupPoint // the next group
	// done: all groups with ready messages are known, also beyond the horizon, which
	// only moves need to advance. given: given up, because there are too many groups.
	done, given bool
}

func (l *listing) begun() bool { return l.done || l.at != GroupPoint{} }

// knowsAll reports whether no search can find another ready message.
func (w *window) knowsAll() bool { return w.horizon == allPlaces || w.done }

// searchGroups makes groups beyond the horizon known.
func (s *Shard) searchGroups() {
	if s.listsGroups() {
		s.regroupAll(s.listGroups())
		return
	}
	s.refillReady(0)
}

// listsGroups reports whether a search lists the groups instead of moving the horizon.
func (s *Shard) listsGroups() bool {
	return s.config.StrictGroups && !s.window.given && s.window.passed >= s.window.limits.Pass
}

// listGroups reads the first message of each group, as far as this call may, and returns
// the groups that became known. Of messages that are not ready it reads the next one too.
func (s *Shard) listGroups() (met []*group) {
	w := s.window
	end := s.backlog().Groups(w.at, func(e *Entry, at GroupPoint) (next GroupPoint, more bool) {
		if w.at = at.nextMessage(); !s.notWaiting(e) {
			g := s.groups.byName[e.groupName()]
			switch {
			case g != nil && g.known:
				w.at = at.nextGroup()
			case s.isDelayed(e):
				if s.blocksWhileDelayed(e) {
					s.groups.get(e.groupName()).block(e.Place)
				}
			case w.groupsEnough(&s.groups):
				w.listing = listing{given: true}
			default:
				g = s.groups.get(e.groupName())
				s.know(g, e.Place)
				g.from = e.Place // messages before it are delayed, and read
				met = append(met, g)
				w.at = at.nextGroup()
			}
		}
		w.looks--
		return w.at, w.looks > 0 && !w.given
	})
	w.done = end && !w.stopped()
	return met
}

func (s *Shard) regroupAll(groups []*group) {
	for _, g := range groups {
		s.regroup(g)
	}
}

// allowLooking lets the current call read beyond the horizon for a quieter group.
func (s *Shard) allowLooking() {
	if s.window != nil {
		s.window.looks = s.window.limits.Look
	}
}

// mayFindQuieter reports whether a message beyond the horizon could have a lower turn
// than both the message e and the group g with its turn, of which one may be nil, and
// whether this call may still read on.
func (s *Shard) mayFindQuieter(e *Entry, g *group, its turn) bool {
	w := s.window
	switch {
	case w.knowsAll() || w.looks <= 0 || w.stopped():
		return false
	case g != nil:
		return !its.before(turn{place: w.horizon})
	}
	return e == nil // a held message is before the horizon
}

// meetGroup makes the group of a ready message at the horizon known. It returns nil
// if the message has to wait like one without a group; isNew reports whether the
// group was unknown, and the caller has to call regroup.
func (s *Shard) meetGroup(e *Entry) (g *group, isNew bool) {
	if s.inGroup(e) {
		g = s.groupFor(e.groupName())
	}
	return g, g != nil && s.know(g, e.Place)
}

// know makes a group with a ready message at place known, and reports whether it was
// unknown.
func (s *Shard) know(g *group, place uint64) bool {
	if g.known {
		return false
	}
	g.known = true
	from := s.window.horizon
	if s.window.strayed {
		from = min(from, s.dropStrays(g.name))
	}
	if from != allPlaces {
		g.more, g.from, g.sure = true, min(from, place), false
	}
	return true
}

// dropStrays evicts the strays of a group that becomes known, and returns the place of
// the first.
func (s *Shard) dropStrays(name string) (first uint64) {
	s.backlog() // has all messages that are evicted
	var mine []*Entry
	s.window.strayed = false
	for e := range s.ready.all {
		switch {
		case !s.isFair(e):
		case e.groupName() == name:
			mine = append(mine, e)
		default:
			s.window.strayed = true
		}
	}
	first = allPlaces
	for _, e := range mine {
		first = min(first, e.Place)
		s.window.dropReady(e)
		s.vanish(e)
		s.ready.lost()
	}
	return first
}

// offerInWindow puts a ready message into its group, or leaves it to the backlog.
func (s *Shard) offerInWindow(g *group, e *Entry) {
	s.know(g, e.Place)
	enough := g.waiting.size >= groupFill || s.window.full()
	last := g.waiting.head() == nil || g.waiting.isBeyond(e)
	if !g.more && enough && last {
		g.more, g.from, g.sure = true, e.Place, true
	}
	if !g.more || e.Place < g.from {
		s.holdInGroup(g, e)
		s.trimReady()
	}
}

// holdInGroup holds a ready message in its group.
func (s *Shard) holdInGroup(g *group, e *Entry) {
	e.State = Ready
	e.timerIndex = -1
	e.group = g
	g.waiting.push(e)
	s.window.addReady(e)
}

// refillGroup loads the next deliverable messages of a group: at least least, and
// more while the window has room. If it loads none it finds out where the next one
// is.
func (s *Shard) refillGroup(g *group, least int) {
	g.sure = false
	read := 0
	for e := range s.backlog().Group(g.name, g.from) {
		if e.Place >= g.limit() {
			g.from = e.Place
			return
		}
		g.from = e.Place + 1
		if s.notWaiting(e) {
			continue
		}
		if s.isDelayed(e) {
			if s.blocksWhileDelayed(e) {
				g.block(e.Place)
			}
			continue
		}
		if s.window.full() && read >= least {
			g.from, g.sure = e.Place, true
			return
		}
		s.holdInGroup(g, e)
		if read++; read == groupFill {
			return
		}
	}
	if !s.window.stopped() {
		g.more = false
	}
}

// isDelayed reports whether a message from the backlog is delayed. A message that is
// due right now may still be among the timers, and is offered when its timer fires.
func (s *Shard) isDelayed(e *Entry) bool {
	clock := s.clockOf(e)
	return e.Due > clock || (e.Due == clock && e.Is(Timed) && s.findDelayed(e) != nil)
}

// takeFromGroup takes a ready message out of its group, and reports whether the group
// had it.
func (s *Shard) takeFromGroup(e *Entry) bool {
	g := s.groups.byName[e.groupName()]
	if g == nil {
		return false
	}
	if g.more && e.Place >= g.from {
		g.sure = g.sure && e.Place != g.from
		return true
	}
	held := g.waiting.find(e.Place)
	if held == nil {
		return false
	}
	s.window.dropReady(held)
	s.vanish(held)
	g.waiting.lost()
	return true
}

// evictGroups evicts all messages that wait in groups.
func (s *Shard) evictGroups() {
	for _, g := range s.groups.byName {
		s.evictGroup(g)
	}
}

// evictGroup evicts all messages that wait in a group.
func (s *Shard) evictGroup(g *group) {
	head := g.waiting.head()
	if head == nil {
		return
	}
	for e := range g.waiting.all {
		s.window.dropReady(e)
	}
	g.waiting.clear()
	g.more, g.from, g.sure = true, head.Place, true
}

// leftGroup updates the group of a message that was taken from the place where it
// waited.
func (s *Shard) leftGroup(e *Entry, place uint64) {
	if s.config.StrictGroups || (s.window != nil && s.isFair(e)) {
		s.unblock(e.groupName(), place)
	}
}

// forgetGroups forgets what is known of groups, except for messages in flight, so that they are
// read again.
func (s *Shard) forgetGroups() {
	w := s.window
	w.reread, w.listing = false, listing{given: w.given}
	w.emptyReady(0)
	w.strayed = false
	s.ready.clear()
	for _, g := range s.groups.byName {
		g.waiting.clear()
		g.blockers = g.blockers[:0]
		g.more, g.sure, g.known, g.from = false, false, false, 0
	}
	for _, e := range s.inFlight.slots {
		if e != nil && s.config.StrictGroups {
			e.group.blockers.add(e.placeInGroup())
		}
	}
	for _, g := range s.groups.byName {
		s.regroup(g)
	}
}
