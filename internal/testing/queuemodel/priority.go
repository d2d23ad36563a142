package queuemodel

import "github.com/mailboxmq/mailbox/driver"

// byLevel returns the ready messages in the order in which they are delivered: of each priority
// the one with the lowest place is considered, and of these the one with the highest level goes
// next, or, of several such, the one with the lowest place (FLOW-1).
func (m *Model) byLevel() (ordered []*Message) {
	var orders [driver.MaxPriority + 1][]*Message
	ready := 0
	for _, msg := range m.byPlace() {
		if !msg.Leased && msg.due <= m.Now {
			orders[msg.Priority] = append(orders[msg.Priority], msg)
			ready++
		}
	}
	for range ready {
		var next *Message
		for _, order := range orders {
			if len(order) == 0 {
				continue
			}
			if head := order[0]; next == nil || m.level(head) > m.level(next) || (m.level(head) == m.level(next) && head.Place < next.Place) {
				next = head
			}
		}
		orders[next.Priority] = orders[next.Priority][1:]
		ordered = append(ordered, next)
	}
	return ordered
}

// level returns the priority of a message, and one more for each PriorityAging that it has been
// ready for (FLOW-1).
func (m *Model) level(msg *Message) int {
	level := msg.Priority
	if m.Config.PriorityAging > 0 {
		level += int((m.Now - msg.since) / m.Config.PriorityAging)
	}
	return min(level, driver.MaxPriority)
}
