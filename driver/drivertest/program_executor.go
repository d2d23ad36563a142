package drivertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// An executor runs the operations of a program on one queue and records the results in a form
// that does not depend on the backend: ids and receipts as numbers, times since the start,
// errors as codes.
type executor struct {
	name      string // of the queue
	queue     driver.Queue
	other     driver.Queue // called otherName(name); nil if there is none
	start     time.Time
	clock     func() time.Duration // since start
	untimed   bool
	advance   func(time.Duration)
	configure func(context.Context, driver.Config) error
	restart   func(how Crash) (queue, other driver.Queue, err error)

	ids      []string // of message number n at n-1
	numbers  map[string]messageNumber
	receipts []driver.Receipt // of delivery number n at n-1
	given    map[driver.Receipt]bool
}

// newExecutor returns an executor for a queue that was opened at start.
func newExecutor(name string, queue driver.Queue, start time.Time) *executor {
	return &executor{
		name:    name,
		queue:   queue,
		start:   start,
		clock:   func() time.Duration { return time.Since(start) },
		advance: time.Sleep,
		numbers: make(map[string]messageNumber),
		given:   make(map[driver.Receipt]bool),
	}
}

// A result is the result of an operation.
type result struct {
	text string
	// hints are the RetryAfter values of the operation's ErrFull errors.
	hints []time.Duration
}

func (r *result) addf(format string, args ...any) { r.text += fmt.Sprintf(format, args...) + "\n" }

// agrees reports whether got matches r. A hint of someTime matches any; with exactHints the
// others must match to the millisecond.
func (r result) agrees(got result, exactHints bool) bool {
	return r.text == got.text && slices.EqualFunc(r.hints, got.hints, func(want, got time.Duration) bool {
		if exactHints && want != someTime {
			return want.Truncate(time.Millisecond) == got.Truncate(time.Millisecond)
		}
		return (want > 0) == (got > 0)
	})
}

func (r result) String() string {
	text := r.text
	for _, hint := range r.hints {
		switch hint {
		case 0:
			text += "without a retry hint\n"
		case someTime:
			text += "with a retry hint\n"
		default:
			text += fmt.Sprintf("with the retry hint %v\n", hint)
		}
	}
	return text
}

// run runs one operation, and then reads the stats.
func (p *executor) run(ctx context.Context, op Operation) result {
	r := op.run(ctx, p)
	if pause, ok := op.(advanceOperation); ok && pause.unseen {
		return r
	}
	stats, err := p.queue.Stats(ctx)
	if err != nil {
		r.addf("stats failed: %v", err)
		return r
	}
	r.addf("leaves %d ready, %d delayed, %d in flight, %d dead", stats.Ready, stats.Delayed, stats.InFlight, stats.Dead)
	return r
}

func (o sendOperation) run(ctx context.Context, p *executor) (r result) {
	sent, err := p.queue.Send(ctx, o.messages)
	for i := range o.messages {
		switch failed := driver.At(err, i); {
		case failed != nil:
			r.addf("%s", verdict(failed))
			if errors.Is(failed, driver.ErrFull) {
				r.hints = append(r.hints, driver.RetryAfter(failed))
			}
		case i >= len(sent):
			r.addf("no result")
		case sent[i].Duplicate:
			r.addf("%v, a duplicate", p.number(sent[i].ID))
		default:
			r.addf("%v", p.meet(sent[i].ID))
		}
	}
	r.addShape(err)
	return r
}

func (o receiveOperation) run(ctx context.Context, p *executor) (r result) {
	before := p.clock()
	deliveries, err := p.queue.Receive(ctx, o.request)
	if err != nil {
		r.addf("%s", verdict(err))
		if errors.Is(err, driver.ErrFull) {
			r.hints = append(r.hints, driver.RetryAfter(err))
		}
	}
	for i := range deliveries {
		receipt := deliveries[i].Receipt
		freshness := ""
		if p.given[receipt] {
			freshness = ", with a receipt that was given out before"
		}
		p.given[receipt] = true
		p.receipts = append(p.receipts, receipt)
		r.addf("%v: %s%s", deliveryNumber(len(p.receipts)), p.describe(&deliveries[i].Message), freshness)
	}
	if o.request.Wait > 0 {
		r.addf("after %v", p.clock()-before)
	}
	return r
}

func (o ackOperation) run(ctx context.Context, p *executor) result {
	receipts := make([]driver.Receipt, len(o.deliveries))
	for i, n := range o.deliveries {
		receipts[i] = p.receipt(n)
	}
	return positions(len(receipts), p.queue.Ack(ctx, receipts))
}

