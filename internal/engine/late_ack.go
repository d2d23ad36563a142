package engine

import (
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// A late ack shows a receipt of any delivery of a message, and is good for as long
// as the message stands where it stood then. Nobody keeps old nonces for that: a
// nonce is a count and, in its lower half, a hash over the count, the message and
// its place. So a nonce tells by itself whether it was given out for a message at
// a place. The count differs from delivery to delivery.

// SealReceipts makes a shard recognise late receipts of every other shard with the
// same seal. Without it, it recognises only its own. It is called before anything
// else.
func (s *Shard) SealReceipts(seal uint64) { s.seal = seal }

// nonce returns the name of a delivery of e at its place.
func (s *Shard) nonce(e *Entry, count uint32) uint64 {
	hash := (s.seal ^ e.Seq) * 0x9e3779b97f4a7c15
	hash = (hash ^ hash>>32 ^ e.Place) * 0xbf58476d1ce4e5b9
	hash = (hash ^ hash>>29 ^ uint64(count)) * 0x94d049bb133111eb
	return uint64(count)<<32 | hash>>32
}

// gaveOut reports whether d is a delivery of e where e stands now.
func (s *Shard) gaveOut(d Delivery, e *Entry) bool {
	return d.ID == e.ID && d.Nonce == s.nonce(e, uint32(d.Nonce>>32))
}

// StageLateAck is StageAck that takes late receipts too. If the message waits, it
// is removed on the spot, and there is nothing to publish: e is nil, and an effect
// tells of it.
func (s *Shard) StageLateAck(now Moment, d Delivery) (e *Entry, err error) {
	s.Advance(now)
	if e := s.inFlight.get(d.Seq); e != nil {
		if e.State != InFlight || (s.held(d) == nil && !s.gaveOut(d, e)) {
			return nil, driver.ErrReceiptExpired
		}
		s.timers.remove(e)
		e.State, e.Fate = Staged, Leaves
		return e, nil
	}
	late := s.findReturned(d.Seq)
	if late == nil || !s.gaveOut(d, late) {
		return nil, driver.ErrReceiptExpired
	}
	gone := s.takeWaiting(late)
	s.leave(gone)
	s.effect(Withdrawn, gone)
	s.leftGroup(gone, gone.Place)
	return nil, nil
}

// ExtendLate is Extend that also leases a message again that is ready where it was
// delivered last, under the same receipt. It may return ErrReceiptExpired.
func (s *Shard) ExtendLate(now Moment, d Delivery, visibility time.Duration) (granted time.Duration, err error) {
	if granted, err = s.Extend(now, d, visibility); err == nil {
		return granted, nil
	}
	late := s.findReturned(d.Seq)
	switch {
	case late == nil || late.Nonce != d.Nonce || !s.gaveOut(d, late):
		return 0, driver.ErrReceiptExpired
	case s.window == nil && late.State != Ready, s.window != nil && !s.isReady(late):
		return 0, driver.ErrReceiptExpired
	case s.config.StrictGroups, s.config.MaxInFlight > 0 && s.stats.InFlight >= s.config.MaxInFlight:
		return 0, driver.ErrReceiptExpired
	case visibility == 0:
		return 0, nil
	}
	e := s.takeWaiting(late)
	e.set(unaged, s.holdsAges())
	e.set(LeasedAgain, true)
	if s.isFair(e) {
		e.group = s.groupFor(e.groupName())
		e.group.out++
	}
	s.putInFlight(now, e, visibility)
	if e.group != nil {
		s.settleGroup(e.group)
	}
	s.leftGroup(e, e.Place)
	return visibility, nil
}

// findReturned returns a message that waits and may have been delivered before, or
// nil.
func (s *Shard) findReturned(seq uint64) *Entry {
	if s.window == nil {
		return s.returned.get(seq)
	}
	return s.findShelved(seq)
}

// findShelved returns a waiting message from the shelf, or nil.
func (s *Shard) findShelved(seq uint64) *Entry {
	for e := range s.shelf().Aged(seq) {
		if e = s.whole(e); e.Seq == seq && !s.news(e) {
			return e
		}
		break
	}
	return nil
}
