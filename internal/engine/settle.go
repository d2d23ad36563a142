package engine

import (
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// Send adds a message; see StageSend.
func (s *Shard) Send(now Moment, id string, body []byte, extra *Extra, delay time.Duration) *Entry {
	e := s.StageSend(now, id, body, extra, delay)
	s.Fulfil(now, e)
	return e
}

// Ack removes a message for ever, or returns ErrReceiptExpired.
func (s *Shard) Ack(now Moment, d Delivery) error {
	e, err := s.StageAck(now, d)
	if err == nil {
		s.Fulfil(now, e)
	}
	return err
}

// Nack gives a message back; see StageNack.
func (s *Shard) Nack(now Moment, d Delivery, delay time.Duration, cause string) error {
	e, err := s.StageNack(now, d, delay, cause)
	if err == nil {
		s.Fulfil(now, e)
	}
	return err
}

// DeadLetter makes a message a dead letter; see StageDeadLetter.
func (s *Shard) DeadLetter(now Moment, d Delivery, reason driver.Reason, cause, causeType string) error {
	e, err := s.StageDeadLetter(now, d, reason, cause, causeType)
	if err == nil {
		s.Fulfil(now, e)
	}
	return err
}

// Extend moves the deadline of a message to visibility from now, or to the end of
// its holding time if that is earlier, and returns how long it is leased from now;
// 0 ends the lease. It may return ErrReceiptExpired.
func (s *Shard) Extend(now Moment, d Delivery, visibility time.Duration) (granted time.Duration, err error) {
	s.Advance(now)
	e := s.held(d)
	if e == nil {
		return 0, driver.ErrReceiptExpired
	}
	e.Due = min(now.At.Add(visibility), e.HoldUntil)
	granted = time.Duration(e.Due - now.At)
	s.timers.fix(e)
	s.effect(Leased, e)
	s.Advance(now)
	return granted, nil
}

// expire ends a lease that nobody settled, at the moment it ran out.
func (s *Shard) expire(at Moment, e *Entry) {
	s.timers.remove(e)
	e.State = Staged
	s.judge(at, e, 0)
	s.Fulfil(at, e)
}
