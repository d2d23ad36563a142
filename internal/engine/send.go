package engine

import (
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// Sending happens in two steps, like settling: see settle.go.

// Room returns nil if one more message with a body of this size fits, and
// ErrFull if it does not.
func (s *Shard) Room(now Moment, size int) error {
	s.Advance(now)
	if !s.Fits(size) {
		return driver.ErrFull
	}
	return nil
}

// Fits reports whether one more message with a body of this size fits, as of the
// last Advance.
func (s *Shard) Fits(size int) bool { return s.FitAll(1, size) }

// FitAll reports whether n more messages fit, with bodies of this size together, as of the
// last Advance.
func (s *Shard) FitAll(n, size int) bool {
	if s.config.MaxMessages > 0 && s.stats.Waiting()+int(s.arriving)+n > s.config.MaxMessages {
		return false
	}
	return s.config.MaxBytes == 0 || s.bytes+s.arrivingBytes+size <= s.config.MaxBytes
}

// StageSend prepares a new message, delayed until content.Extra.DeliverAt if that is
// set. Of content.Extra.Life it takes the TTL. The caller has called Room with the same now.
// The content belongs to the shard from now on.
func (s *Shard) StageSend(now Moment, content Content, delay time.Duration) *Entry {
	e := s.newEntry()
	e.Content = content
	e.Size = uint32(len(content.Body))
	e.EnqueuedAt = now.Wall
	e.Due = now.At.Add(delay)
	if x := content.Extra; x != nil && x.DeliverAt != 0 {
		e.Due = now.At.Add(time.Duration(x.DeliverAt - now.Wall))
	}
	if e.life() != nil {
		s.startLife(now, e)
	}
	s.arrive(now, e)
	s.followWall(now, e)
	return e
}

// arrive gives e a place at the tail and reserves its room.
func (s *Shard) arrive(now Moment, e *Entry) {
	e.Seq = s.nextSeq
	e.Marks = 0
	s.moveToTail(e)
	e.Left = 0
	e.Born = max(now.At, e.Due)
	e.restart = restart{}
	if s.config.StrictGroups || s.config.FairGroups {
		e.Priority = 0 // they have none, and a message may come from a queue that does
	}
	e.timerIndex = -1
	e.set(Timed|Late, e.Due > now.At)
	e.State, e.Outcome = Staged, Arrives
	s.arriving++
	s.arrivingBytes += int(e.Size)
	if e.unique() != nil {
		s.claim(e)
	}
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

// Send adds a message; see StageSend.
func (s *Shard) Send(now Moment, content Content, delay time.Duration) *Entry {
	e := s.StageSend(now, content, delay)
	s.PublishNow(now, e)
	return e
}
