package broker

import (
	"context"
	"fmt"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/completion"
	"github.com/mailboxmq/mailbox/internal/replyslot"
	"github.com/mailboxmq/mailbox/internal/verify"
)

// Resolve stores the answer and wakes the callers that wait. The body must not be larger than that of
// a message. It blocks until the answer is as durable as the backend makes it.
func (r Replies) Resolve(ctx context.Context, id string, answer driver.Answer) error {
	return r.resolveWith(ctx, id, answer, func(name string) error { return r.caller.broker.replies.Resolve(ctx, name, answer) })
}

// resolveWith stores an answer with a function of the backend.
func (r Replies) resolveWith(ctx context.Context, id string, answer driver.Answer, resolve func(name string) error) error {
	answered, err := r.beginResolve(ctx, id, answer, resolve)
	if err == nil {
		answered()
	}
	return err
}

// beginResolve is resolveWith for a function that may leave the storing to an ack. answered counts the answer
// when it is stored.
func (r Replies) beginResolve(ctx context.Context, id string, answer driver.Answer, resolve func(name string) error) (answered func(), err error) {
	c, b := r.caller, r.caller.broker
	size := answerBytes(&answer)
	by, err := c.authorizeSlot(ctx, id, verify.Load{Messages: 1, Bytes: size, LargestBody: size}, capability.OpAnswer)
	if err != nil {
		return nil, err
	}
	if limit := c.limits().MaxPayloadBytes; size > int64(limit) {
		b.metrics.Rejected(metricOversize)
		large := driver.SlotError(opResolveSlot, id, driver.ErrTooLarge)
		large.Field, large.Detail = "Body", fmt.Sprintf("at most %d bytes are allowed", limit)
		return nil, large
	}
	return func() {
		by.Charge(1, size) // afterwards: a quota does not delay settling, and the answer comes before the ack
		b.metrics.Reply(replyAnswered)
	}, r.inSlot(ctx, opResolveSlot, id, lastForSettling, func(name string) error { return r.resolveInShare(ctx, id, name, size, resolve) })
}

// resolveInShare stores an answer with a function of the backend, and counts its bytes until the slot is
// removed if the store keeps answers in memory. Further codes: ErrFull (the share).
func (r Replies) resolveInShare(ctx context.Context, id, name string, size int64, resolve func(name string) error) error {
	c, b := r.caller, r.caller.broker
	if store, ok := b.replies.(quickStore); !ok || !store.InMemory() {
		return resolve(name)
	}
	held, err := b.slots.takeAnswer(name, size)
	if err != nil {
		b.metrics.Rejected(metricSaturated)
		c.slowRefusal(ctx, r.round, err)
		return refusedShare(err, opResolveSlot, driver.SlotAddress(id))
	}
	err = resolve(name)
	b.slots.endAnswer(name, held, size, err == nil)
	return err
}

// Answer stores an answer and then acks the request that names the slot, in one step where the backend can. A
// request whose slot accepts no answer any more is acked all the same (RPL-2); with any other slotErr it is not
// acked. It blocks until both are as durable as the backend makes them.
func (r Replies) Answer(ctx context.Context, queue, receipt, id string, answer driver.Answer) (slotErr, ackErr error) {
	store, linked := r.caller.linkedStore(queue)
	acking, stored := ctx, func() error { return nil }
	answered, slotErr := r.beginResolve(ctx, id, answer, func(name string) (err error) {
		if !linked {
			return r.caller.broker.replies.Resolve(ctx, name, answer)
		}
		var finish func() error
		acking, finish, err = store.ResolveWithAck(ctx, name, answer)
		stored = func() error { return named(finish(), driver.SlotAddress(name), driver.SlotAddress(id)) }
		return err
	})
	if slotErr != nil && !replyslot.IsOver(slotErr) {
		return slotErr, nil
	}
	ackErr = driver.At(r.caller.Ack(acking, queue, []string{receipt}), 0)
	if slotErr == nil {
		slotErr = stored()
	}
	if slotErr == nil {
		answered()
	}
	return slotErr, ackErr
}

// StartAnswer is Answer that does not block, for a store of which Quick reports asking; see package
// completion. Answer and ack are one commit where the backend has a journal.
func (r Replies) StartAnswer(ctx context.Context, queue, receipt, id string, answer driver.Answer, done func(round *completion.Round, slotErr, ackErr error)) {
	stored := func() error { return nil }
	slotErr := r.resolveWith(ctx, id, answer, func(name string) (err error) {
		_, finish, err := r.caller.broker.replies.(quickStore).ResolveWithAck(ctx, name, answer)
		stored = func() error { return named(finish(), driver.SlotAddress(name), driver.SlotAddress(id)) }
		return err
	})
	if slotErr != nil && !replyslot.IsOver(slotErr) {
		done(r.round, slotErr, nil)
		return
	}
	r.caller.StartAck(ctx, r.round, queue, []string{receipt}, func(round *completion.Round, err error) {
		ackErr := driver.At(err, 0)
		switch {
		case slotErr != nil:
			done(round, slotErr, ackErr)
		case ackErr == nil: // the answer, which was recorded before, is durable too
			done(round, stored(), nil)
		default:
			completion.Begin(func() func(*completion.Round) {
				slotErr := stored()
				return func(round *completion.Round) { done(round, slotErr, ackErr) }
			})
		}
	})
}

// answerBytes is the size of an answer. A failure counts as a body does.
func answerBytes(a *driver.Answer) int64 {
	return int64(len(a.Body) + len(a.Failure) + len(a.FailureKind))
}
