package engine

import (
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// Receive leases up to most ready messages with at most maxBytes of bodies (0: no
// limit; the first message may always exceed it), appends them to out and returns it.
// The entries are valid until the next call.
//
// blocked reports that no message was leased although one was ready, because
// MaxInFlight is reached. A paused shard leases nothing, and is not blocked.
func (s *Shard) Receive(now Moment, most, maxBytes int, visibility time.Duration, out []*Entry) (leased []*Entry, blocked bool) {
	s.Advance(now)
	if s.stats.Paused {
		return out, false
	}
	s.allowLooking()
	taken, size := 0, 0
	for taken < most {
		e := s.head()
		if e == nil {
			break
		}
		if s.exhausted(e) || outlived(now, e) {
			s.take(e)
			s.stageRequeue(now, e, 0)
			s.carryOut(e)
			continue
		}
		if s.config.MaxInFlight > 0 && s.stats.InFlight >= s.config.MaxInFlight {
			blocked = taken == 0
			break
		}
		if taken > 0 && maxBytes > 0 && size+int(e.Size) > maxBytes {
			break
		}
		s.take(e)
		switch {
		case e.group == nil:
		case s.config.FairGroups:
			s.serve(e.group)
		default:
			s.hold(e)
		}
		s.lease(now, e, visibility)
		out = append(out, e)
		taken++
		size += int(e.Size)
	}
	s.endBatch()
	return out, blocked
}

// head returns the next message to deliver, or nil.
func (s *Shard) head() *Entry {
	if s.config.FairGroups || s.config.StrictGroups {
		return s.groupHead()
	}
	if s.levels != nil {
		return s.levelHead()
	}
	if e := s.ready.head(); e != nil || s.window == nil {
		return e
	}
	s.refillReady(0)
	return s.ready.head()
}

// take removes the head from its order.
func (s *Shard) take(e *Entry) {
	s.stats.Ready--
	if e.life() != nil {
		s.leaveLife(e)
	}
	if s.window != nil {
		s.window.dropReady(e)
	} else if e.HasReturned() {
		s.returned.remove(e)
	}
	if e.group != nil {
		e.group.waiting.pop()
		return
	}
	s.readyFor(e.Priority).pop()
}

// lease delivers e.
func (s *Shard) lease(now Moment, e *Entry, visibility time.Duration) {
	e.Deliveries++
	e.Nonce = s.nonce(e, uint32(s.nextNonce))
	s.nextNonce++
	e.set(LeasedAgain, false)
	e.set(First, e.FirstReceivedAt == 0)
	if e.Is(First) {
		e.FirstReceivedAt = now.Wall
	}
	s.putInFlight(now, e, visibility)
}

// putInFlight starts a lease of a message that is in no order.
func (s *Shard) putInFlight(now Moment, e *Entry, visibility time.Duration) {
	e.State = InFlight
	e.set(Wall, false)
	e.Due = now.At.Add(visibility)
	e.HoldUntil = never
	if bound := driver.HoldBound(s.config.MaxHold, visibility); bound > 0 {
		e.HoldUntil = now.At.Add(bound)
	}
	s.stats.InFlight++
	s.inFlight.add(e)
	s.timers.push(e)
	s.effect(Leased, e)
}

// exhausted reports whether e has used up its deliveries (MaxDeliveries).
func (s *Shard) exhausted(e *Entry) bool {
	return s.config.MaxDeliveries > 0 && e.Deliveries >= uint32(s.config.MaxDeliveries)
}

// Available returns an upper bound on how many messages Receive could return now. If
// it is 0, there is no reason to wake a receiver.
func (s *Shard) Available(now Moment) int {
	s.Advance(now)
	if s.stats.Paused {
		return 0
	}
	s.allowLooking()
	n := s.stats.Ready
	if n > 0 && (s.config.StrictGroups || s.window != nil || s.limits != nil) && s.head() == nil && !s.Searching() {
		n = 0
	}
	if s.config.MaxInFlight > 0 {
		n = min(n, max(s.config.MaxInFlight-s.stats.InFlight, 0)) // MaxInFlight may have been lowered
	}
	return n
}
