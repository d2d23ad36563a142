package queuemodel

import (
	"slices"

	"github.com/mailboxmq/mailbox/driver"
)

// chooseStrictly is choose for a queue with strict groups (ORD-4). A group that was
// received from goes behind the others, when the batch is complete.
func (m *Model) chooseStrictly(req driver.ReceiveRequest) (batch []*Message, atCeiling bool) {
	batch, atCeiling = m.fill(req, m.nextOfGroups, func(*Message) {})
	served := make(map[string]bool)
	for _, msg := range batch {
		if !served[msg.Group] {
			served[msg.Group] = true
			m.serve(msg.Group)
		}
	}
	return batch, atCeiling
}

// nextOfGroups returns the message to add to a batch next, or nil: the first of the group that
// the batch took from last, and otherwise that of the group which stands first.
func (m *Model) nextOfGroups(batch []*Message) (next *Message) {
	var heads []*Message // the first deliverable message of each group
	for _, msg := range m.unblocked() {
		isLater := slices.ContainsFunc(heads, func(head *Message) bool { return head.Group == msg.Group })
		if !isLater && !slices.Contains(batch, msg) && !m.isOver(msg.Group, batch) {
			heads = append(heads, msg)
		}
	}
	for _, head := range heads {
		switch {
		case len(batch) > 0 && head.Group == batch[len(batch)-1].Group:
			return head
		case next == nil || m.standsBefore(head, next):
			next = head
		}
	}
	return next
}

// unblocked returns the ready messages that no message of their group blocks, in order of
// place.
func (m *Model) unblocked() (ready []*Message) {
	blocked := make(map[string]bool)
	for _, msg := range m.byPlace() {
		switch {
		case msg.Leased || m.blocks(msg):
			blocked[msg.Group] = true
		case msg.due <= m.Now && !blocked[msg.Group]:
			ready = append(ready, msg)
		}
	}
	return ready
}

// blocks reports whether a message of a strict group was delivered and is now delayed: it
// blocks later ones like a lease. A send delay does not.
func (m *Model) blocks(msg *Message) bool {
	return m.Config.StrictGroups && (msg.Deliveries > 0 || msg.Releases > 0) && msg.due > m.Now
}
