package history

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// Terms are the promises that a history is checked against.
type Terms struct {
	// Traits and Config are the queue's, unchanged for the whole history. It
	// had one shard unless Traits.Ordering says otherwise, and no DeadLetterTo.
	Traits driver.Traits
	Config driver.Config
	// Tolerance bounds the difference between the clocks of the recording processes and of the
	// backend. Within one process ticks give the order, so a backend on the same clock needs
	// none.
	Tolerance time.Duration
}

// FinalState is the content of the queue after its last use.
type FinalState struct {
	Stats driver.Stats
	// Present holds the state of each message; nil if the queue does not support Peek, and then
	// only the counts show a lost message.
	Present map[string]driver.State
}

// Observe reads the final state of a queue. It blocks as its Stats and Peek
// do, and returns their errors.
func Observe(ctx context.Context, q driver.Queue) (FinalState, error) {
	stats, err := q.Stats(ctx)
	if err != nil {
		return FinalState{}, err
	}
	final := FinalState{Stats: stats}
	if !q.Traits().Peek {
		return final, nil
	}
	final.Present = make(map[string]driver.State)
	for peeked, err := range q.Peek(ctx, driver.Query{}) {
		if err != nil {
			return FinalState{}, err
		}
		final.Present[peeked.ID] = peeked.State
	}
	return final, nil
}

// A Violation is a broken promise: the rule, the message, and the two events that contradict
// each other; the second may be missing.
type Violation struct {
	Rule      string
	MessageID string
	Detail    string
	Events    []*Event
}

// String describes the violation, with its events on lines of their own.
func (v Violation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: message %s: %s", v.Rule, v.MessageID, v.Detail)
	for _, e := range v.Events {
		fmt.Fprintf(&b, "\n\t%v", e)
	}
	return b.String()
}

// A Report is the result of Check.
type Report struct {
	Violations []Violation
	// Messages and Deliveries count what was checked.
	Messages, Deliveries int
	// Repeats counts deliveries of a message that was still leased when the
	// backend crashed.
	Repeats int
	// ReorderDepth is the largest number of messages that were sent before a message and first
	// delivered after it. Receivers that overlap make it more than 0.
	ReorderDepth int
}

// Err returns nil if no promise was broken, and otherwise an error with the first violations.
func (r Report) Err() error {
	const shown = 10
	if len(r.Violations) == 0 {
		return nil
	}
	var errs []error
	for _, v := range r.Violations[:min(shown, len(r.Violations))] {
		errs = append(errs, errors.New(v.String()))
	}
	return fmt.Errorf("%d violations:\n%w", len(r.Violations), errors.Join(errs...))
}

// Check checks a history by what its clients can know:
//
//   - nothing sent is lost (SND-1), nothing arrives that was not sent, or
//     changed (SND-3, SND-6)
//   - one id per dedup key and window, conflicts only for another body (DUP)
//   - no message is delivered while another receiver holds it (VIS-1), before
//     its delay is over (SND-2, ACK-1), or after it is settled (ACK-1)
//   - a receipt works once and not after its time (VIS-2, VIS-6)
//   - deliveries are counted one by one, up to the limit (RCV-3, DLQ-1)
//   - first deliveries come in order (ORD-1), and nothing of a strict group while an
//     earlier message of it is in flight (ORD-4)
//   - the counts add up (CNT-1)
//
// An event takes effect at some point between its invocation and its return.
// Check reports only what no choice of these points can explain, so it has no
// false alarms; the shorter the calls, the more it finds. A crash (see
// Recorder.Crash) excuses a lease that ended early and a count that repeats,
// and, in a queue that does not survive it, the loss of all messages.
//
// All messages must have been sent through recorders.
func Check(h History, final FinalState, terms Terms) Report {
	c := newChecker(h, final, terms)
	for _, m := range c.messages {
		c.checkOrigin(m)
		c.checkLoss(m)
		c.checkAttempts(m)
		c.checkLeases(m)
		c.checkFinality(m)
		c.checkReceipts(m)
		c.checkTimes(m)
	}
	c.checkForgeries()
	c.checkPhantoms()
	c.checkKeys()
	c.checkOrder()
	c.checkGroups()
	c.checkCounts()
	return c.report
}

// A checker holds a history, sorted for the checks.
type checker struct {
	terms  Terms
	final  FinalState
	report Report

	oneProcess bool
	events     []*Event
	messages   []*lifetime // in the order of their ids
	byID       map[string]*lifetime
	byReceipt  map[driver.Receipt]*delivery
	byOp       map[Op][]*Event
	aims       map[aim][]*Event    // redrives, discards and purges that did not fail
	unsure     map[string][]*Event // sends of unknown outcome by digest
	blind      bool                // some receives have an unknown outcome
}

// An aim is a message as the target of an operation; an empty id means all messages.
type aim struct {
	op Op
	id string
}

// A lifetime is everything known about one message.
type lifetime struct {
	id         string
	sends      []*Event // successful, duplicates too
	origin     *Event   // the successful send that was not a duplicate
	deliveries []*delivery
	// counted: delivery counts give the order of deliveries. A redrive resets
	// the count, and a crash may set it back.
	counted bool
}

// A delivery is a delivery with the settlements of its receipt.
type delivery struct {
	*Event
	settlements []*Event // ack, nack, extend, dead letter; not failed
}

