package queuemodel

import (
	"cmp"
	"slices"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// The parts of a Model that run without a call: what happens as time passes, how messages die,
// and how a peek shows them.

// advance applies all events up to now, each at its own time: the state of a queue never
// depends on when it was read.
func (m *Model) advance(now time.Duration) {
	for {
		next, ok := m.NextEvent()
		if !ok || next > now {
			break
		}
		m.passTo(next)
		m.settle()
	}
	m.passTo(max(m.Now, now))
}

func (m *Model) passTo(now time.Duration) {
	if now > m.Now {
		m.forgetTurns()
		m.Now = now
	}
}

// NextEvent returns the next time at which a message becomes ready, dies or disappears without
// a call, or a dedup key becomes free; ok is false if there is none.
func (m *Model) NextEvent() (at time.Duration, ok bool) {
	for _, t := range m.EventTimes() {
		if t > m.Now && (!ok || t < at) {
			at, ok = t, true
		}
	}
	return at, ok
}

// EventTimes returns the times of coming events, and some that are past.
func (m *Model) EventTimes() (times []time.Duration) {
	for _, msg := range m.Waiting {
		if msg.ttl > 0 && !msg.Leased {
			times = append(times, msg.ends)
		}
		switch {
		case msg.Leased:
			times = append(times, msg.Deadline)
		case m.Config.RetainReady.Age > 0:
			times = append(times, msg.due, msg.born+m.Config.RetainReady.Age)
		default:
			times = append(times, msg.due)
		}
	}
	for _, letter := range m.Dead {
		if m.Config.RetainDead.Age > 0 {
			times = append(times, letter.diedAt+m.Config.RetainDead.Age)
		}
	}
	for group := range m.buckets {
		times = append(times, m.nextToken(group))
	}
	for _, known := range m.Keys {
		times = append(times, known.End)
	}
	return times
}

// settle applies the rules that hold at all times. Of the events at one time, leases and delays
// end first, in the order in which their messages were sent, then times to live end, then
// messages are too old, then dead letters are.
func (m *Model) settle() {
	for _, msg := range slices.Clone(m.Waiting) {
		if msg.Leased && msg.Deadline <= m.Now { // VIS-1: at its deadline a lease is over
			msg.Leased = false // the message keeps its place (ORD-2)
			m.count(msg, driver.NackFailed)
			m.comeBack(msg)
		}
		if msg.Delayed && msg.due <= m.Now { // SND-2
			msg.Delayed = false
			if m.tooOld(msg) {
				m.lapse(msg)
			}
			m.retainCount()
		}
	}
	m.retain()
	m.trimDead()
	m.retain()                                                     // there may be room for dead letters now
	m.Keys = slices.DeleteFunc(m.Keys, func(known modelKey) bool { // DUP-3
		return known.End <= m.Now
	})
}

// comeBack applies the rules to a message whose lease is over: first its deliveries, then its
// age, then the number of messages.
func (m *Model) comeBack(msg *Message) {
	switch {
	case m.exhausted(msg):
		m.dieOrWait(msg)
	case m.outlived(msg):
		m.lapseOrWait(msg)
	case m.tooOld(msg):
		m.lapse(msg)
	}
	m.retainCount()
}

// outlived reports whether the time to live of a message is over.
func (m *Model) outlived(msg *Message) bool { return msg.ttl > 0 && msg.ends <= m.Now }

// lapseOrWait ends a message whose time to live is over. While the dead letters are full, it
// waits for room, and is not delivered (TIME-2).
func (m *Model) lapseOrWait(msg *Message) {
	if m.deadFull() && !m.Config.DropExpired {
		msg.due, msg.Delayed = m.Now+roomWait, true
		return
	}
	m.lapse(msg)
}

// roomWait is longer than anything else.
const roomWait = 366 * 24 * time.Hour

// lapse ends a message that is past its retention or its time to live: it dies, if there is
// room for a dead letter (RET-1), or is dropped (RET-2).
func (m *Model) lapse(msg *Message) {
	switch {
	case m.Config.DropExpired:
		m.remove(msg)
	case !m.deadFull():
		m.die(msg, driver.ReasonExpired)
	}
}

// retain handles what is over, in the order of the times when it was: times to live (TIME-2),
// the age of ready messages, and that of dead letters (RET-1). Messages that become dead letters
// wait for room; until then those that are only too old stay deliverable.
func (m *Model) retain() {
	for {
		var next *Message
		var at time.Duration
		isDead := false
		consider := func(msg *Message, over time.Duration, dead bool) {
			if over <= m.Now && (next == nil || over < at) {
				next, at, isDead = msg, over, dead
			}
		}
		if m.Config.DropExpired || !m.deadFull() {
			for _, msg := range m.Waiting {
				if msg.ttl > 0 && !msg.Leased {
					consider(msg, msg.ends, false)
				}
			}
			for _, msg := range m.byAge() {
				if m.Config.RetainReady.Age > 0 {
					consider(msg, msg.born+m.Config.RetainReady.Age, false)
				}
			}
		}
		for _, letter := range m.Dead {
			if m.Config.RetainDead.Age > 0 {
				consider(letter, letter.diedAt+m.Config.RetainDead.Age, true)
			}
		}
		switch {
		case next == nil:
			m.retainCount()
			return
		case isDead:
			m.removeDead(next)
			m.retainCount()
		default:
			m.lapse(next)
		}
	}
}

func (m *Model) retainCount() {
	most := m.Config.RetainReady.Count
	if most == 0 {
		return
	}
	for _, msg := range m.byAge() {
		if len(m.byAge()) > most {
			m.lapse(msg)
		}
	}
}

// byAge returns the ready messages, oldest first.
func (m *Model) byAge() (ready []*Message) {
	for _, msg := range m.Waiting {
		if !msg.Leased && !msg.Delayed {
			ready = append(ready, msg)
		}
	}
	slices.SortStableFunc(ready, func(a, b *Message) int { return cmp.Compare(a.born, b.born) })
	return ready
}

func (m *Model) tooOld(msg *Message) bool {
	return m.Config.RetainReady.Age > 0 && m.Now >= msg.born+m.Config.RetainReady.Age
}

// exhausted reports whether a message has reached its delivery limit (DLQ-1).
func (m *Model) exhausted(msg *Message) bool {
	return m.Config.MaxDeliveries > 0 && msg.Deliveries >= m.Config.MaxDeliveries
}

// deadFull reports whether another dead letter does not fit. Retention by count, where it
// is tighter than the limit, makes room (RET-1).
func (m *Model) deadFull() bool {
	most := m.Config.RetainDead.Count
	return m.Config.MaxDead > 0 && len(m.Dead) >= m.Config.MaxDead && (most == 0 || most >= m.Config.MaxDead)
}

// die makes a message a dead letter (DLQ-4).
func (m *Model) die(msg *Message, reason driver.Reason) {
	m.remove(msg)
	msg.Leased = false
	msg.Source, msg.Reason, msg.DeadAt, msg.diedAt = m.name, reason, m.wall(), m.Now
	m.Dead = append(m.Dead, msg)
	m.trimDead()
}

// dieOrWait lets an exhausted message die or, if the dead letters are full, wait for at least
// DeadRetry at its place (DLQ-5).
func (m *Model) dieOrWait(msg *Message) {
	if m.deadFull() {
		msg.due = max(msg.due, m.Now+driver.DeadRetry)
		msg.Delayed = true
		return
	}
	m.die(msg, driver.ReasonMaxDeliveries)
}

// trimDead removes the oldest dead letters beyond RetainDead.Count (RET-1).
func (m *Model) trimDead() {
	if most := m.Config.RetainDead.Count; most > 0 && len(m.Dead) > most {
		m.Dead = m.Dead[len(m.Dead)-most:]
	}
}

func (m *Model) remove(msg *Message) {
	m.Waiting = slices.DeleteFunc(m.Waiting, func(other *Message) bool { return other == msg })
}

func (m *Model) removeDead(letter *Message) {
	m.Dead = slices.DeleteFunc(m.Dead, func(other *Message) bool { return other == letter })
}

// Held returns the message of a valid receipt: that of the latest delivery, before the end of
// the lease (VIS-2).
func (m *Model) Held(receipt driver.Receipt) *Message {
	for _, msg := range m.Waiting {
		if msg.Leased && msg.Nonce == receipt.Nonce && msg.ID == receipt.Handle {
			return msg
		}
	}
	return nil
}

// Delivered returns the message that was delivered with a receipt, if it has kept its place
// and its content since (VIS-7, FLOW-5).
func (m *Model) Delivered(receipt driver.Receipt) *Message {
	for _, msg := range m.Waiting {
		if msg.ID == receipt.Handle && slices.Contains(msg.Given, receipt.Nonce) && (!msg.replaced || m.Held(receipt) == msg) {
			return msg
		}
	}
	return nil
}

// fits reports whether there is room for n more messages of this size together (SND-5).
func (m *Model) fits(n, size int) bool {
	for _, msg := range m.Waiting {
		size += len(msg.Body)
	}
	return (m.Config.MaxMessages == 0 || len(m.Waiting)+n <= m.Config.MaxMessages) &&
		(m.Config.MaxBytes == 0 || size <= m.Config.MaxBytes)
}

func (m *Model) state(msg *Message) driver.State {
	switch {
	case msg.Reason != "":
		return driver.StateDead
	case msg.Leased:
		return driver.StateInFlight
	case msg.due > m.Now:
		return driver.StateDelayed
	}
	return driver.StateReady
}

func (m *Model) byPlace() []*Message {
	return slices.SortedFunc(slices.Values(m.Waiting), func(a, b *Message) int { return cmp.Compare(a.Place, b.Place) })
}

// Peek returns the messages that match query: ready ones in order of place,
// then delayed, in flight and dead ones by time (CNT-2).
func (m *Model) Peek(now time.Duration, query driver.Query) []driver.Peeked {
	m.advance(now)
	var found []driver.Peeked
	for _, state := range []driver.State{driver.StateReady, driver.StateDelayed, driver.StateInFlight, driver.StateDead} {
		messages := m.byPlace()
		if state == driver.StateDead {
			messages = m.Dead
		}
		var inState []driver.Peeked
		for _, msg := range messages {
			if m.state(msg) == state && m.matches(msg, query) {
				inState = append(inState, m.peeked(msg))
			}
		}
		slices.SortStableFunc(inState, func(a, b driver.Peeked) int { return a.DueAt.Compare(b.DueAt) })
		found = append(found, inState...)
	}
	if query.Limit > 0 && len(found) > query.Limit {
		found = found[:query.Limit]
	}
	return found
}

func (m *Model) matches(msg *Message, query driver.Query) bool {
	for key, value := range query.Attributes {
		if got, ok := msg.Attributes[key]; !ok || got != value {
			return false
		}
	}
	return (len(query.States) == 0 || slices.Contains(query.States, m.state(msg))) &&
		(query.ID == "" || query.ID == msg.ID) &&
		(query.OlderThan == 0 || m.wall().Sub(msg.EnqueuedAt) >= query.OlderThan) &&
		(query.Reason == "" || query.Reason == msg.Reason)
}

func (m *Model) peeked(msg *Message) driver.Peeked {
	peeked := driver.Peeked{DeadLetter: msg.DeadLetter, State: m.state(msg)}
	switch peeked.State {
	case driver.StateDelayed:
		peeked.DueAt = m.start.Add(msg.due).UTC()
	case driver.StateInFlight:
		peeked.DueAt = m.start.Add(msg.Deadline).UTC()
	}
	return peeked
}

// delayed returns a message with the delay that its due time means now (SND-2, TIME-0). The
// wall clock of a model does not step.
func (m *Model) delayed(msg *driver.Outgoing) (*driver.Outgoing, error) {
	if msg.DeliverAt.IsZero() {
		return msg, nil
	}
	delayed := *msg
	delayed.DeliverAt, delayed.Delay = time.Time{}, max(msg.DeliverAt.Sub(m.wall()), 0)
	if msg.Delay != 0 {
		return nil, m.fail("send", driver.ErrInvalid, 0)
	}
	return &delayed, nil
}