func (o lateAckOperation) run(ctx context.Context, p *executor) result {
	receipts := make([]driver.Receipt, len(o.deliveries))
	for i, n := range o.deliveries {
		receipts[i] = p.receipt(n)
	}
	return positions(len(receipts), p.queue.AckLate(ctx, receipts))
}

func (o moveOperation) run(ctx context.Context, p *executor) (r result) {
	from, to := p.queue, otherName(p.name)
	if o.back {
		from, to = p.other, p.name
	}
	moved, err := from.Move(ctx, to, o.limit)
	r.addf("%d moved, %s", moved, verdict(err))
	if errors.Is(err, driver.ErrFull) {
		r.hints = append(r.hints, driver.RetryAfter(err))
	}
	stats, err := p.other.Stats(ctx)
	if err != nil {
		r.addf("stats of the other queue failed: %v", err)
		return r
	}
	r.addf("leaves %d ready, %d dead in the other queue", stats.Ready, stats.Dead)
	return r
}

// otherName returns the name of the queue that messages of another move to.
func otherName(name string) string { return name + "-other" }

func (o nackOperation) run(ctx context.Context, p *executor) result {
	nacks := make([]driver.Nack, len(o.deliveries))
	for i, n := range o.deliveries {
		nacks[i] = driver.Nack{Receipt: p.receipt(n), Delay: o.delay, Cause: o.cause}
	}
	return positions(len(nacks), p.queue.Nack(ctx, nacks))
}

func (o extendOperation) run(ctx context.Context, p *executor) result {
	extensions := make([]driver.Extension, len(o.deliveries))
	for i, n := range o.deliveries {
		extensions[i] = driver.Extension{Receipt: p.receipt(n), Visibility: o.visibility}
	}
	if o.late {
		return positions(len(extensions), p.queue.ExtendLate(ctx, extensions))
	}
	granted, err := p.queue.Extend(ctx, extensions)
	r := positions(len(extensions), err)
	r.addf("granted %v", granted)
	return r
}

func (o deadLetterOperation) run(ctx context.Context, p *executor) result {
	requests := make([]driver.DeadLetterRequest, len(o.deliveries))
	for i, n := range o.deliveries {
		requests[i] = o.request
		requests[i].Receipt = p.receipt(n)
	}
	return positions(len(requests), p.queue.DeadLetter(ctx, requests))
}

func (o redriveOperation) run(ctx context.Context, p *executor) (r result) {
	moved, err := p.queue.Redrive(ctx, p.idsOf(o.messages), o.limit)
	r.addf("%d moved, %s", moved, verdict(err))
	return r
}

func (o discardOperation) run(ctx context.Context, p *executor) (r result) {
	removed, err := p.queue.Discard(ctx, p.idsOf(o.messages))
	r.addf("%d removed, %s", removed, verdict(err))
	return r
}

func (purgeDeadOperation) run(ctx context.Context, p *executor) (r result) {
	removed, err := p.queue.PurgeDead(ctx)
	r.addf("%d removed, %s", removed, verdict(err))
	return r
}

func (purgeOperation) run(ctx context.Context, p *executor) (r result) {
	removed, err := p.queue.Purge(ctx)
	r.addf("%d removed, %s", removed, verdict(err))
	return r
}

func (listDeadOperation) run(ctx context.Context, p *executor) (r result) {
	for letter, err := range p.queue.DeadLetters(ctx) {
		if err != nil {
			r.addf("%s", verdict(err))
			break
		}
		r.addf("%s", p.describeDead(&letter))
	}
	return r
}

func (o peekOperation) run(ctx context.Context, p *executor) (r result) {
	query := o.query
	if o.message != 0 {
		query.ID = p.id(o.message)
	}
	var found []sighting
	for peeked, err := range p.queue.Peek(ctx, query) {
		if err != nil {
			r.addf("%s", verdict(err))
			break
		}
		found = append(found, p.sight(&peeked))
	}
	sortTies(found)
	for _, s := range found {
		r.addf("%s", s.text)
	}
	return r
}

func (o advanceOperation) run(_ context.Context, p *executor) (r result) {
	p.advance(o.by)
	return r
}

func (o configureOperation) run(ctx context.Context, p *executor) (r result) {
	r.addf("%s", verdict(p.configure(ctx, o.config)))
	return r
}

func (o restartOperation) run(_ context.Context, p *executor) (r result) {
	if p.restart == nil {
		return r
	}
	queue, other, err := p.restart(o.how)
	if err != nil {
		r.addf("%s", verdict(err))
		return r
	}
	p.queue, p.other = queue, other
	return r
}

