package queuemodel

import (
	"cmp"
	"slices"

	"github.com/mailboxmq/mailbox/driver"
)

// holder returns the message that holds a unique key, or nil (FLOW-5).
func (m *Model) holder(key string) *Message {
	for _, msg := range m.Waiting {
		if key != "" && msg.unique == key && msg.holds {
			return msg
		}
	}
	return nil
}

// keysFull reports whether the table of unique keys is full.
func (m *Model) keysFull() bool {
	held := 0
	for _, msg := range m.Waiting {
		if msg.holds {
			held++
		}
	}
	return m.Config.DedupMax > 0 && held >= m.Config.DedupMax
}

// sendHeld answers a send whose unique key is held: it adds no message, and replaces the one that
// waits if it was asked to (FLOW-5).
func (m *Model) sendHeld(msg *driver.Outgoing, holder *Message) (driver.Sent, error) {
	sent := driver.Sent{ID: holder.ID, Duplicate: true}
	if msg.Replace && !holder.Leased {
		if len(msg.Body) > len(holder.Body) && !m.fits(0, len(msg.Body)-len(holder.Body)) {
			return driver.Sent{}, m.fail("send", driver.ErrFull, SomeTime) // SND-5
		}
		m.replace(holder, msg)
		sent.Replaced = true
	}
	if msg.DedupKey != "" { // a repeat does not replace again
		m.Keys = append(m.Keys, modelKey{
			key: msg.DedupKey, body: string(msg.Body), ID: holder.ID, End: m.Now + m.Traits.DedupWindow,
		})
	}
	return sent, nil
}

// replace changes what a waiting message says and when it is due. It keeps its id, its place and
// its deliveries (FLOW-5), but late receipts may be of what it said before.
func (m *Model) replace(holder *Message, msg *driver.Outgoing) {
	holder.Body, holder.Attributes, holder.Seal = msg.Body, msg.Attributes, slices.Clone(msg.Seal)
	holder.ReplyTo, holder.CorrelationID = msg.ReplyTo, msg.CorrelationID
	holder.replaced = true
	due := m.Now + msg.Delay
	holder.due, holder.born, holder.since, holder.Delayed = due, due, due, due > m.Now
	holder.ttl = cmp.Or(msg.TTL, m.Config.TTL)
	holder.ends = due + holder.ttl
}
