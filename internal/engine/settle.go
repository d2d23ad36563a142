package engine

import (
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// Sending and settling happen in two steps, so that an owner with a disk can write
// between them.
//
// Staging decides everything: it checks the receipt, reserves the room and assigns
// the place. From then on no other call can settle the message, and no deadline
// changes it. Publishing makes the change visible: the message is counted, can be
// delivered, or no longer blocks its group. An owner writes what it staged, waits
// until that is durable, and publishes in the order in which it staged. Without a
// disk the two steps follow each other directly; Send, Ack, Nack and DeadLetter do
// both.

// Outcome is what publishing does with a staged message.
type Outcome uint8

// The outcomes.
const (
	Arrives Outcome = iota + 1
	Leaves
	Waits
	Dies
	Expires // is removed because its time is over, without a dead letter (DropExpired)
)

// Delivery identifies one delivery of a message of this shard. It is the shard's
// part of a receipt.
type Delivery struct {
	Seq   uint64
	Nonce uint64
	ID    string
}

// StageAck prepares to remove a message. It returns ErrReceiptExpired if the lease
// is over or d is not the latest delivery.
func (s *Shard) StageAck(now Moment, d Delivery) (*Entry, error) {
	e, err := s.stage(now, d)
	if err != nil {
		return nil, err
	}
	e.Outcome = Leaves
	return e, nil
}

// StageNack prepares to return a message to the tail of the queue, ready after
// delay; in strict groups, and with NackRelease, it keeps its place. A message that has
// used up its deliveries is dead-lettered instead. It may return ErrReceiptExpired.
func (s *Shard) StageNack(now Moment, d Delivery, delay time.Duration, cause string, mode driver.NackMode) (*Entry, error) {
	e, err := s.stage(now, d)
	if err != nil {
		return nil, err
	}
	e.endDelivery(mode)
	if mode != driver.NackFailed && e.Releases() > 0 {
		s.refund(e.group)
	}
	if cause != "" {
		e.extra().LastError = cause
	}
	s.stageRequeue(now, e, delay)
	if e.Outcome == Waits && mode != driver.NackRelease && !s.config.StrictGroups && !s.exhausted(e) {
		s.moveToTail(e)
		e.restartAge()
	}
	e.set(recorded, true)
	return e, nil
}

// endDelivery counts the delivery of e that is over, or takes it back: if it did not
// fail, and the message was not given back too often before. A delivery that was leased
// again had ended, and was counted, before. The receipt of a delivery that was given back
// cannot lease the message again.
func (e *Entry) endDelivery(mode driver.NackMode) {
	if mode != driver.NackFailed {
		e.Nonce = 0
	}
	if mode == driver.NackFailed || e.Releases() >= driver.MaxReleases || e.Is(LeasedAgain) {
		e.setReleases(0)
		return
	}
	e.setReleases(e.Releases() + 1)
	e.Deliveries--
	if e.Is(First) {
		e.FirstReceivedAt = 0
	}
}

// StageDeadLetter prepares to dead-letter a message. It may return
// ErrReceiptExpired, or ErrFull; then nothing changes.
func (s *Shard) StageDeadLetter(now Moment, d Delivery, reason driver.Reason, cause, causeType string) (*Entry, error) {
	s.Advance(now)
	if s.held(d) == nil {
		return nil, driver.ErrReceiptExpired
	}
	if s.deadFull(reason) {
		return nil, driver.ErrFull
	}
	e, err := s.stage(now, d)
	if err != nil {
		return nil, err
	}
	x := e.extra()
	x.ErrorType = causeType
	if cause != "" {
		x.LastError = cause
	}
	s.stageDeath(now, e, reason)
	e.set(recorded, true)
	return e, nil
}

// stage takes an in-flight message out of reach of other calls and of timers. Time
// advances first, so an ack, a nack or a dead-letter after the deadline is refused.
func (s *Shard) stage(now Moment, d Delivery) (*Entry, error) {
	s.Advance(now)
	e := s.held(d)
	if e == nil {
		return nil, driver.ErrReceiptExpired
	}
	s.timers.remove(e)
	e.State = Staged
	return e, nil
}

// held returns the message of d if d is its latest delivery and the lease is not
// over, and nil otherwise.
func (s *Shard) held(d Delivery) *Entry {
	e := s.inFlight.get(d.Seq)
	if e == nil || e.State != InFlight || e.Nonce != d.Nonce || e.ID != d.ID {
		return nil
	}
	return e
}

// stageRequeue decides the outcome of a message whose delivery is over: it waits
// again, dies of too many deliveries, or expires. While the dead letters are full,
// a message that should die waits instead.
func (s *Shard) stageRequeue(now Moment, e *Entry, delay time.Duration) {
	e.Outcome = Waits
	e.set(Wall, false) // Due is an instant, not the wall time of a message that was rescheduled
	e.Due = now.At.Add(delay)
	ended := outlived(now, e)
	tooOld := ended || s.tooOld(now.At, e)
	switch {
	case s.exhausted(e) && s.deadFull(driver.ReasonMaxDeliveries):
		e.Due = now.At.Add(max(delay, driver.DeadRetry))
	case s.exhausted(e):
		s.stageDeath(now, e, driver.ReasonMaxDeliveries)
	case tooOld && s.config.DropExpired:
		e.Outcome = Expires
	case tooOld && !s.deadFull(driver.ReasonExpired):
		s.stageDeath(now, e, driver.ReasonExpired)
	case ended:
		e.Due = now.At.Add(roomWait)
	}
	e.set(Timed, e.Due > now.At)
}

// stageDeath makes death the outcome of a message. The owner writes the entry like
// this before addDeadLetter adds it to the dead letters.
func (s *Shard) stageDeath(now Moment, e *Entry, reason driver.Reason) {
	e.Outcome = Dies
	e.set(Leaving, s.forwards(reason))
	e.set(Wall, false)
	s.dying++
	s.deaths++
	e.Left, e.Place = e.Place, s.deaths
	if s.window == nil {
		e.HoldUntil = now.At // the order by age may hold it; see addDeadLetter
	} else {
		e.Born = now.At
	}
	x := e.extra()
	x.Reason = reason
	x.DeadAt = now.Wall
}

// Publish carries out the outcome of a staged message.
func (s *Shard) Publish(now Moment, e *Entry) {
	s.Advance(now)
	s.PublishNow(now, e)
	s.Advance(now) // it may have fallen due, or expired, since it was staged
}

// PublishNow is Publish without advancing time: now is the time of staging, or the
// caller has advanced already.
func (s *Shard) PublishNow(now Moment, e *Entry) {
	if e.Is(placed) {
		e.set(placed, false)
		s.window.published(e)
	}
	if e.Outcome == Arrives {
		s.arriving--
		s.arrivingBytes -= int(e.Size)
		s.bytes += int(e.Size)
		s.wait(e, Sent)
		s.trackArrival(e)
		s.expireByCount(now)
		return
	}
	s.unlease(e)
	waits := e.Outcome == Waits
	s.carryOut(e)
	if waits {
		s.expireByCount(now)
	}
}

// carryOut carries out the outcome of a message that is in no order, except perhaps the one
// by age.
func (s *Shard) carryOut(e *Entry) {
	switch e.Outcome {
	case Leaves:
		s.effect(Acked, e)
		s.remove(e)
	case Expires:
		s.effect(Withdrawn, e)
		s.ended(driver.EndingDropped, e)
		s.remove(e)
	case Waits:
		s.keep(e)
	case Dies:
		s.die(e)
	}
}

// unlease ends the lease of e. It is then in no order, except perhaps the one by
// age; the caller updates its group.
func (s *Shard) unlease(e *Entry) {
	s.inFlight.remove(e)
	s.stats.InFlight--
	if g := e.group; g != nil {
		g.out--
		g.blockers.remove(e.placeInGroup())
	}
}

// placeInGroup returns the place of an in-flight message among the waiting ones. A
// message that is staged to die already has its place among the dead letters.
func (e *Entry) placeInGroup() uint64 {
	if e.State == Staged && e.Outcome == Dies {
		return e.Left
	}
	return e.Place
}

// keep makes a message that is in no order wait.
func (s *Shard) keep(e *Entry) {
	if s.window == nil && e.HasReturned() {
		s.returned.add(e)
	}
	s.wait(e, Returned)
	s.trackAge(e)
}

// remove removes a message that is in no order, except perhaps the one by age.
func (s *Shard) remove(e *Entry) {
	s.leave(e)
	s.leaveGroup(e)
	if s.holdsAges() {
		s.vanish(e)
		return
	}
	s.release(e)
}

// leave stops counting the body of a message that is in no order. The count of an
// empty shard is reset, because damaged messages may have been counted wrong.
func (s *Shard) leave(e *Entry) {
	s.bytes -= int(e.Size)
	if s.holders != nil {
		s.letGo(e)
	}
	if s.stats.Waiting() == 0 {
		s.bytes = 0
	}
}

// Ack removes a message; see StageAck.
func (s *Shard) Ack(now Moment, d Delivery) error {
	e, err := s.StageAck(now, d)
	if err == nil {
		s.PublishNow(now, e)
	}
	return err
}

// Nack returns a message to the queue; see StageNack.
func (s *Shard) Nack(now Moment, d Delivery, delay time.Duration, cause string, mode driver.NackMode) error {
	e, err := s.StageNack(now, d, delay, cause, mode)
	if err == nil {
		s.PublishNow(now, e)
	}
	return err
}

// DeadLetter dead-letters a message; see StageDeadLetter.
func (s *Shard) DeadLetter(now Moment, d Delivery, reason driver.Reason, cause, causeType string) error {
	e, err := s.StageDeadLetter(now, d, reason, cause, causeType)
	if err == nil {
		s.PublishNow(now, e)
	}
	return err
}

// Extend moves the deadline of a lease to visibility from now, or to HoldUntil if
// that is earlier, and returns how long the lease lasts from now. A visibility of 0
// ends the lease. It may return ErrReceiptExpired.
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

// expire ends a lease that was not settled, at its deadline.
func (s *Shard) expire(at Moment, e *Entry) {
	s.timers.remove(e)
	e.State = Staged
	e.endDelivery(driver.NackFailed)
	s.stageRequeue(at, e, 0)
	s.PublishNow(at, e)
}
