package engine

import (
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// Sending and settling happen in two steps, so that an owner with a disk can
// put the disk between them. Staging decides everything: it checks the receipt,
// reserves the room, takes the place, and from then on nobody else can settle
// the message and no deadline can reach it. Publishing makes it visible: only
// then is it counted, delivered, or lets its group go on. An owner writes what
// it staged, waits until that is durable, and publishes in the order in which
// it staged. Without a disk the two steps follow each other at once; Send, Ack,
// Nack and DeadLetter do both.

// Fate is what becomes of a staged message when it is published.
type Fate uint8

// The fates.
const (
	Arrives Fate = iota + 1
	Leaves
	Waits
	Dies
	Lapses // leaves, because it is too old and no trace of it is wanted
)

// Delivery names one delivery: what a receipt says about this shard.
type Delivery struct {
	Seq   uint64
	Nonce uint64
	ID    string
}

// StageSend prepares a message. The caller has made sure, at the same moment,
// that there is Room. Body and extra belong to the shard from now on.
func (s *Shard) StageSend(now Moment, id string, body []byte, extra *Extra, delay time.Duration) *Entry {
	e := s.newEntry()
	e.ID, e.Body, e.Extra = id, body, extra
	e.Size = uint32(len(body))
	e.EnqueuedAt = now.Wall
	e.Due = now.At.Add(delay)
	s.arrive(now, e)
	return e
}

// arrive gives e a place at the tail and reserves its room.
func (s *Shard) arrive(now Moment, e *Entry) {
	e.Seq = s.nextSeq
	e.Marks = 0
	s.moveToTail(e)
	e.Left = 0
	e.Born = max(now.At, e.Due)
	e.timerIndex = -1
	e.set(Timed|Late, e.Due > now.At)
	e.State, e.Fate = Staged, Arrives
	s.arriving++
	s.arrivingBytes += int(e.Size)
}

// moveToTail gives e the next place.
func (s *Shard) moveToTail(e *Entry) {
	e.Left = e.Place
	e.Place = s.nextSeq
	s.nextSeq++
	if s.window != nil {
		s.window.unpublished = append(s.window.unpublished, e.Place)
		e.set(placed, true)
	}
}

// StageAck prepares to remove a message for ever, or returns ErrReceiptExpired.
func (s *Shard) StageAck(now Moment, d Delivery) (*Entry, error) {
	e, err := s.stage(now, d)
	if err != nil {
		return nil, err
	}
	e.Fate = Leaves
	return e, nil
}

// StageNack prepares to give a message back, ready after delay, or to let it
// die if it was delivered as often as it may be. It may return
// ErrReceiptExpired.
func (s *Shard) StageNack(now Moment, d Delivery, delay time.Duration, cause string) (*Entry, error) {
	e, err := s.stage(now, d)
	if err != nil {
		return nil, err
	}
	if cause != "" {
		e.extra().LastError = cause
	}
	s.judge(now, e, delay)
	if e.Fate == Waits && !s.config.StrictGroups && !s.exhausted(e) {
		s.moveToTail(e)
	}
	e.set(told, true)
	return e, nil
}

// StageDeadLetter prepares to make a message a dead letter. It may return
// ErrReceiptExpired, or ErrFull, which changes nothing.
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
	s.condemn(now, e, reason)
	e.set(told, true)
	return e, nil
}

// stage takes a message that is in flight out of everybody's reach.
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

// held returns the message that d names if d is its latest delivery and the
// lease is not over, and nil otherwise.
func (s *Shard) held(d Delivery) *Entry {
	e := s.inFlight.get(d.Seq)
	if e == nil || e.State != InFlight || e.Nonce != d.Nonce || e.ID != d.ID {
		return nil
	}
	return e
}

// judge decides what becomes of a message that was delivered and comes back.
// While the dead letters are full, one that ought to die waits instead.
func (s *Shard) judge(now Moment, e *Entry, delay time.Duration) {
	e.Fate = Waits
	e.Due = now.At.Add(delay)
	switch {
	case s.exhausted(e) && s.deadFull(driver.ReasonMaxDeliveries):
		e.Due = now.At.Add(max(delay, driver.DeadRetry))
	case s.exhausted(e):
		s.condemn(now, e, driver.ReasonMaxDeliveries)
	case s.tooOld(now.At, e) && s.config.DropExpired:
		e.Fate = Lapses
	case s.tooOld(now.At, e) && !s.deadFull(driver.ReasonExpired):
		s.condemn(now, e, driver.ReasonExpired)
	}
	e.set(Timed, e.Due > now.At)
}

// condemn seals the fate of a message; it is written down like this before it
// is buried.
func (s *Shard) condemn(now Moment, e *Entry, reason driver.Reason) {
	e.Fate = Dies
	e.set(Leaving, s.forwards(reason))
	s.dying++
	s.deaths++
	e.Left, e.Place = e.Place, s.deaths
	if s.holdsAges() {
		e.HoldUntil = now.At // the order by age may hold it; see bury
	} else {
		e.Born = now.At
	}
	x := e.extra()
	x.Reason = reason
	x.DeadAt = now.Wall
}

// Publish lets a staged message meet its fate.
func (s *Shard) Publish(now Moment, e *Entry) {
	s.Advance(now)
	s.Fulfil(now, e)
	s.Advance(now) // it may have come due, or grown old, meanwhile
}

// Fulfil is Publish at the very moment of staging.
func (s *Shard) Fulfil(now Moment, e *Entry) {
	if e.Is(placed) {
		e.set(placed, false)
		s.window.published(e)
	}
	if e.Fate == Arrives {
		s.arriving--
		s.arrivingBytes -= int(e.Size)
		s.bytes += int(e.Size)
		s.wait(e, Sent)
		s.trackArrival(e)
		s.expireByCount(now)
		return
	}
	s.unlease(e)
	switch e.Fate {
	case Leaves:
		s.effect(Acked, e)
		s.remove(e)
	case Lapses:
		s.effect(Withdrawn, e)
		s.ended(driver.EndingDropped, e)
		s.remove(e)
	case Waits:
		s.keep(e)
		s.expireByCount(now)
	case Dies:
		s.die(e)
	}
}

// unlease takes e out of flight; it is then in no order but perhaps the one by
// age, and its group is for the caller to settle.
func (s *Shard) unlease(e *Entry) {
	s.inFlight.remove(e)
	s.stats.InFlight--
	if g := e.group; g != nil {
		g.out--
		g.blockers.remove(e.placeInGroup())
	}
}

// placeInGroup is the place that a message in flight has among those that wait: one
// that is condemned has left it for its place among the dead.
func (e *Entry) placeInGroup() uint64 {
	if e.State == Staged && e.Fate == Dies {
		return e.Left
	}
	return e.Place
}

// keep lets a message that is in no order wait.
func (s *Shard) keep(e *Entry) {
	if s.window == nil {
		s.returned.add(e)
	}
	s.wait(e, Returned)
	s.trackAge(e)
}

// remove drops a message that is in no order but perhaps the one by age.
func (s *Shard) remove(e *Entry) {
	s.leave(e)
	s.leaveGroup(e)
	if s.holdsAges() {
		s.vanish(e)
		return
	}
	s.release(e)
}

// leave stops counting the body of a message that is in no order. An empty shard
// has none, whatever damaged messages were once counted with.
func (s *Shard) leave(e *Entry) {
	s.bytes -= int(e.Size)
	if s.stats.Waiting() == 0 {
		s.bytes = 0
	}
}
