package history

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// The checks of single messages: each was sent, has one end, and is held by one client at a
// time.

// checkOrigin: a delivered message equals the sent one (SND-3), and was sent before.
func (c *checker) checkOrigin(m *lifetime) {
	if len(m.sends) == 0 {
		return // see checkPhantoms
	}
	for _, e := range m.sends[1:] {
		if e.Digest != m.sends[0].Digest {
			c.violate("DUP-2", m, "sends of different bodies got one id", m.sends[0], e)
		}
	}
	for _, d := range m.deliveries {
		if d.Digest != m.sends[0].Digest {
			c.violate("SND-3", m, "the body delivered is not the body sent", m.sends[0], d.Event)
		}
		if !c.canStemFrom(d.Event, m.sends) && !c.canStemFrom(d.Event, c.unsure[d.Digest]) {
			c.violate("SND-6", m, "it was delivered before it was sent", m.sends[0], d.Event)
		}
	}
}

// canStemFrom reports whether one of sends can have happened before e.
func (c *checker) canStemFrom(e *Event, sends []*Event) bool {
	for _, send := range sends {
		if !c.precedes(e, send) {
			return true
		}
	}
	return false
}

// checkLoss: a sent message is acked, present, or removed on purpose (SND-1); an acked message
// is not present (ACK-1).
func (c *checker) checkLoss(m *lifetime) {
	if c.final.Present == nil || len(m.sends) == 0 {
		return
	}
	var acked, maybeAcked *Event
	for _, d := range m.deliveries {
		for _, s := range d.settlements {
			switch {
			case s.Op != OpAck:
			case s.Outcome == OutcomeOK:
				acked = s
			default:
				maybeAcked = s
			}
		}
	}
	state, present := c.final.Present[m.id]
	switch {
	case present && acked != nil:
		c.violate("ACK-1", m, fmt.Sprintf("it was acked and is %s at the end", state), acked)
	case present, acked != nil, maybeAcked != nil, c.mayBeRemoved(m):
	default:
		c.violate("SND-1", m, "it is lost: neither acked nor present nor removed", m.sends[0])
	}
}

// mayBeRemoved reports whether an operation removed, or can have removed, the message without
// an ack.
func (c *checker) mayBeRemoved(m *lifetime) bool {
	if c.terms.Config.RetainDead.Age > 0 || c.terms.Config.RetainDead.Count > 0 {
		return true
	}
	removals := slices.Concat(c.aimedAt(OpPurge, m.id), c.aimedAt(OpPurgeDead, m.id), c.aimedAt(OpDiscard, m.id))
	if !c.terms.Traits.Durability.Restarts() {
		removals = append(removals, c.byOp[OpCrash]...)
	}
	for _, removal := range removals {
		if m.origin == nil || !c.precedes(removal, m.origin) {
			return true
		}
	}
	return false
}

// checkAttempts: deliveries are counted 1, 2, 3, … (RCV-3), never beyond the
// limit (DLQ-1).
func (c *checker) checkAttempts(m *lifetime) {
	most := c.terms.Config.MaxDeliveries
	for _, d := range m.deliveries {
		switch {
		case d.Deliveries < 1:
			c.violate("RCV-3", m, fmt.Sprintf("delivery count %d, the first is 1", d.Deliveries), d.Event)
		case most > 0 && d.Deliveries > most:
			c.violate("DLQ-1", m, fmt.Sprintf("delivery %d, at most %d are allowed", d.Deliveries, most), d.Event)
		}
	}
	if len(m.deliveries) == 0 || !m.counted {
		return
	}
	for i, d := range m.deliveries[1:] {
		if before := m.deliveries[i]; d.Deliveries == before.Deliveries {
			c.violate("RCV-3", m, fmt.Sprintf("two deliveries are both number %d", d.Deliveries), before.Event, d.Event)
		} else if c.precedes(d.Event, before.Event) {
			c.violate("RCV-3", m, "the count went down", d.Event, before.Event)
		}
	}
	if c.blind {
		return // a receive of unknown outcome may have got the missing ones
	}
	if last := m.deliveries[len(m.deliveries)-1]; last.Deliveries > len(m.deliveries) {
		c.violate("RCV-2", m, fmt.Sprintf("it counts %d deliveries, but receivers got %d: one is stranded", last.Deliveries, len(m.deliveries)), last.Event)
	}
}

// checkLeases: no message is delivered while another receiver holds it (VIS-1).
func (c *checker) checkLeases(m *lifetime) {
	for i := 1; i < len(m.deliveries); i++ {
		first, second := m.deliveries[i-1], m.deliveries[i]
		if !c.inOrder(m, first, second) || !c.surelyHeld(first, second.Event) {
			continue
		}
		if c.anyBetween(c.byOp[OpCrash], first.Event, second.Event) {
			c.report.Repeats++
			continue
		}
		c.violate("VIS-1", m, "it was delivered while another delivery of it held it", first.Event, second.Event)
	}
}

