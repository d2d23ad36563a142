package history

import "github.com/mailboxmq/mailbox/driver"

// checkKeys: within the dedup window a key stands for one message (DUP-1) with one body
// (DUP-2), and after it for none (DUP-3).
func (c *checker) checkKeys() {
	byKey := make(map[string][]*Event)
	for _, e := range c.byOp[OpSend] {
		if e.DedupKey != "" {
			byKey[e.DedupKey] = append(byKey[e.DedupKey], e)
		}
	}
	for _, sends := range byKey {
		var origins []*Event
		for _, e := range sends {
			switch {
			case e.Code == driver.ErrConflict:
				c.checkConflict(e, sends)
			case e.Outcome != OutcomeOK:
			case e.Duplicate:
				c.checkDuplicate(e)
			default:
				origins = append(origins, e)
			}
		}
		c.checkOrigins(origins)
	}
}

// checkOrigins checks the sends of one key that created a message. They are in the order of
// their returns, so neighbours are the closest.
func (c *checker) checkOrigins(origins []*Event) {
	for i := 1; i < len(origins); i++ {
		first, second := origins[i-1], origins[i]
		apart := second.Return.Time - first.Invoke.Time + int64(c.terms.Tolerance)
		switch {
		case apart >= int64(c.terms.Traits.DedupWindow), first.ID == second.ID:
		case first.Digest != second.Digest:
			c.violate("DUP-2", c.byID[second.ID], "its dedup key was in use for another body", first, second)
		default:
			c.violate("DUP-1", c.byID[second.ID], "its dedup key was in use: it should be a duplicate", first, second)
		}
	}
}

// checkDuplicate checks a send that was answered as a duplicate.
func (c *checker) checkDuplicate(e *Event) {
	m := c.byID[e.ID]
	if m.origin == nil {
		return // the outcome of the first send is unknown
	}
	over := m.origin.Return.Time + int64(c.terms.Traits.DedupWindow) + int64(c.terms.Tolerance)
	switch {
	case m.origin.DedupKey != e.DedupKey:
		c.violate("DUP-1", m, "a send is called a duplicate of one with another key", m.origin, e)
	case c.precedes(e, m.origin):
		c.violate("DUP-1", m, "a send is called a duplicate of a later one", e, m.origin)
	case e.Invoke.Time >= over && !c.anyBetween(c.byOp[OpCrash], m.origin, e):
		c.violate("DUP-3", m, "a send is called a duplicate after the window", m.origin, e)
	}
}

// checkConflict checks that a send refused as a conflict had an earlier send to conflict with.
func (c *checker) checkConflict(e *Event, sends []*Event) {
	for _, other := range sends {
		if other.Outcome != OutcomeFail && other.Digest != e.Digest && !c.precedes(e, other) {
			return
		}
	}
	c.violate("DUP-2", &lifetime{id: "(key " + e.DedupKey + ")"}, "a conflict with nothing", e)
}
