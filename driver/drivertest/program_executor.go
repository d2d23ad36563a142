package drivertest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// An executor runs the operations of a program or a story on one queue and records the results
// in a form that does not depend on the backend: ids and receipts as numbers or names, times
// since the start, errors as codes.
//
// The results of a program are verbose: they show every field. Those of a story name the
// messages and show what is unusual.
type executor struct {
	name      string // of the queue
	queue     driver.Queue
	in        string       // the queue of the command, if it names one
	other     driver.Queue // called otherName(name); nil if there is none
	story     *storyState  // nil in programs
	verbose   bool
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

	revisions map[string][]uint64 // of schedules, by name, in the order in which they were seen
}

// newExecutor returns an executor for a queue that was opened at start.
func newExecutor(name string, queue driver.Queue, start time.Time) *executor {
	return &executor{
		name:    name,
		queue:   queue,
		verbose: true,
		start:   start,
		clock:   func() time.Duration { return time.Since(start) },
		advance: time.Sleep,
		numbers: make(map[string]messageNumber),
		given:   make(map[driver.Receipt]bool),

		revisions: make(map[string][]uint64),
	}
}

// run runs one operation, and then reads the stats if the results are verbose.
func (p *executor) run(ctx context.Context, op operation) result {
	verbose := p.verbose
	r := op.run(ctx, p)
	if pause, ok := op.(advanceOperation); ok && pause.unseen || !verbose {
		return r
	}
	stats, err := p.queue.Stats(ctx)
	if err != nil {
		r.addf("stats failed: %v", err)
		return r
	}
	r.addf("leaves %d ready (%d throttled), %d delayed, %d in flight, %d dead%s", stats.Ready, stats.Throttled, stats.Delayed, stats.InFlight, stats.Dead,
		map[bool]string{true: ", paused"}[stats.Paused])
	return r
}

func (o sendOperation) run(ctx context.Context, p *executor) (r result) {
	if !p.verbose {
		return p.sendStory(ctx, o.messages)
	}
	messages := make([]driver.Outgoing, len(o.messages))
	for i := range o.messages {
		messages[i] = o.messages[i].at(p.start.Add(p.clock()))
	}
	sent, err := p.queue.Send(ctx, messages)
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
			r.addf("%v, a duplicate%s", p.number(sent[i].ID), map[bool]string{true: ", replaced"}[sent[i].Replaced])
		default:
			r.addf("%v", p.meet(sent[i].ID))
		}
	}
	r.addShape(err)
	return r
}

func (o receiveOperation) run(ctx context.Context, p *executor) (r result) {
	if !p.verbose {
		return p.receiveStory(ctx, o)
	}
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
	return p.positions(o.deliveries, p.queue.Ack(ctx, p.receiptsOf(o.deliveries)))
}

func (o lateAckOperation) run(ctx context.Context, p *executor) result {
	return p.positions(o.deliveries, p.queue.AckLate(ctx, p.receiptsOf(o.deliveries)))
}

// run runs the operation on the other queue.
func (o inOperation) run(ctx context.Context, p *executor) (r result) {
	if create, ok := o.op.(createOperation); ok {
		p.story.create(o.queue, create.config)
		p.other = p.story.queues[o.queue]
		return r
	}
	queue := p.queue
	p.queue, p.in = p.handle(o.queue), o.queue
	defer func() { p.queue, p.in = queue, "" }()
	return o.op.run(ctx, p)
}

func (o moveOperation) run(ctx context.Context, p *executor) (r result) {
	moved, err := p.queue.Move(ctx, p.actual(o.to), o.limit)
	if !p.verbose {
		r.addf("%d moved%s", moved, p.exception(err, true))
		return r
	}
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
		nacks[i] = driver.Nack{Receipt: p.receipt(n), Delay: o.delay, Cause: o.cause, Mode: o.mode}
	}
	err := p.queue.Nack(ctx, nacks)
	if o.mode != driver.NackFailed && p.story != nil {
		p.story.forgetFirst(nacks)
	}
	return p.positions(o.deliveries, err)
}

func (o extendOperation) run(ctx context.Context, p *executor) result {
	extensions := make([]driver.Extension, len(o.deliveries))
	for i, n := range o.deliveries {
		extensions[i] = driver.Extension{Receipt: p.receipt(n), Visibility: o.visibility}
	}
	if o.late {
		return p.positions(o.deliveries, p.queue.ExtendLate(ctx, extensions))
	}
	granted, err := p.queue.Extend(ctx, extensions)
	r := p.positions(o.deliveries, err)
	if p.verbose {
		r.addf("granted %v", granted)
		return r
	}
	for i, name := range o.deliveries {
		want := o.visibility
		if driver.At(err, i) != nil {
			want = 0
		}
		exact := p.story.env.backend.Virtual // on the real clock a bound on holding can cut a little
		if i >= len(granted) || exact && granted[i] != want {
			r.addf("%s: granted %v", name, granted[min(i, len(granted)):])
		}
	}
	return r
}

func (o deadLetterOperation) run(ctx context.Context, p *executor) result {
	requests := make([]driver.DeadLetterRequest, len(o.deliveries))
	for i, n := range o.deliveries {
		requests[i] = o.request
		requests[i].Receipt = p.receipt(n)
	}
	return p.positions(o.deliveries, p.queue.DeadLetter(ctx, requests))
}

func (o redriveOperation) run(ctx context.Context, p *executor) (r result) {
	moved, err := p.queue.Redrive(ctx, p.idsOf(o.messages), o.limit)
	r.addf("%d moved%s", moved, p.exception(err, false))
	return r
}

