package engine

import (
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// Delivery names one delivery: what a receipt says about this shard.
type Delivery struct {
	Seq   uint64
	Nonce uint64
	ID    string
}

// held returns the message that d names if d is its latest delivery and the
// lease is not over, and nil otherwise.
func (s *Shard) held(d Delivery) *Entry {
	e := s.inFlight[d.Seq]
	if e == nil || e.Nonce != d.Nonce || e.ID != d.ID {
		return nil
	}
	return e
}

// Ack removes a message for ever, or returns ErrReceiptExpired.
func (s *Shard) Ack(now Moment, d Delivery) error {
	s.Advance(now)
	e := s.held(d)
	if e == nil {
		return driver.ErrReceiptExpired
	}
	s.unlease(e)
	s.effect(Acked, e)
	s.remove(e)
	return nil
}

// Nack gives a message back, ready after delay, or lets it die if it was
// delivered as often as it may be. It may return ErrReceiptExpired.
func (s *Shard) Nack(now Moment, d Delivery, delay time.Duration, cause string) error {
	s.Advance(now)
	e := s.held(d)
	if e == nil {
		return driver.ErrReceiptExpired
	}
	s.unlease(e)
	if cause != "" {
		e.extra().LastError = cause
	}
	if s.exhausted(e) {
		s.dieOrDelay(now, e, driver.ReasonMaxDeliveries, delay)
		return nil
	}
	if !s.config.StrictGroups {
		e.Place = s.nextSeq
		s.nextSeq++
	}
	s.giveBack(now, e, delay)
	return nil
}

// Extend moves the deadline of a message to visibility from now; 0 ends the
// lease. It may return ErrReceiptExpired.
func (s *Shard) Extend(now Moment, d Delivery, visibility time.Duration) error {
	s.Advance(now)
	e := s.held(d)
	if e == nil {
		return driver.ErrReceiptExpired
	}
	e.Due = min(now.At.Add(visibility), e.holdUntil)
	s.timers.fix(e)
	s.effect(Leased, e)
	s.Advance(now)
	return nil
}

// DeadLetter makes a message a dead letter. It may return ErrReceiptExpired,
// or ErrFull, which changes nothing.
func (s *Shard) DeadLetter(now Moment, d Delivery, reason driver.Reason, cause, causeType string) error {
	s.Advance(now)
	e := s.held(d)
	if e == nil {
		return driver.ErrReceiptExpired
	}
	if s.deadFull() {
		return driver.ErrFull
	}
	s.unlease(e)
	x := e.extra()
	x.ErrorType = causeType
	if cause != "" {
		x.LastError = cause
	}
	s.die(now, e, reason)
	return nil
}

// expire ends a lease that nobody settled, at the moment it ran out.
func (s *Shard) expire(at Moment, e *Entry) {
	s.unlease(e)
	if s.exhausted(e) {
		s.dieOrDelay(at, e, driver.ReasonMaxDeliveries, 0)
		return
	}
	s.giveBack(at, e, 0)
}

// unlease takes e out of flight; it is then in no order but perhaps the one by
// age, and its group is for the caller to settle.
func (s *Shard) unlease(e *Entry) {
	s.timers.remove(e)
	delete(s.inFlight, e.Seq)
	s.stats.InFlight--
	if e.group != nil {
		e.group.out--
	}
}

// giveBack lets a message that was in flight wait again, unless it has grown
// too old meanwhile.
func (s *Shard) giveBack(now Moment, e *Entry, delay time.Duration) {
	if s.tooOld(now.At, e) && !s.deadFull() {
		s.die(now, e, driver.ReasonExpired)
		return
	}
	s.keep(now, e, delay)
	s.expireByCount(now)
}

// keep lets a message that is in no order wait, whatever its age.
func (s *Shard) keep(now Moment, e *Entry, delay time.Duration) {
	s.wait(e, now.At, delay)
	s.trackAge(e)
	s.effect(Returned, e)
}

// remove drops a message that is in no order but perhaps the one by age.
func (s *Shard) remove(e *Entry) {
	s.bytes -= len(e.Body)
	s.leaveGroup(e)
	if s.tracksAge() {
		s.vanish(e)
		return
	}
	s.release(e)
}
