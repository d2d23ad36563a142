package drivertest

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
	m.passTo(max(m.now, now))
}

func (m *Model) passTo(now time.Duration) {
	if now > m.now {
		m.forgetTurns()
		m.now = now
	}
}

// NextEvent returns the next time at which a message becomes ready, dies or disappears without
// a call, or a dedup key becomes free; ok is false if there is none.
func (m *Model) NextEvent() (at time.Duration, ok bool) {
	for _, t := range m.events() {
		if t > m.now && (!ok || t < at) {
			at, ok = t, true
		}
	}
	return at, ok
}

// events returns the times of coming events, and some that are past.
func (m *Model) events() (times []time.Duration) {
	for _, msg := range m.waiting {
		switch {
		case msg.leased:
			times = append(times, msg.deadline)
		case m.config.RetainReady.Age > 0:
			times = append(times, msg.due, msg.born+m.config.RetainReady.Age)
		default:
			times = append(times, msg.due)
		}
	}
	for _, letter := range m.dead {
		if m.config.RetainDead.Age > 0 {
			times = append(times, letter.diedAt+m.config.RetainDead.Age)
		}
	}
	for _, known := range m.keys {
		times = append(times, known.end)
	}
	return times
}

// settle applies the rules that hold at all times. Of the events at one time, leases and delays
// end first, in the order in which their messages were sent, then messages expire, then dead
// letters do.
func (m *Model) settle() {
	for _, msg := range slices.Clone(m.waiting) {
		if msg.leased && msg.deadline <= m.now { // VIS-1: at its deadline a lease is over
			msg.leased = false // the message keeps its place (ORD-2)
			m.comeBack(msg)
		}
		if msg.delayed && msg.due <= m.now { // SND-2
			msg.delayed = false
			if m.tooOld(msg) {
				m.lapse(msg)
			}
			m.retainCount()
		}
	}
	m.retain()
	m.dead = slices.DeleteFunc(m.dead, func(letter *modelMessage) bool { // RET-1
		return m.config.RetainDead.Age > 0 && letter.diedAt+m.config.RetainDead.Age <= m.now
	})
	m.trimDead()
	m.retain()                                                     // there may be room for dead letters now
	m.keys = slices.DeleteFunc(m.keys, func(known modelKey) bool { // DUP-3
		return known.end <= m.now
	})
}

// comeBack applies the rules to a message whose lease is over: first its deliveries, then its
// age, then the number of messages.
func (m *Model) comeBack(msg *modelMessage) {
	switch {
	case m.exhausted(msg):
		m.dieOrWait(msg)
	case m.tooOld(msg):
		m.lapse(msg)
	}
	m.retainCount()
}

// lapse ends a message that is past its retention: it dies, if there is room for a dead letter
// (RET-1), or is dropped (RET-2).
func (m *Model) lapse(msg *modelMessage) {
	switch {
	case m.config.DropExpired:
		m.remove(msg)
	case !m.deadFull():
		m.die(msg, driver.ReasonExpired)
	}
}

// retain ends ready messages past their retention (RET-1). Those that become dead letters wait
// for room, and stay ready until then.
func (m *Model) retain() {
	for _, msg := range m.byAge() {
		if m.tooOld(msg) {
			m.lapse(msg)
		}
	}
	m.retainCount()
}