func (o discardOperation) run(ctx context.Context, p *executor) (r result) {
	removed, err := p.queue.Discard(ctx, p.idsOf(o.messages))
	r.addf("%d removed%s", removed, p.exception(err, false))
	return r
}

func (purgeDeadOperation) run(ctx context.Context, p *executor) (r result) {
	removed, err := p.queue.PurgeDead(ctx)
	r.addf("%d removed%s", removed, p.exception(err, false))
	return r
}

func (purgeOperation) run(ctx context.Context, p *executor) (r result) {
	removed, err := p.queue.Purge(ctx)
	r.addf("%d removed%s", removed, p.exception(err, false))
	r.inexact = err == nil && !p.queue.Traits().ExactStats
	return r
}

func (o throttleOperation) run(ctx context.Context, p *executor) (r result) {
	if err := p.queue.Throttle(ctx, o.group, o.wait); err != nil || p.verbose {
		r.addf("%s", verdict(err))
	}
	return r
}

func (pauseOperation) run(ctx context.Context, p *executor) result {
	return p.positions([]string{"pause"}, p.queue.Pause(ctx))
}

func (resumeOperation) run(ctx context.Context, p *executor) result {
	return p.positions([]string{"resume"}, p.queue.Resume(ctx))
}

// run prints the state that the message was in, also if the edit was refused.
func (o editOperation) run(ctx context.Context, p *executor) (r result) {
	edit := o.edit
	if o.ahead != 0 {
		edit.DeliverAt = p.start.Add(p.clock()).Add(o.ahead)
	}
	was, err := p.queue.Edit(ctx, p.id(o.message), edit)
	if p.story != nil && err == nil && edit.Prioritize {
		id := p.id(o.message)
		sent := p.story.sent[id]
		sent.Priority = edit.Priority
		p.story.sent[id] = sent
	}
	switch {
	case err == nil:
		r.addf("%s was %s", o.message, was)
	case errors.Is(err, driver.ErrConflict):
		r.addf("%s: %s, %s", o.message, verdict(err), statedIn(err))
	default:
		r.addf("%s: %s", o.message, verdict(err))
	}
	return r
}

// statedIn returns the state that the refusal of an edit names.
func statedIn(err error) string {
	for _, state := range []string{"in flight", "dead"} {
		if strings.Contains(err.Error(), "is "+state) {
			return state
		}
	}
	return fmt.Sprintf("no state in %q", err)
}

func (o listDeadOperation) run(ctx context.Context, p *executor) (r result) {
	if !p.verbose {
		return p.deadStory(ctx, o.died)
	}
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
	if o.message != "" {
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
	if !p.verbose {
		return p.peekStory(found)
	}
	for _, s := range found {
		r.addf("%s", s.text)
	}
	return r
}

func (o advanceOperation) run(_ context.Context, p *executor) (r result) {
	p.advance(o.by)
	return r
}

func (o createOperation) run(_ context.Context, p *executor) (r result) {
	p.story.env.failf("the queue under test is configured by the first command")
	return r
}

func (o configureOperation) run(ctx context.Context, p *executor) (r result) {
	if p.story != nil {
		p.story.over = !p.story.env.reconfigure(o.config)
		if p.verbose {
			r.addf("%s", verdict(nil))
		}
		return r
	}
	r.addf("%s", verdict(p.configure(ctx, o.config)))
	return r
}

func (o restartOperation) run(_ context.Context, p *executor) (r result) {
	if p.restart == nil {
		return r
	}
	if o.how == crashOfCase && p.story != nil {
		o.how = p.story.how
	}
	queue, other, err := p.restart(o.how)
	if err != nil {
		r.addf("%s", verdict(err))
		return r
	}
	p.queue, p.other = queue, other
	return r
}

// positions returns the result of a batch. A story shows only the positions that failed, or
// that the queue is gone.
func (p *executor) positions(names []string, err error) (r result) {
	if !p.verbose && isGone(err) {
		r.addf("%s", verdict(err))
		return r
	}
	for i, name := range names {
		failed := driver.At(err, i)
		switch {
		case p.verbose:
			r.addf("%s", verdict(failed))
		case failed != nil:
			r.addf("%s: %s", name, verdict(failed))
		}
	}
	r.addShape(err)
	return r
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

// unknownID is never a real ULID.
const unknownID = "00000000000000000000000000"

// id returns the id of a message by its name or number.
func (p *executor) id(name string) string {
	if p.story != nil && p.story.ids[name] != "" {
		return p.story.ids[name]
	}
	n, ok := strings.CutPrefix(name, "m")
	i, err := strconv.Atoi(n)
	if !ok || err != nil || i < 1 || i > len(p.ids) {
		return unknownID
	}
	return p.ids[i-1]
}

func (p *executor) idsOf(names []string) []string {
	if names == nil {
		return nil
	}
	ids := make([]string, len(names))
	for i, name := range names {
		ids[i] = p.id(name)
	}
	return ids
}

func (p *executor) receiptsOf(names []string) []driver.Receipt {
	receipts := make([]driver.Receipt, len(names))
	for i, name := range names {
		receipts[i] = p.receipt(name)
	}
	return receipts
}

// receipt returns the receipt of a delivery by its name or number.
func (p *executor) receipt(name string) driver.Receipt {
	if p.story != nil {
		if d, ok := p.story.delivery(name); ok {
			return d.Receipt
		}
	}
	number, forged := strings.CutPrefix(name, "forged-")
	n, err := strconv.Atoi(strings.TrimPrefix(number, "d"))
	if err != nil || n < 1 || n > len(p.receipts) {
		return driver.Receipt{Handle: unknownID, Place: 1, Nonce: 1}
	}
	receipt := p.receipts[n-1]
	if forged {
		receipt.Nonce ^= 1 << 40
	}
	return receipt
}
