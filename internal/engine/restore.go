package engine

// Totals are the counts that an owner with a backlog keeps, so that it can restore a
// shard without reading the whole backlog.
type Totals struct {
	Messages int // not dead
	Delayed  int // of them, delayed
	Bytes    int // total size of the bodies that are not dead
	Dead     int
	Lives    bool   // a message that is not dead may have a time to live
	NextSeq  uint64 // higher than every Seq and Place so far
	Deaths   uint64 // as high as the highest death so far
	// Indexed is for the owner. Unless it is 0, a message that is not dead may have a
	// priority above 0.
	Indexed uint64
	// Keys is for the owner too: how many messages hold a unique key.
	Keys int
}

// Restore restores a shard with a backlog after a restart; inFlight are the messages
// whose leases survived. It is called after SetBacklog. The first Advance then handles
// the events that fell due meanwhile.
func (s *Shard) Restore(now Moment, totals Totals, inFlight []*Entry) {
	s.clock, s.wall = now.At, Instant(now.Wall)
	s.nextSeq = max(s.nextSeq, totals.NextSeq)
	s.deaths = totals.Deaths
	s.bytes = totals.Bytes
	s.stats.Ready = totals.Messages - totals.Delayed - len(inFlight)
	s.stats.Delayed = totals.Delayed
	s.stats.InFlight = len(inFlight)
	s.stats.Dead = totals.Dead
	w := s.window
	if totals.Messages > len(inFlight) {
		w.horizon, w.oldest = 0, allAges
	}
	if totals.Indexed != 0 && !s.config.StrictGroups && !s.config.FairGroups {
		s.addLevels(0)
	}
	if totals.Delayed > 0 {
		w.delays.horizon, w.alarms.horizon = DuePoint{Due: s.clock + 1}, DuePoint{Due: s.wall + 1}
	}
	if totals.Lives {
		w.ends = DuePoint{}
	}
	if totals.Dead > 0 {
		w.deadHorizon = 0
	}
	for _, e := range inFlight {
		e.State = InFlight
		e.timerIndex = -1
		s.inFlight.add(e)
		s.timers.push(e)
		switch {
		case s.config.StrictGroups:
			e.group = s.groups.get(e.groupName())
			e.group.blockers.add(e.Place)
		case s.isFair(e):
			e.group = s.groupFor(e.groupName())
		}
		if e.group != nil {
			e.group.out++
		}
	}
}