func (m *Model) retainCount() {
	most := m.config.RetainReady.Count
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
func (m *Model) byAge() (ready []*modelMessage) {
	for _, msg := range m.waiting {
		if !msg.leased && !msg.delayed {
			ready = append(ready, msg)
		}
	}
	slices.SortStableFunc(ready, func(a, b *modelMessage) int { return cmp.Compare(a.born, b.born) })
	return ready
}

func (m *Model) tooOld(msg *modelMessage) bool {
	return m.config.RetainReady.Age > 0 && m.now >= msg.born+m.config.RetainReady.Age
}

// exhausted reports whether a message has reached its delivery limit (DLQ-1).
func (m *Model) exhausted(msg *modelMessage) bool {
	return m.config.MaxDeliveries > 0 && msg.Deliveries >= m.config.MaxDeliveries
}

func (m *Model) deadFull() bool {
	return m.config.MaxDead > 0 && len(m.dead) >= m.config.MaxDead
}

// die makes a message a dead letter (DLQ-4).
func (m *Model) die(msg *modelMessage, reason driver.Reason) {
	m.remove(msg)
	msg.leased = false
	msg.Source, msg.Reason, msg.DeadAt, msg.diedAt = m.name, reason, m.wall(), m.now
	m.dead = append(m.dead, msg)
	m.trimDead()
}

// dieOrWait lets an exhausted message die or, if the dead letters are full, wait for at least
// DeadRetry at its place (DLQ-5).
func (m *Model) dieOrWait(msg *modelMessage) {
	if m.deadFull() {
		msg.due = max(msg.due, m.now+driver.DeadRetry)
		msg.delayed = true
		return
	}
	m.die(msg, driver.ReasonMaxDeliveries)
}

// trimDead removes the oldest dead letters beyond RetainDead.Count (RET-1).
func (m *Model) trimDead() {
	if most := m.config.RetainDead.Count; most > 0 && len(m.dead) > most {
		m.dead = m.dead[len(m.dead)-most:]
	}
}

func (m *Model) remove(msg *modelMessage) {
	m.waiting = slices.DeleteFunc(m.waiting, func(other *modelMessage) bool { return other == msg })
}

func (m *Model) removeDead(letter *modelMessage) {
	m.dead = slices.DeleteFunc(m.dead, func(other *modelMessage) bool { return other == letter })
}

// held returns the message of a valid receipt: that of the latest delivery, before the end of
// the lease (VIS-2).
func (m *Model) held(receipt driver.Receipt) *modelMessage {
	for _, msg := range m.waiting {
		if msg.leased && msg.nonce == receipt.Nonce && msg.ID == receipt.Handle {
			return msg
		}
	}
	return nil
}

// delivered returns the message that was delivered with a receipt, if it has kept its place
// since (VIS-7).
func (m *Model) delivered(receipt driver.Receipt) *modelMessage {
	for _, msg := range m.waiting {
		if msg.ID == receipt.Handle && slices.Contains(msg.given, receipt.Nonce) {
			return msg
		}
	}
	return nil
}

// fits reports whether there is room for one more message (SND-5).
func (m *Model) fits(size int) bool {
	for _, msg := range m.waiting {
		size += len(msg.Body)
	}
	return (m.config.MaxMessages == 0 || len(m.waiting) < m.config.MaxMessages) &&
		(m.config.MaxBytes == 0 || size <= m.config.MaxBytes)
}

func (m *Model) state(msg *modelMessage) driver.State {
	switch {
	case msg.Reason != "":
		return driver.StateDead
	case msg.leased:
		return driver.StateInFlight
	case msg.due > m.now:
		return driver.StateDelayed
	}
	return driver.StateReady
}

func (m *Model) byPlace() []*modelMessage {
	return slices.SortedFunc(slices.Values(m.waiting), func(a, b *modelMessage) int { return cmp.Compare(a.place, b.place) })
}

// Peek returns the messages that match query: ready ones in order of place,
// then delayed, in flight and dead ones by time (CNT-2).
func (m *Model) Peek(now time.Duration, query driver.Query) []driver.Peeked {
	m.advance(now)
	var found []driver.Peeked
	for _, state := range []driver.State{driver.StateReady, driver.StateDelayed, driver.StateInFlight, driver.StateDead} {
		messages := m.byPlace()
		if state == driver.StateDead {
			messages = m.dead
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

func (m *Model) matches(msg *modelMessage, query driver.Query) bool {
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

func (m *Model) peeked(msg *modelMessage) driver.Peeked {
	peeked := driver.Peeked{DeadLetter: msg.DeadLetter, State: m.state(msg)}
	switch peeked.State {
	case driver.StateDelayed:
		peeked.DueAt = m.start.Add(msg.due).UTC()
	case driver.StateInFlight:
		peeked.DueAt = m.start.Add(msg.deadline).UTC()
	}
	return peeked
}
