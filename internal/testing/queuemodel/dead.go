package queuemodel

import (
	"slices"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// DeadLetters lists the dead letters, oldest death first (DLQ-5).
func (m *Model) DeadLetters(now time.Duration) []driver.DeadLetter {
	m.advance(now)
	letters := make([]driver.DeadLetter, len(m.Dead))
	for i, msg := range m.Dead {
		letters[i] = msg.DeadLetter
	}
	return letters
}

// Redrive moves dead letters to the tail (DLQ-5).
func (m *Model) Redrive(now time.Duration, ids []string, limit int) (moved int, err error) {
	m.advance(now)
	var held error
	for _, msg := range slices.Clone(m.Dead) {
		holder := m.holder(msg.unique)
		switch {
		case !slices.Contains(m.Dead, msg):
			continue // retention has just removed it
		case ids != nil && !slices.Contains(ids, msg.ID):
			continue
		case limit > 0 && moved == limit:
			return moved, held
		case !m.fits(1, len(msg.Body)) || (msg.unique != "" && holder == nil && m.keysFull()):
			return moved, m.fail("redrive", driver.ErrFull, 0) // SND-5
		case holder != nil:
			held = m.fail("redrive", driver.ErrConflict, 0) // FLOW-5; the others are redriven
			continue
		}
		m.removeDead(msg)
		m.settle() // what waited for the room that it leaves comes first
		msg.Source, msg.Reason, msg.ErrorType, msg.DeadAt = "", "", "", time.Time{}
		msg.Deliveries = 0
		msg.Redrives++
		msg.due, msg.ends = m.Now, m.Now+msg.ttl // TIME-2: it lives again
		m.enqueue(msg)
		moved++
		m.settle()
	}
	return moved, held
}

// Discard removes dead letters permanently, one after the other (DLQ-5).
func (m *Model) Discard(now time.Duration, ids []string) (removed int) {
	m.advance(now)
	for _, id := range ids {
		for _, letter := range slices.Clone(m.Dead) {
			if letter.ID == id {
				m.removeDead(letter)
				removed++
			}
		}
		m.settle()
	}
	return removed
}

// PurgeDead removes all dead letters (DLQ-5).
func (m *Model) PurgeDead(now time.Duration) (removed int) {
	m.advance(now)
	removed = len(m.Dead)
	m.Dead = nil
	m.settle()
	return removed
}
