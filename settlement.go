package mailbox

import (
	"context"
	"fmt"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// An Outcome is what a message was settled with.
type Outcome string

// The outcomes. They are also the names these operations have in errors.
const (
	OutcomeAck        Outcome = "ack"
	OutcomeNack       Outcome = "nack"
	OutcomeRelease    Outcome = "release"
	OutcomeDeadLetter Outcome = "dead-letter"
)

// extension is the action that is like the outcomes in all but settling.
const extension = "extend"

// AckAll acks messages, which may come from several mailboxes, with as few
// calls of the backends as possible. If any of them fails the error is a
// *BatchError in which position i belongs to messages[i]; see ErrorAt. For each
// position the codes, and what is known after a failure, are those of
// Message.Ack.
func AckAll[T any](ctx context.Context, messages ...*Message[T]) error {
	return performAll(ctx, action{kind: OutcomeAck}, messages)
}

// NackAll nacks messages as AckAll acks them. The delay and the cause are the
// same for all.
func NackAll[T any](ctx context.Context, delay time.Duration, cause error, messages ...*Message[T]) error {
	return performAll(ctx, action{kind: OutcomeNack, duration: delay, cause: cause}, messages)
}

// ReleaseAll releases messages as AckAll acks them.
func ReleaseAll[T any](ctx context.Context, messages ...*Message[T]) error {
	return performAll(ctx, action{kind: OutcomeRelease}, messages)
}

// ExtendAll extends messages as AckAll acks them, all to the same visibility.
func ExtendAll[T any](ctx context.Context, visibility time.Duration, messages ...*Message[T]) error {
	return performAll(ctx, action{kind: extension, duration: visibility}, messages)
}

// performAll carries a out on messages, mailbox by mailbox.
func performAll[T any](ctx context.Context, a action, messages []*Message[T]) error {
	errs := make([]error, len(messages))
	var groups []mailboxGroup[T]
	for i, message := range messages {
		if errs[i] = message.begin(ctx, a); errs[i] == nil {
			groups = addToGroup(groups, message.mailbox, i)
		}
	}
	for _, group := range groups {
		group.perform(ctx, a, messages, errs)
	}
	return driver.NewBatchError(errs)
}

// mailboxGroup is the part of a batch that belongs to one mailbox.
type mailboxGroup[T any] struct {
	mailbox   *Mailbox[T]
	positions []int
}

// addToGroup searches the groups one by one: there is hardly ever a second.
func addToGroup[T any](groups []mailboxGroup[T], mailbox *Mailbox[T], position int) []mailboxGroup[T] {
	for i := range groups {
		if groups[i].mailbox == mailbox {
			groups[i].positions = append(groups[i].positions, position)
			return groups
		}
	}
	return append(groups, mailboxGroup[T]{mailbox, []int{position}})
}

// perform goes in steps of at most Traits.MaxBatch. A step that fails as a
// whole ends it: the backend is away, and the rest would only wait for it too.
func (g *mailboxGroup[T]) perform(ctx context.Context, a action, messages []*Message[T], errs []error) {
	maxBatch := g.mailbox.Queue().Traits().MaxBatch
	if maxBatch <= 0 {
		maxBatch = len(g.positions)
	}
	batch := actionBatches.get()
	defer batch.free()
	var broken error
	for from := 0; from < len(g.positions); from += maxBatch {
		step := g.positions[from:min(from+maxBatch, len(g.positions))]
		start := startIf(g.mailbox.observes(a))
		var granted []time.Duration
		err := broken
		if broken == nil {
			batch.clear()
			for _, i := range step {
				batch.add(messages[i].Receipt, a)
			}
			granted, err = batch.send(ctx, g.mailbox.Queue(), a)
			if err != nil && !isBatch(err) {
				broken = err
			}
		}
		for j, i := range step {
			errs[i] = messages[i].end(ctx, a.with(granted, j), start, ErrorAt(err, j))
		}
	}
}

// observes reports whether a hook is told about a.
func (m *Mailbox[T]) observes(a action) bool {
	if a.kind == extension {
		return m.hooks.Extended != nil
	}
	return m.hooks.Settled != nil
}

// An action is something done to messages that are held.
type action struct {
	kind     Outcome       // an outcome, or extension
	duration time.Duration // the delay of a nack, the visibility of an extension
	granted  time.Duration // what an extension got
	reason   Reason        // of a dead letter
	cause    error         // of a nack or dead letter
	// unanswered acks a request although its reply slot waits for an answer.
	unanswered bool
}

// with returns a with what position i was granted, which is what was asked for
// where the backend does not say.
func (a action) with(granted []time.Duration, i int) action {
	a.granted = a.duration
	if i < len(granted) {
		a.granted = granted[i]
	}
	return a
}

// check returns why queue cannot do a. The error is fresh.
func (a action) check(queue driver.Queue) error {
	switch a.kind {
	case OutcomeNack:
		traits := queue.Traits()
		return driver.CheckVisibility(string(OutcomeNack), "Delay", a.duration, &traits)
	case extension:
		traits := queue.Traits()
		return driver.CheckVisibility(extension, "Visibility", a.duration, &traits)
	case OutcomeDeadLetter:
		if !a.reason.Valid() {
			return &Error{
				Code: ErrInvalid, Op: string(a.kind), Field: "Reason",
				Detail: fmt.Sprintf("%q is none of the reasons", string(a.reason)),
			}
		}
		return checkDeadLetters(queue, string(a.kind))
	}
	return nil
}

// phase is the phase a message is in when a has succeeded.
func (a action) phase() uint32 {
	switch a.kind {
	case OutcomeAck:
		return phaseAcked
	case OutcomeNack:
		return phaseNacked
	case OutcomeRelease:
		return phaseReleased
	default:
		return phaseDead
	}
}

// actionBatch holds the arguments of one call of a backend. It is pooled
// because it would otherwise be an allocation of every Ack, and can be because
// backends give slices back when they return. Only the slice that the action
// needs is used.
type actionBatch struct {
	receipts    []driver.Receipt
	nacks       []driver.Nack
	extensions  []driver.Extension
	deadLetters []driver.DeadLetterRequest
}

var actionBatches pool[actionBatch]

// clear empties the batch and lets go of what it pointed to.
func (b *actionBatch) clear() {
	clear(b.receipts)
	clear(b.nacks)
	clear(b.extensions)
	clear(b.deadLetters)
	b.receipts, b.nacks = b.receipts[:0], b.nacks[:0]
	b.extensions, b.deadLetters = b.extensions[:0], b.deadLetters[:0]
}

func (b *actionBatch) free() {
	b.clear()
	actionBatches.put(b)
}

func (b *actionBatch) add(receipt driver.Receipt, a action) {
	switch a.kind {
	case OutcomeAck:
		b.receipts = append(b.receipts, receipt)
	case OutcomeNack:
		b.nacks = append(b.nacks, driver.Nack{Receipt: receipt, Delay: a.duration, Cause: causeText(a.cause)})
	case OutcomeRelease, extension:
		b.extensions = append(b.extensions, driver.Extension{Receipt: receipt, Visibility: a.duration})
	case OutcomeDeadLetter:
		request := driver.DeadLetterRequest{Receipt: receipt, Reason: a.reason, Error: causeText(a.cause)}
		if a.cause != nil {
			request.ErrorType = ErrorType(a.cause)
		}
		b.deadLetters = append(b.deadLetters, request)
	}
}

// send makes the one call of the backend that the action needs. granted is that of
// driver.Queue.Extend.
func (b *actionBatch) send(ctx context.Context, queue driver.Queue, a action) (granted []time.Duration, err error) {
	switch a.kind {
	case OutcomeAck:
		return nil, queue.Ack(ctx, b.receipts)
	case OutcomeNack:
		return nil, queue.Nack(ctx, b.nacks)
	case OutcomeDeadLetter:
		return nil, queue.DeadLetter(ctx, b.deadLetters)
	default:
		return queue.Extend(ctx, b.extensions)
	}
}
