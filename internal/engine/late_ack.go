package engine

import (
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// A late ack presents a receipt of any delivery of a message, and is valid as long as
// the message has the place it had then. Old nonces are not stored for that: a nonce
// is a count and, in its lower half, a hash over the count, the message and its place.
// So the nonce alone proves that it was issued for a message at a place. The count
// differs from delivery to delivery.

// SealReceipts sets the secret in the hash, so that the shard recognises late receipts
// of another shard with the same seal, such as itself before a restart. It must be the
// first call. By default every shard has a seal of its own.
func (s *Shard) SealReceipts(seal uint64) { s.seal = seal }

// nonce returns the nonce of a delivery of e at its place.
func (s *Shard) nonce(e *Entry, count uint32) uint64 {
	hash := (s.seal ^ e.Seq) * 0x9e3779b97f4a7c15
	hash = (hash ^ hash>>32 ^ e.Place) * 0xbf58476d1ce4e5b9
	hash = (hash ^ hash>>29 ^ uint64(count)) * 0x94d049bb133111eb
	return uint64(count)<<32 | hash>>32
}

// issued reports whether d is a delivery of e at its present place, with its present content.
func (s *Shard) issued(d Delivery, e *Entry) bool {
	if u := e.unique(); u != nil && u.Replaced {
		return false
	}
	return d.ID == e.ID && d.Nonce == s.nonce(e, uint32(d.Nonce>>32))
}

// StageLateAck is StageAck that accepts late receipts too. A message that waits is
// removed at once with an effect; there is nothing to publish, and e is nil.
func (s *Shard) StageLateAck(now Moment, d Delivery) (e *Entry, err error) {
	s.Advance(now)
	if e := s.inFlight.get(d.Seq); e != nil {
		if e.State != InFlight || (s.held(d) == nil && !s.issued(d, e)) {
			return nil, driver.ErrReceiptExpired
		}
		s.timers.remove(e)
		e.State, e.Outcome = Staged, Leaves
		return e, nil
	}
	late := s.findReturned(d.Seq)
	if late == nil || !s.issued(d, late) {
		return nil, driver.ErrReceiptExpired
	}
	gone := s.takeWaiting(late)
	s.leave(gone)
	s.effect(Withdrawn, gone)
	s.leftGroup(gone, gone.Place)
	return nil, nil
}

// ExtendLate is Extend that accepts late receipts too: a message that is ready at the
// place of its latest delivery is leased again under the same receipt. It may return
// ErrReceiptExpired.
func (s *Shard) ExtendLate(now Moment, d Delivery, visibility time.Duration) (granted time.Duration, err error) {
	if granted, err = s.Extend(now, d, visibility); err == nil {
		return granted, nil
	}
	late := s.findReturned(d.Seq)
	switch {
	case late == nil || late.Nonce != d.Nonce || !s.issued(d, late):
		return 0, driver.ErrReceiptExpired
	case s.window == nil && late.State != Ready, s.window != nil && !s.isReady(late):
		return 0, driver.ErrReceiptExpired
	case s.config.StrictGroups, outlived(now, late), s.config.MaxInFlight > 0 && s.stats.InFlight >= s.config.MaxInFlight:
		return 0, driver.ErrReceiptExpired
	case s.limits != nil && s.fillsLimit(late):
		return 0, driver.ErrReceiptExpired
	case visibility == 0:
		return 0, nil
	}
	e := s.takeWaiting(late)
	e.set(unaged, s.holdsAges())
	e.set(LeasedAgain, true)
	if s.isFair(e) {
		if e.group = s.groupFor(e.groupName()); e.group != nil { // nil: a stray
			e.group.out++
		}
	}
	s.putInFlight(now, e, visibility)
	if e.group != nil {
		s.regroup(e.group)
	}
	s.leftGroup(e, e.Place)
	return visibility, nil
}

// findReturned returns the waiting message with this Seq, or nil. Without a backlog it
// finds only messages that were delivered before.
func (s *Shard) findReturned(seq uint64) *Entry {
	if s.window == nil {
		return s.returned.get(seq)
	}
	return s.findInBacklog(seq)
}

// findInBacklog returns a waiting message from the backlog, or nil.
func (s *Shard) findInBacklog(seq uint64) *Entry {
	for e := range s.backlog().Aged(seq) {
		if e = s.intact(e); e.Seq == seq && !s.notWaiting(e) {
			return e
		}
		break
	}
	return nil
}