// positions returns the result of a batch of n.
func positions(n int, err error) (r result) {
	for i := range n {
		r.addf("%s", verdict(driver.At(err, i)))
	}
	r.addShape(err)
	return r
}

// addShape records an error that does not keep positions.
func (r *result) addShape(err error) {
	if _, ok := errors.AsType[*driver.BatchError](err); err != nil && !ok {
		r.addf("the call failed as a whole: %v", err)
	}
}

// verdict returns the code of an error. Backends must return it in an *Error.
func verdict(err error) string {
	if err == nil {
		return "ok"
	}
	if e, ok := errors.AsType[*driver.Error](err); ok {
		return string(e.Code)
	}
	return fmt.Sprintf("%T: %v", err, err)
}

// meet numbers the id of a message that was just sent.
func (p *executor) meet(id string) messageNumber {
	if known, ok := p.numbers[id]; ok {
		return known
	}
	p.ids = append(p.ids, id)
	p.numbers[id] = messageNumber(len(p.ids))
	return p.numbers[id]
}

// number returns the number of an id, or unknownMessage for one that was never sent.
func (p *executor) number(id string) messageNumber {
	if known, ok := p.numbers[id]; ok {
		return known
	}
	return unknownMessage
}

func (p *executor) id(n messageNumber) string {
	if n < 1 || int(n) > len(p.ids) {
		return "00000000000000000000000000" // never a real ULID
	}
	return p.ids[n-1]
}

func (p *executor) idsOf(numbers []messageNumber) []string {
	if numbers == nil {
		return nil
	}
	ids := make([]string, len(numbers))
	for i, n := range numbers {
		ids[i] = p.id(n)
	}
	return ids
}

func (p *executor) receipt(n deliveryNumber) driver.Receipt {
	forged := n < 0
	if forged {
		n = -n
	}
	if n == 0 || int(n) > len(p.receipts) {
		return driver.Receipt{Handle: "00000000000000000000000000", Place: 1, Nonce: 1}
	}
	receipt := p.receipts[n-1]
	if forged {
		receipt.Nonce ^= 1 << 40
	}
	return receipt
}

// describe prints all fields of a message.
func (p *executor) describe(msg *driver.Message) string {
	text := fmt.Sprintf("%v %q delivery %d, enqueued %s, first received %s",
		p.number(msg.ID), msg.Body, msg.Deliveries, p.time(msg.EnqueuedAt), p.time(msg.FirstReceivedAt))
	if len(msg.Attributes) > 0 {
		text += " " + describeAttributes(msg.Attributes)
	}
	for _, part := range []struct{ name, value string }{
		{"group", msg.Group}, {"reply to", msg.ReplyTo}, {"correlation", msg.CorrelationID}, {"last error", msg.LastError},
	} {
		if part.value != "" {
			text += ", " + part.name + " " + part.value
		}
	}
	return text
}

func (p *executor) describeDead(letter *driver.DeadLetter) string {
	source := letter.Source
	if source == p.name { // names differ from run to run
		source = "here"
	}
	return fmt.Sprintf("%s; from %q, reason %q, type %q, died %s, %d redrives",
		p.describe(&letter.Message), source, letter.Reason, letter.ErrorType, p.time(letter.DeadAt), letter.Redrives)
}

// time prints a wall time as time since the start. It is cut to milliseconds, because stores
// may keep no more of it. Untimed programs print only whether it is set.
func (p *executor) time(t time.Time) string {
	switch {
	case t.IsZero():
		return "never"
	case p.untimed:
		return "at some time"
	}
	return t.Sub(p.start).Truncate(time.Millisecond).String()
}

// A sighting is a message found by Peek.
type sighting struct {
	text   string
	tie    string // delayed and in-flight messages of one tie may come in any order
	number messageNumber
}

func (p *executor) sight(peeked *driver.Peeked) sighting {
	s := sighting{number: p.number(peeked.ID)}
	s.text = string(peeked.State) + " " + p.describeDead(&peeked.DeadLetter)
	if peeked.State == driver.StateDelayed || peeked.State == driver.StateInFlight {
		due := p.time(peeked.DueAt)
		s.text += ", due " + due
		s.tie = string(peeked.State) + due
	}
	return s
}

// sortTies orders by number what has no defined order: each run of sightings with one tie.
func sortTies(found []sighting) {
	for first := 0; first < len(found); {
		after := first + 1
		for after < len(found) && found[first].tie != "" && found[after].tie == found[first].tie {
			after++
		}
		slices.SortFunc(found[first:after], func(a, b sighting) int { return int(a.number - b.number) })
		first = after
	}
}