// surelyHeld reports whether the lease of d lasted until e had returned, for every choice of
// the points of effect. It does not check whether d came before e.
func (c *checker) surelyHeld(d *delivery, e *Event) bool {
	end := d.Invoke.Time + int64(d.Duration)
	var last *Event
	for _, s := range d.settlements {
		if c.precedes(e, s) {
			continue
		}
		if s.Op != OpExtend {
			return false
		}
		// An extension replaces the deadline if it certainly was the last before e; otherwise
		// it may or may not have.
		extended := s.Invoke.Time + int64(s.Duration)
		sure := s.Outcome == OutcomeOK && c.precedes(s, e) && (last == nil || c.precedes(last, s))
		if sure {
			end = extended
		} else {
			end = min(end, extended)
		}
		last = s
	}
	if bound := driver.HoldBound(c.terms.Config.MaxHold, d.Duration); bound > 0 {
		end = min(end, d.Invoke.Time+int64(bound))
	}
	if c.anyBetween(c.byOp[OpPurge], d.Event, e) {
		return false
	}
	return e.Return.Time+int64(c.terms.Tolerance) < end
}

// checkFinality: no message is delivered after it was acked (ACK-1), dead-lettered (DLQ-1) or
// purged (CNT-3).
func (c *checker) checkFinality(m *lifetime) {
	redrives := c.redrives(m.id)
	for _, d := range m.deliveries {
		for _, s := range d.settlements {
			if s.Outcome != OutcomeOK || (s.Op != OpAck && s.Op != OpDeadLetter) {
				continue
			}
			for _, later := range m.deliveries {
				after := c.precedes(s, later.Event) || m.counted && d.Deliveries < later.Deliveries
				switch {
				case later == d || !after:
				case s.Op == OpAck:
					c.violate("ACK-1", m, "it was delivered after it was acked", s, later.Event)
				case !c.anyBetween(redrives, s, later.Event):
					c.violate("DLQ-1", m, "it was delivered after it was dead-lettered, and was not redriven", s, later.Event)
				}
			}
		}
	}
	for _, purge := range c.byOp[OpPurge] {
		if purge.Outcome != OutcomeOK || m.origin == nil || !c.precedes(m.origin, purge) || len(redrives) > 0 {
			continue
		}
		for _, d := range m.deliveries {
			if c.precedes(purge, d.Event) {
				c.violate("CNT-3", m, "it was delivered after a purge", purge, d.Event)
			}
		}
	}
}

// checkReceipts: a receipt works until its deadline, until the next delivery,
// and for one settlement (VIS-2, VIS-6).
func (c *checker) checkReceipts(m *lifetime) {
	for _, d := range m.deliveries {
		var ended *Event // the settlement that used up the receipt
		for _, s := range d.settlements {
			if s.Outcome != OutcomeOK {
				continue
			}
			c.checkReceipt(m, d, s)
			switch {
			case ended == nil:
			case s.Op != OpExtend:
				c.violate("VIS-6", m, "one receipt settled it twice", ended, s)
			case c.precedes(ended, s):
				c.violate("VIS-2", m, "a receipt worked after it had settled its message", ended, s)
			}
			if s.Op != OpExtend && ended == nil {
				ended = s
			}
		}
	}
}

// checkReceipt checks one successful settlement.
func (c *checker) checkReceipt(m *lifetime, d *delivery, s *Event) {
	crashed := c.anyBetween(c.byOp[OpCrash], d.Event, s) // then the lease may end late
	if !crashed && s.Invoke.Time >= c.latestEnd(d, s)+int64(c.terms.Tolerance) {
		c.violate("VIS-2", m, "a receipt worked after its deadline", d.Event, s)
	}
	for _, later := range m.deliveries {
		if later != d && c.inOrder(m, d, later) && c.precedes(later.Event, s) {
			c.violate("VIS-2", m, "a receipt worked after a later delivery", later.Event, s)
		}
	}
	for _, purge := range c.byOp[OpPurge] {
		if purge.Outcome == OutcomeOK && c.precedes(d.Event, purge) && c.precedes(purge, s) {
			c.violate("CNT-3", m, "a receipt worked after a purge", purge, s)
		}
	}
}

