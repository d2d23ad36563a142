package queuemodel

import (
	"slices"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// Edit removes a message that waits, or changes its due time or its priority, and returns the state that it was
// in (FLOW-3). Its age and its time to live count from when it is due, and it keeps its place.
func (m *Model) Edit(now time.Duration, id string, edit driver.Edit) (was driver.State, err error) {
	m.advance(now)
	due := m.Now
	if !edit.DeliverAt.IsZero() {
		due = max(m.Now+edit.DeliverAt.Sub(m.wall()), m.Now)
	}
	if due-m.Now > m.Traits.MaxDelay {
		return "", m.fail("edit", driver.ErrInvalid, 0)
	}
	if err := edit.Check(&m.Traits); err != nil {
		return "", err
	}
	for _, msg := range slices.Concat(m.Waiting, m.Dead) {
		was = m.state(msg)
		waits := was == driver.StateReady || was == driver.StateDelayed
		switch {
		case msg.ID != id:
			continue
		case !waits:
			return "", driver.NotWaiting(id, was)
		case edit.Remove:
			m.remove(msg)
		case edit.Prioritize:
			msg.Priority = edit.Priority
		case was == driver.StateDelayed || due > m.Now:
			msg.due, msg.born, msg.since, msg.Delayed = due, due, due, due > m.Now
			msg.ends = due + msg.ttl // TIME-2
		}
		m.settle()
		return was, nil
	}
	return "", driver.NotWaiting(id, "")
}
