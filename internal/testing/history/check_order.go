package history

import (
	"cmp"
	"math"
	"slices"

	"github.com/mailboxmq/mailbox/driver"
)

// An arrival is a message with the send that gave it its place and the receive that first
// delivered it; first is nil if it still waits.
type arrival struct {
	*lifetime
	first *Event
}

// checkOrder: messages are first delivered in the order they were sent, within
// a shard (ORD-1) and, in strict groups, a group (ORD-4), as in fair ones
// (FAIR-3).
func (c *checker) checkOrder() {
	if c.terms.Traits.Ordering == driver.OrderingNone {
		return
	}
	for _, line := range c.lines() {
		c.report.ReorderDepth = max(c.report.ReorderDepth, c.reorderDepth(line))
		if len(c.byOp[OpCrash]) == 0 { // else order holds but for a depth
			c.checkOvertaking(line)
			c.checkBatches(line)
		}
	}
}

// lines returns the messages that must stay in order: those of one shard, or of one group.
func (c *checker) lines() map[string][]arrival {
	strict := c.terms.Traits.StrictGroups
	grouped := strict || c.terms.Traits.FairGroups || c.terms.Traits.Ordering == driver.OrderingPerShard
	lines := make(map[string][]arrival)
	for _, m := range c.messages {
		if m.origin == nil || m.origin.Duration > 0 {
			continue // its place, or the time when it was ready, is unknown
		}
		a := arrival{lifetime: m}
		switch {
		case len(m.deliveries) > 0:
			a.first = m.deliveries[0].Event
			if a.first.Deliveries != 1 {
				continue // a receive of unknown outcome had it before
			}
		case c.final.Present[m.id] != driver.StateReady:
			continue
		}
		line := ""
		if grouped {
			line = m.origin.Group
		}
		if line == "" && !strict && c.terms.Traits.Ordering == driver.OrderingPerShard {
			continue // no group and no known shard
		}
		lines[line] = append(lines[line], a)
	}
	return lines
}

func (c *checker) rule() string {
	switch {
	case c.terms.Traits.StrictGroups:
		return "ORD-4"
	case c.terms.Traits.FairGroups:
		return "FAIR-3"
	}
	return "ORD-1"
}

func (c *checker) overtaken(a, b arrival) {
	events := []*Event{a.origin, b.origin, b.first}
	if a.first != nil {
		events = append(events, a.first)
	}
	c.violate(c.rule(), a.lifetime, "message "+b.id+" was sent after it and delivered before it", events...)
}

// checkOvertaking finds messages that a later one has overtaken: its receive ended before
// theirs began.
func (c *checker) checkOvertaking(line []arrival) {
	starts := func(a arrival) int64 {
		if a.first == nil {
			return math.MaxInt64
		}
		return c.from(a.first)
	}
	// Going through b by the start of its send, slowest is the message that was delivered last
	// of those sent before b.
	sentBefore := slices.SortedFunc(slices.Values(line), func(a, b arrival) int { return cmp.Compare(c.to(a.origin), c.to(b.origin)) })
	bySend := slices.SortedFunc(slices.Values(line), func(a, b arrival) int {
		return cmp.Or(cmp.Compare(c.from(a.origin), c.from(b.origin)), cmp.Compare(a.origin.Process, b.origin.Process),
			cmp.Compare(a.origin.Call, b.origin.Call), cmp.Compare(a.origin.Position, b.origin.Position))
	})
	var slowest, inBatch *arrival
	for i := range bySend {
		b := &bySend[i]
		for len(sentBefore) > 0 && c.precedes(sentBefore[0].origin, b.origin) {
			if slowest == nil || starts(sentBefore[0]) > starts(*slowest) {
				slowest = &sentBefore[0]
			}
			sentBefore = sentBefore[1:]
		}
		if inBatch != nil && !inBatch.origin.sameCall(b.origin) {
			inBatch = nil
		}
		for _, a := range []*arrival{slowest, inBatch} {
			if a != nil && b.first != nil && c.to(b.first) < starts(*a) {
				c.overtaken(*a, *b)
			}
		}
		if inBatch == nil || starts(*b) > starts(*inBatch) {
			inBatch = b
		}
	}
}