// latestEnd returns the latest possible end of the lease of d at the time of s, one of its
// settlements.
func (c *checker) latestEnd(d *delivery, s *Event) int64 {
	end := d.Return.Time + int64(d.Duration)
	for _, other := range d.settlements {
		if other.Op == OpExtend && other != s && !c.precedes(s, other) {
			end = max(end, other.Return.Time+int64(other.Duration))
		}
	}
	if bound := driver.HoldBound(c.terms.Config.MaxHold, d.Duration); bound > 0 {
		end = min(end, d.Return.Time+int64(bound))
	}
	return end
}

// checkTimes: no message is delivered before its delay is over (SND-2, ACK-1).
func (c *checker) checkTimes(m *lifetime) {
	if m.origin != nil && m.origin.Duration > 0 {
		due := m.origin.Invoke.Time + int64(m.origin.Duration)
		for _, d := range m.deliveries {
			if early := c.early(d.Event, due); early > 0 {
				c.violate("SND-2", m, fmt.Sprintf("it was delivered %v before its delay was over", early), m.origin, d.Event)
			}
		}
	}
	if !m.counted {
		return // a redrive or a crash may have ended the delay of a nack
	}
	for i, d := range m.deliveries {
		for _, s := range d.settlements {
			if s.Op != OpNack || s.Outcome != OutcomeOK || i+1 == len(m.deliveries) {
				continue
			}
			next := m.deliveries[i+1]
			if early := c.early(next.Event, s.Invoke.Time+int64(s.Duration)); early > 0 {
				c.violate("ACK-1", m, fmt.Sprintf("it was delivered %v before the delay of its nack was over", early), s, next.Event)
			}
		}
	}
}

// early returns how long before due the delivery e certainly was.
func (c *checker) early(e *Event, due int64) time.Duration {
	return time.Duration(due - e.Return.Time - int64(c.terms.Tolerance))
}

// checkForgeries: only receipts that were given out work (VIS-2).
func (c *checker) checkForgeries() {
	for _, op := range []Op{OpAck, OpNack, OpExtend, OpDeadLetter} {
		for _, e := range c.byOp[op] {
			if e.Outcome == OutcomeOK && !e.Receipt.IsZero() && c.byReceipt[e.Receipt] == nil {
				c.violate("VIS-2", &lifetime{id: e.Receipt.Handle}, "a receipt worked that was never given out", e)
			}
		}
	}
}

// checkPhantoms: a message without a successful send must come from a send of unknown outcome
// (SND-6), and each of these made at most one.
func (c *checker) checkPhantoms() {
	claims := make(map[string]int)
	for _, m := range c.messages {
		if len(m.sends) > 0 {
			continue
		}
		first := m.deliveries[0]
		claims[first.Digest]++
		if claims[first.Digest] > len(c.unsure[first.Digest]) || !c.canStemFrom(first.Event, c.unsure[first.Digest]) {
			c.violate("SND-6", m, "it was never sent", first.Event)
		}
	}
	strangers, unsure := 0, 0
	for _, sends := range c.unsure {
		unsure += len(sends)
	}
	for id := range c.final.Present {
		if c.byID[id] != nil {
			continue
		}
		if strangers++; strangers > unsure {
			c.violate("SND-6", &lifetime{id: id}, "it is present at the end and was never sent")
		}
	}
}

// checkCounts: messages sent = messages removed + messages left (CNT-1).
func (c *checker) checkCounts() {
	sentLeast, sentMost := 0, 0 // bounds of the number of messages
	for _, m := range c.messages {
		if len(m.sends) > 0 {
			sentLeast++
		}
	}
	sentMost = sentLeast
	for _, sends := range c.unsure {
		sentMost += len(sends)
	}
	left := c.final.Stats.Waiting() + c.final.Stats.Dead
	goneLeast, goneMost := left, left
	for _, e := range c.byOp[OpAck] {
		switch e.Outcome {
		case OutcomeOK:
			goneLeast++
			goneMost++
		case OutcomeUnknown:
			goneMost++
		}
	}
	for _, op := range []Op{OpPurge, OpPurgeDead, OpDiscard} {
		for _, e := range c.byOp[op] {
			goneLeast += e.Count
			goneMost += e.Count
			if e.Outcome == OutcomeUnknown {
				goneMost = math.MaxInt / 2
			}
		}
	}
	crashed := len(c.byOp[OpCrash]) > 0 && !c.terms.Traits.Durability.Restarts()
	if crashed || c.terms.Config.RetainDead.Age > 0 || c.terms.Config.RetainDead.Count > 0 {
		goneMost = math.MaxInt / 2
	}
	if goneMost < sentLeast || goneLeast > sentMost {
		c.violate("CNT-1", &lifetime{id: "(all)"}, fmt.Sprintf(
			"%d to %d messages were sent, but %d to %d are accounted for, of which %+v are left",
			sentLeast, sentMost, goneLeast, goneMost, c.final.Stats))
	}
}
