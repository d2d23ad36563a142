package mailbox

import (
	"context"
	"fmt"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// An Outcome is how a message was settled.
type Outcome string

// The outcomes. They are also the names of the operations in errors.
const (
	OutcomeAck        Outcome = "ack"
	OutcomeNack       Outcome = "nack"
	OutcomeRelease    Outcome = "release"
	OutcomePutBack    Outcome = "put-back"
	OutcomeDeadLetter Outcome = "dead-letter"
)

// extension is the kind of an action that does not settle.
const extension = "extend"

// AckAll acks messages, which may come from several mailboxes, with as few calls of the
// backends as possible. If any fails, the error is a *BatchError in which position i
// belongs to messages[i]; see ErrorAt. Codes of a position are those of Message.Ack,
// and mean the same.
func AckAll[T any](ctx context.Context, messages ...*Message[T]) error {
	return performAll(ctx, action{kind: OutcomeAck}, messages)
}

// NackAll nacks messages as AckAll acks them, all with the same delay and cause.
func NackAll[T any](ctx context.Context, delay time.Duration, cause error, messages ...*Message[T]) error {
	return performAll(ctx, action{kind: OutcomeNack, duration: delay, cause: cause}, messages)
}

// ReleaseAll releases messages as AckAll acks them, without a delay.
func ReleaseAll[T any](ctx context.Context, messages ...*Message[T]) error {
	return performAll(ctx, action{kind: OutcomeRelease}, messages)
}

// PutBackAll puts messages back as AckAll acks them, all with the same delay and cause.
func PutBackAll[T any](ctx context.Context, delay time.Duration, cause error, messages ...*Message[T]) error {
	return performAll(ctx, action{kind: OutcomePutBack, duration: delay, cause: cause}, messages)
}

// ExtendAll extends messages as AckAll acks them, all to the same visibility.
func ExtendAll[T any](ctx context.Context, visibility time.Duration, messages ...*Message[T]) error {
	return performAll(ctx, action{kind: extension, duration: visibility}, messages)
}

// performAll performs an action on messages, mailbox by mailbox.
func performAll[T any](ctx context.Context, a action, messages []*Message[T]) error {
	errs := make([]error, len(messages))
	var groups []mailboxGroup[T]
	for i, message := range messages {
		if message != nil && message.origin != nil {
			errs[i] = message.perform(ctx, a)
			continue
		}
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

// addToGroup adds a position to the group of its mailbox. It searches the groups one by
// one, because there is hardly ever more than one.
func addToGroup[T any](groups []mailboxGroup[T], mailbox *Mailbox[T], position int) []mailboxGroup[T] {
	for i := range groups {
		if groups[i].mailbox == mailbox {
			groups[i].positions = append(groups[i].positions, position)
			return groups
		}
	}
	return append(groups, mailboxGroup[T]{mailbox, []int{position}})
}

// perform makes calls of at most Traits.MaxBatch messages. After a call that fails as a
// whole it makes no more: the backend is unavailable, and they would only wait for it.
func (g *mailboxGroup[T]) perform(ctx context.Context, a action, messages []*Message[T], errs []error) {
	maxBatch := g.mailbox.Queue().Traits().MaxBatch
	if maxBatch <= 0 {
		maxBatch = len(g.positions)
	}
	batch := actionBatches.get()
	defer batch.free()
	a = a.on(g.mailbox.Queue())
	var broken error
	for from := 0; from < len(g.positions); from += maxBatch {
		step := g.positions[from:min(from+maxBatch, len(g.positions))]
		start := startIf(g.mailbox.observes(a))
		var granted []time.Duration
		err := broken
		if broken == nil {
			batch.clear()
			for _, i := range step {
				batch.add(messages[i].Receipt, a, messages[i].progress.Load())
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

// observes reports whether there is a hook for an action.
func (m *Mailbox[T]) observes(a action) bool {
	if a.kind == extension {
		return m.hooks.Extended != nil
	}
	return m.hooks.Settled != nil
}

// An action settles or extends leased messages.
type action struct {
	kind     Outcome       // an outcome, or extension
	duration time.Duration // the delay of a message that is given back, the visibility of an extension
	granted  time.Duration // how long an extension leased the message
	reason   Reason        // of a dead letter
	cause    error         // of a nack, a put back or a dead letter
	counted  bool          // a message is given back to a queue that counts every delivery
	// unanswered acks a request although its reply slot waits for an answer.
	unanswered bool
}

// with returns a with the duration granted to position i: the requested one if the
// backend returned none.
func (a action) with(granted []time.Duration, i int) action {
	a.granted = a.duration
	if i < len(granted) {
		a.granted = granted[i]
	}
	return a
}

// on returns a for a queue.
func (a action) on(queue driver.Queue) action {
	if a.kind == OutcomeRelease || a.kind == OutcomePutBack {
		a.counted = !queue.Traits().Release
	}
	return a
}

// check returns a new error if the queue cannot perform the action.
func (a action) check(queue driver.Queue) error {
	switch a.kind {
	case OutcomeNack, OutcomeRelease, OutcomePutBack:
		traits := queue.Traits()
		return driver.CheckVisibility(string(a.kind), "Delay", a.duration, &traits)
	case extension:
		traits := queue.Traits()
		return driver.CheckVisibility(extension, "Visibility", a.duration, &traits)
	case OutcomeDeadLetter:
		if !a.reason.Valid() {
			return &Error{
				Code: ErrInvalid, Op: string(a.kind), Field: "Reason",
				Detail: fmt.Sprintf("%q is not a reason; want max_attempts, fatal, parse, integrity, expired or operator", string(a.reason)),
			}
		}
		return checkDeadLetters(queue, string(a.kind))
	}
	return nil
}

// phase returns the phase of a message after the action has succeeded.
func (a action) phase() uint32 {
	switch a.kind {
	case OutcomeAck:
		return phaseAcked
	case OutcomeNack:
		return phaseNacked
	case OutcomeRelease:
		return phaseReleased
	case OutcomePutBack:
		return phasePutBack
	default:
		return phaseDead
	}
}

// extends reports whether the action is a release on a queue that counts it: the lease
// ends, at once or after the delay, and the message is at its place.
func (a action) extends() bool { return a.kind == OutcomeRelease && a.counted }

// mode returns the mode of a nack.
func (a action) mode() driver.NackMode {
	switch {
	case a.counted:
		return driver.NackFailed
	case a.kind == OutcomeRelease:
		return driver.NackRelease
	case a.kind == OutcomePutBack:
		return driver.NackPutBack
	}
	return driver.NackFailed
}

// actionBatch holds the arguments of one call of a backend, in the slice that the action
// needs. It is pooled, because it would otherwise be an allocation in every Ack. That is
// safe because backends do not keep the slices that they are given.
type actionBatch struct {
	receipts    []driver.Receipt
	nacks       []driver.Nack
	extensions  []driver.Extension
	deadLetters []driver.DeadLetterRequest
}

var actionBatches pool[actionBatch]

// clear empties the batch and drops its references.
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

// add adds a message. progress is its report, for an extension; it may be nil.
func (b *actionBatch) add(receipt driver.Receipt, a action, progress *driver.Progress) {
	switch a.kind {
	case OutcomeAck:
		b.receipts = append(b.receipts, receipt)
	case OutcomeNack, OutcomeRelease, OutcomePutBack:
		if a.extends() {
			b.extensions = append(b.extensions, driver.Extension{Receipt: receipt, Visibility: a.duration})
			return
		}
		b.nacks = append(b.nacks, driver.Nack{Receipt: receipt, Delay: a.duration, Cause: causeText(a.cause), Mode: a.mode()})
	case extension:
		b.extensions = append(b.extensions, driver.Extension{Receipt: receipt, Visibility: a.duration, Progress: progress})
	case OutcomeDeadLetter:
		request := driver.DeadLetterRequest{Receipt: receipt, Reason: a.reason, Error: causeText(a.cause)}
		if a.cause != nil {
			request.ErrorType = ErrorType(a.cause)
		}
		b.deadLetters = append(b.deadLetters, request)
	}
}

// send calls the backend once. granted is the result of driver.Queue.Extend.
func (b *actionBatch) send(ctx context.Context, queue driver.Queue, a action) (granted []time.Duration, err error) {
	switch a.kind {
	case OutcomeAck:
		return nil, queue.Ack(ctx, b.receipts)
	case OutcomeNack, OutcomeRelease, OutcomePutBack:
		if a.extends() {
			_, err = queue.Extend(ctx, b.extensions)
			return nil, err
		}
		return nil, queue.Nack(ctx, b.nacks)
	case OutcomeDeadLetter:
		return nil, queue.DeadLetter(ctx, b.deadLetters)
	default:
		return queue.Extend(ctx, b.extensions)
	}
}
