package queuemodel

import (
	"slices"

	"github.com/mailboxmq/mailbox/driver"
)

// A modelTurn is when a group was last served (FAIR-2, ORD-4).
type modelTurn struct {
	after  uint64 // the last place given out at that time
	served int    // number of turns of all groups at that time
}

// chooseFairly is choose for a queue with fair groups.
func (m *Model) chooseFairly(req driver.ReceiveRequest) (batch []*Message, atCeiling bool) {
	return m.fill(req, m.quietest, func(msg *Message) {
		if msg.Group != "" {
			m.serve(msg.Group)
		}
	})
}

// fill fills a batch with what next returns, which is nil at the end, and calls took for
// each message of it.
func (m *Model) fill(req driver.ReceiveRequest, next func(batch []*Message) *Message, took func(*Message)) (batch []*Message, atCeiling bool) {
	size := 0
	for len(batch) < req.Max {
		msg := next(batch)
		switch {
		case msg == nil:
			return batch, false
		case m.exhausted(msg): // DLQ-1: moved instead of delivered
			m.dieOrWait(msg)
			continue
		case m.outlived(msg): // TIME-2
			m.lapseOrWait(msg)
			continue
		case m.Config.MaxInFlight > 0 && m.out(nil)+len(batch) >= m.Config.MaxInFlight:
			return batch, true
		case len(batch) > 0 && req.MaxBytes > 0 && size+len(msg.Body) > req.MaxBytes:
			return batch, false
		}
		batch = append(batch, msg)
		size += len(msg.Body)
		m.spend(msg.Group)
		took(msg)
	}
	return batch, false
}

// serve records that a group was served.
func (m *Model) serve(group string) {
	m.served++
	m.turns[group] = modelTurn{after: m.Place, served: m.served}
}

// quietest returns the message to add to a batch next, or nil.
func (m *Model) quietest(batch []*Message) (quietest *Message) {
	for _, msg := range m.byPlace() {
		ready := !msg.Leased && msg.due <= m.Now && !slices.Contains(batch, msg) && !m.isOver(msg.Group, batch)
		if ready && (quietest == nil || m.goesBefore(msg, quietest, batch)) {
			quietest = msg
		}
	}
	return quietest
}

// goesBefore reports whether a, which is at a higher place, goes before b: its group has fewer
// messages in flight, or as many and stands before the other, or at the same place and was
// served longer ago (FAIR-1, FAIR-2).
func (m *Model) goesBefore(a, b *Message, batch []*Message) bool {
	if outA, outB := m.outOf(a, batch), m.outOf(b, batch); outA != outB {
		return outA < outB
	}
	return m.standsBefore(a, b)
}

// standsBefore reports whether the group of a, whose first deliverable message is a, stands
// before that of b (FAIR-2, ORD-4).
func (m *Model) standsBefore(a, b *Message) bool {
	turnA, turnB := m.turns[a.Group], m.turns[b.Group]
	if standsA, standsB := max(a.Place, turnA.after), max(b.Place, turnB.after); standsA != standsB {
		return standsA < standsB
	}
	return turnA.served < turnB.served
}

// outOf counts the messages in flight of a message's group. A message without a group is a
// group of its own.
func (m *Model) outOf(msg *Message, batch []*Message) (out int) {
	if msg.Group == "" {
		return 0
	}
	for _, taken := range batch {
		if taken.Group == msg.Group {
			out++
		}
	}
	return out + m.out(&msg.Group)
}

// out counts the messages in flight, of one group if it is given.
func (m *Model) out(group *string) (out int) {
	for _, msg := range m.Waiting {
		if msg.Leased && (group == nil || msg.Group == *group) {
			out++
		}
	}
	return out
}

// forgetTurns forgets the turns of groups that have no message that is ready, in flight or
// blocking.
func (m *Model) forgetTurns() {
	busy := make(map[string]bool)
	for _, msg := range m.Waiting {
		if msg.Leased || msg.due <= m.Now || m.blocks(msg) {
			busy[msg.Group] = true
		}
	}
	for group := range m.turns {
		if !busy[group] {
			delete(m.turns, group)
		}
	}
}
