package engine

// Restore puts back a message that was written down, in the State it was in:
// Ready, Delayed, InFlight or Dead. An owner restores everything before it does
// anything else; the first Advance then lets happen what fell due meanwhile.
// Waiting messages are best restored by Place, and dead ones must be by death.
func (s *Shard) Restore(e *Entry) {
	s.nextSeq = max(s.nextSeq, e.Seq+1)
	e.timerIndex = -1
	if e.State == Dead {
		s.deaths = max(s.deaths+1, e.Place)
		e.Place = s.deaths
		s.stats.Dead++
		s.dead.add(e)
		return
	}
	s.nextSeq = max(s.nextSeq, e.Place+1)
	s.bytes += int(e.Size)
	if s.tracksAge() {
		s.ages.push(e)
	}
	if s.config.StrictGroups {
		e.group = s.groups.get(e.groupName())
		if e.State == InFlight {
			e.group.out++
		} else {
			e.group.waiting.push(e)
		}
	}
	switch e.State {
	case InFlight:
		s.stats.InFlight++
		s.inFlight.add(e)
		s.timers.push(e)
	case Delayed:
		s.stats.Delayed++
		s.delay(e)
	case Ready:
		s.stats.Ready++
		s.offer(e)
	}
	if e.group != nil {
		s.groups.settle(e.group)
	}
}