// checkBatches finds messages that came after a later one in one batch.
func (c *checker) checkBatches(line []arrival) {
	type batch struct {
		process string
		call    uint64
	}
	batches := make(map[batch][]arrival)
	for _, a := range line {
		if a.first != nil {
			of := batch{a.first.Process, a.first.Call}
			batches[of] = append(batches[of], a)
		}
	}
	for _, members := range batches {
		slices.SortFunc(members, func(a, b arrival) int { return cmp.Compare(a.first.Position, b.first.Position) })
		for i, a := range members {
			for _, b := range members[:i] {
				if c.precedes(a.origin, b.origin) || a.origin.sameCall(b.origin) && a.origin.Position < b.origin.Position {
					c.overtaken(a, b)
				}
			}
		}
	}
}

// reorderDepth returns the largest number of messages of a line that were sent before one and
// first delivered after it.
func (c *checker) reorderDepth(line []arrival) int {
	line = slices.DeleteFunc(slices.Clone(line), func(a arrival) bool { return a.first == nil })
	byReturn := func(e func(arrival) *Event) func(a, b arrival) int {
		return func(a, b arrival) int {
			x, y := e(a), e(b)
			return cmp.Or(cmp.Compare(c.to(x), c.to(y)), cmp.Compare(x.Position, y.Position))
		}
	}
	slices.SortFunc(line, byReturn(func(a arrival) *Event { return a.origin }))
	sequence := make(map[string]int, len(line))
	for i, a := range line {
		sequence[a.id] = i
	}
	slices.SortFunc(line, byReturn(func(a arrival) *Event { return a.first }))
	// A Fenwick tree counts, from the last delivery to the first, the smaller
	// sequence numbers seen.
	tree := make([]int, len(line)+1)
	depth := 0
	for _, a := range slices.Backward(line) {
		smaller := 0
		for i := sequence[a.id]; i > 0; i -= i & -i {
			smaller += tree[i]
		}
		depth = max(depth, smaller)
		for i := sequence[a.id] + 1; i < len(tree); i += i & -i {
			tree[i]++
		}
	}
	return depth
}

// checkGroups: no message of a strict group is delivered while an earlier one is in flight
// (ORD-4).
func (c *checker) checkGroups() {
	if !c.terms.Traits.StrictGroups {
		return
	}
	type member struct {
		*delivery
		message *lifetime
	}
	groups := make(map[string][]member)
	for _, m := range c.messages {
		for _, d := range m.deliveries {
			groups[d.Group] = append(groups[d.Group], member{d, m})
		}
	}
	for _, members := range groups {
		slices.SortFunc(members, func(a, b member) int { return cmp.Compare(c.from(a.Event), c.from(b.Event)) })
		var out []member // messages whose lease may still last
		for _, next := range members {
			for _, earlier := range out {
				held := c.sentBefore(earlier.message, next.message) && c.precedes(earlier.Event, next.Event) && c.surelyHeld(earlier.delivery, next.Event)
				if held && !c.anyBetween(c.byOp[OpCrash], earlier.Event, next.Event) {
					c.violate("ORD-4", next.message, "it was delivered while message "+earlier.message.id+" of its group was out", earlier.Event, next.Event)
				}
			}
			out = slices.DeleteFunc(out, func(d member) bool { return c.surelyOver(d.delivery, next.Event) })
			out = append(out, next)
		}
	}
}

// sentBefore reports whether a certainly got its place before b.
func (c *checker) sentBefore(a, b *lifetime) bool {
	if a.origin == nil || b.origin == nil || len(c.redrives(a.id)) > 0 {
		return false
	}
	return c.precedes(a.origin, b.origin) || (a.origin.sameCall(b.origin) && a.origin.Position < b.origin.Position)
}

// surelyOver reports whether the lease of d was over when e began.
func (c *checker) surelyOver(d *delivery, e *Event) bool {
	for _, s := range d.settlements {
		if s.Op != OpExtend && s.Outcome == OutcomeOK && c.precedes(s, e) {
			return true
		}
	}
	return c.latestEnd(d, e)+int64(c.terms.Tolerance) < e.Invoke.Time
}
