package drivertest

import (
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// Move makes what is ready here, in order of place, ready at the tail of another
// model (DLQ-9). Whoever has the models finds the other one.
func (m *Model) Move(now time.Duration, to *Model, limit int) (moved int, err error) {
	if limit < 0 || to == m {
		return 0, m.fail("move", driver.ErrInvalid, 0)
	}
	m.advance(now)
	to.advance(now)
	for _, msg := range m.movable() {
		switch {
		case limit > 0 && moved == limit:
			return moved, nil
		case !to.fits(len(msg.Body)):
			return moved, m.fail("move", driver.ErrFull, someTime) // SND-5
		}
		m.remove(msg)
		msg.Deliveries, msg.due = 0, to.now
		to.enqueue(msg)
		to.settle()
		moved++
	}
	return moved, nil
}

// movable returns what is ready and, in strict groups, not kept back by another
// of its group (ORD-4).
func (m *Model) movable() (movable []*modelMessage) {
	if m.config.StrictGroups {
		return m.unblocked()
	}
	for _, msg := range m.byPlace() {
		if !msg.leased && msg.due <= m.now {
			movable = append(movable, msg)
		}
	}
	return movable
}
