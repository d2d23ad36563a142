package queuemodel

import (
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// Move moves ready messages, in order of place, to the tail of another model (DLQ-9). The
// caller finds the other model.
func (m *Model) Move(now time.Duration, to *Model, limit int) (moved int, err error) {
	if limit < 0 || to == m {
		return 0, m.fail("move", driver.ErrInvalid, 0)
	}
	m.advance(now)
	to.advance(now)
	var held error
	for _, msg := range m.Movable() {
		holder := to.holder(msg.unique)
		switch {
		case limit > 0 && moved == limit:
			return moved, held
		case !to.fits(1, len(msg.Body)) || (msg.unique != "" && holder == nil && to.keysFull()):
			return moved, m.fail("move", driver.ErrFull, SomeTime) // SND-5
		case holder != nil:
			held = m.fail("move", driver.ErrConflict, 0) // FLOW-5; the others are moved
			continue
		}
		m.remove(msg)
		msg.Deliveries, msg.due = 0, to.Now
		to.enqueue(msg)
		to.settle()
		moved++
	}
	return moved, held
}

// Movable returns the messages that are ready and, in strict groups, not blocked by another of
// their group (ORD-4).
func (m *Model) Movable() (movable []*Message) {
	if m.Config.StrictGroups {
		return m.unblocked()
	}
	for _, msg := range m.byPlace() {
		if !msg.Leased && msg.due <= m.Now {
			movable = append(movable, msg)
		}
	}
	return movable
}
