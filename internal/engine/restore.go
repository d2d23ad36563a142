package engine

// Totals are what an owner with a shelf counts, so that it can put a shard back
// without reading all of it.
type Totals struct {
	Messages int // that are not dead
	Delayed  int // of which wait for their Due
	Bytes    int // of the bodies of those that are not dead
	Dead     int
	NextSeq  uint64 // higher than every Seq and Place so far
	Deaths   uint64 // as high as the highest death so far
}

// Restore puts back a shard that has a shelf, as it was: out are the messages
// in flight. It follows SetShelf; the first Advance then lets happen what fell
// due meanwhile.
func (s *Shard) Restore(now Instant, totals Totals, out []*Entry) {
	s.clock = now
	s.nextSeq = max(s.nextSeq, totals.NextSeq)
	s.deaths = totals.Deaths
	s.bytes = totals.Bytes
	s.stats.Ready = totals.Messages - totals.Delayed - len(out)
	s.stats.Delayed = totals.Delayed
	s.stats.InFlight = len(out)
	s.stats.Dead = totals.Dead
	w := s.window
	if totals.Messages > len(out) {
		w.horizon, w.oldest = 0, allAges
	}
	if totals.Delayed > 0 {
		w.dueHorizon = DuePoint{Due: now + 1}
	}
	if totals.Dead > 0 {
		w.deadHorizon = 0
	}
	for _, e := range out {
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