func newChecker(h History, final FinalState, terms Terms) *checker {
	c := &checker{
		terms: terms, final: final, oneProcess: true,
		byID:      make(map[string]*lifetime),
		byReceipt: make(map[driver.Receipt]*delivery),
		byOp:      make(map[Op][]*Event),
		aims:      make(map[aim][]*Event),
		unsure:    make(map[string][]*Event),
	}
	for i := range h.Events {
		e := &h.Events[i]
		c.events = append(c.events, e)
		c.oneProcess = c.oneProcess && e.Process == h.Events[0].Process
	}
	slices.SortFunc(c.events, func(a, b *Event) int {
		return cmp.Or(cmp.Compare(c.to(a), c.to(b)), cmp.Compare(a.Call, b.Call), cmp.Compare(a.Position, b.Position))
	})
	for _, e := range c.events {
		c.byOp[e.Op] = append(c.byOp[e.Op], e)
		switch {
		case e.Op == OpSend && e.Outcome == OutcomeUnknown:
			c.unsure[e.Digest] = append(c.unsure[e.Digest], e)
		case e.Op == OpSend && e.Outcome == OutcomeOK:
			c.addSend(e)
		case e.Op == OpReceive && e.Outcome == OutcomeUnknown:
			c.blind = true
		case e.Op == OpReceive && e.ID != "":
			c.addDelivery(e)
		case e.Outcome != OutcomeFail:
			c.aims[aim{e.Op, e.ID}] = append(c.aims[aim{e.Op, e.ID}], e)
		}
	}
	for _, op := range []Op{OpAck, OpNack, OpExtend, OpDeadLetter} {
		for _, e := range c.byOp[op] {
			if d := c.byReceipt[e.Receipt]; d != nil && e.Outcome != OutcomeFail {
				d.settlements = append(d.settlements, e)
			}
		}
	}
	slices.SortFunc(c.messages, func(a, b *lifetime) int { return cmp.Compare(a.id, b.id) })
	for _, m := range c.messages {
		c.sortDeliveries(m)
	}
	c.report.Messages = len(c.messages)
	return c
}

func (c *checker) lifetime(id string) *lifetime {
	m := c.byID[id]
	if m == nil {
		m = &lifetime{id: id}
		c.byID[id] = m
		c.messages = append(c.messages, m)
	}
	return m
}

func (c *checker) addSend(e *Event) {
	m := c.lifetime(e.ID)
	m.sends = append(m.sends, e)
	switch {
	case e.Duplicate:
	case m.origin != nil:
		c.violate("SND-1", m, "two sends got one id, and neither is a duplicate", m.origin, e)
	default:
		m.origin = e
	}
}

func (c *checker) addDelivery(e *Event) {
	m := c.lifetime(e.ID)
	d := &delivery{Event: e}
	m.deliveries = append(m.deliveries, d)
	if other := c.byReceipt[e.Receipt]; other != nil {
		c.violate("VIS-2", m, "two deliveries have one receipt", other.Event, e)
		return
	}
	c.byReceipt[e.Receipt] = d
	c.report.Deliveries++
}

// sortDeliveries sorts deliveries by the order in which they happened, as far as it is known.
func (c *checker) sortDeliveries(m *lifetime) {
	m.counted = len(c.redrives(m.id)) == 0 && len(c.byOp[OpCrash]) == 0
	if m.counted { // otherwise they are in the order of their returns, like c.events
		slices.SortStableFunc(m.deliveries, func(a, b *delivery) int { return cmp.Compare(a.Deliveries, b.Deliveries) })
	}
}

// inOrder reports whether delivery a of a message certainly happened before b.
func (c *checker) inOrder(m *lifetime, a, b *delivery) bool {
	return c.precedes(a.Event, b.Event) || m.counted && a.Deliveries < b.Deliveries
}

// from and to are the start and the end of an event, on an axis where events of all processes
// compare: ticks if there is one process, otherwise time, with the tolerance added at the end.
func (c *checker) from(e *Event) int64 {
	if c.oneProcess {
		return int64(e.Invoke.Tick)
	}
	return e.Invoke.Time
}

func (c *checker) to(e *Event) int64 {
	if c.oneProcess {
		return int64(e.Return.Tick)
	}
	return e.Return.Time + int64(c.terms.Tolerance)
}

// precedes reports whether a ended before b began.
func (c *checker) precedes(a, b *Event) bool { return c.to(a) < c.from(b) }

// between reports whether e can have happened after a and before b.
func (c *checker) between(a, e, b *Event) bool { return !c.precedes(e, a) && !c.precedes(b, e) }

// anyBetween reports whether one of events can have happened after a and before b.
func (c *checker) anyBetween(events []*Event, a, b *Event) bool {
	return slices.ContainsFunc(events, func(e *Event) bool {
		return e.Outcome != OutcomeFail && c.between(a, e, b)
	})
}

// redrives returns the redrives that may have moved a message.
func (c *checker) redrives(id string) []*Event { return c.aimedAt(OpRedrive, id) }

// aimedAt returns the operations that name id or all messages, and did not fail.
func (c *checker) aimedAt(op Op, id string) []*Event {
	return slices.Concat(c.aims[aim{op, id}], c.aims[aim{op, ""}])
}

func (c *checker) violate(rule string, m *lifetime, detail string, events ...*Event) {
	c.report.Violations = append(c.report.Violations, Violation{Rule: rule, MessageID: m.id, Detail: detail, Events: events})
}
