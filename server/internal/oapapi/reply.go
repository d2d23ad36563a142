package oapapi

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/completion"
	"github.com/mailboxmq/mailbox/internal/oap"
	"github.com/mailboxmq/mailbox/internal/replyslot"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// useSlot does requests that concern reply slots.
func (c *conn) useSlot(ctx context.Context, f *oap.Frame) {
	correlation := f.Correlation
	replies, all, _ := c.caller.user.Replies().Quick(&c.round)
	once := c.onceHere
	if !all {
		replies, once = c.caller.user.Replies(), c.once
	}
	change := func(do func(context.Context, string) error) {
		if ticket, id, err := oap.ParseSlotID(f.Payload); c.readable(correlation, err) {
			once(correlation, ticket, func() (func([]byte) []byte, error) { return nil, do(ctx, id) })
		}
	}
	switch f.Code {
	case oap.OpCreateSlot:
		if ticket, id, ttl, err := oap.ParseSlotTime(f.Payload); c.readable(correlation, err) {
			once(correlation, ticket, func() (func([]byte) []byte, error) { return nil, replies.Create(ctx, id, ttl) })
		}
	case oap.OpResolveSlot:
		if ticket, id, answer, err := oap.ParseResolve(f.Payload); c.readable(correlation, err) {
			once(correlation, ticket, func() (func([]byte) []byte, error) { return nil, replies.Resolve(ctx, id, answer) })
		}
	case oap.OpCancelSlot:
		change(replies.Cancel)
	case oap.OpDeleteSlot:
		c.deleteSlot(ctx, f)
	case oap.OpConsumeSlot:
		if ticket, id, err := oap.ParseSlotID(f.Payload); c.readable(correlation, err) {
			once(correlation, ticket, func() (func([]byte) []byte, error) {
				slot, err := replies.Consume(ctx, id)
				return func(dst []byte) []byte { return oap.AppendSlot(dst, &slot) }, err
			})
		}
	case oap.OpWaitSlot:
		c.waitForSlot(ctx, f)
	case oap.OpSendAsking:
		c.sendAsking(ctx, f)
	case oap.OpAnswer:
		c.answerAndAck(ctx, f)
	case oap.OpSlots:
		stream(ctx, c, correlation, c.caller.user.Replies().List, oap.AppendSlot)
	case oap.OpExpiredSlots:
		if _, limit, err := oap.ParseSlotLimit(f.Payload); c.readable(correlation, err) {
			stream(ctx, c, correlation, func(ctx context.Context) iter.Seq2[string, error] {
				return listed(c.caller.user.Replies().Expired(ctx, limit))
			}, func(dst []byte, id *string) []byte { return oap.AppendQueueName(dst, *id) })
		}
	case oap.OpSweepSlots:
		if ticket, limit, err := oap.ParseSlotLimit(f.Payload); c.readable(correlation, err) {
			c.once(correlation, ticket, func() (func([]byte) []byte, error) {
				n, err := c.caller.user.Replies().Sweep(ctx, limit) // it is not on the goroutine of the round
				return func(dst []byte) []byte { return oap.AppendCount(dst, n) }, err
			})
		}
	}
}

// deleteSlot removes a slot. Without a ticket the client does not wait for the disk.
func (c *conn) deleteSlot(ctx context.Context, f *oap.Frame) {
	ticket, id, err := oap.ParseSlotID(f.Payload)
	if !c.readable(f.Correlation, err) {
		return
	}
	if replies, all, quick := c.caller.user.Replies().Quick(&c.round); all || quick && ticket.Sequence == 0 {
		c.onceHere(f.Correlation, ticket, func() (func([]byte) []byte, error) { return nil, replies.Discard(ctx, id) })
		return
	}
	remove := c.caller.user.Replies().Delete
	if ticket.Sequence == 0 {
		remove = c.caller.user.Replies().Discard
	}
	c.once(f.Correlation, ticket, func() (func([]byte) []byte, error) { return nil, remove(ctx, id) })
}

// onceHere is once on the goroutine of the reader, for what does not block.
func (c *conn) onceHere(correlation uint64, ticket oap.Ticket, do func() (fill func(dst []byte) []byte, err error)) {
	r := &request{correlation: correlation, ticket: ticket}
	if c.admit(r) {
		fill, err := do()
		c.respond(&c.round, r, elsewhere(err), fill)
	}
}

// sendAsking creates a slot and sends the message that names it. If it is not sent, the slot is removed.
func (c *conn) sendAsking(ctx context.Context, f *oap.Frame) {
	target, q, ok := c.target(f)
	if !ok {
		return
	}
	_, id, ttl, message, err := oap.ParseAsking(f.Payload)
	if !c.readable(f.Correlation, err) {
		return
	}
	if c.isDraining() {
		c.answer(f.Correlation, oap.StatusElsewhere, nil)
		return
	}
	user := q.caller.user
	if _, _, quick := user.Replies().Quick(&c.round); quick && !q.absent.Load() {
		c.startAsking(ctx, q, &request{correlation: f.Correlation, ticket: target.Ticket}, id, ttl, message)
		return
	}
	c.once(f.Correlation, target.Ticket, func() (func([]byte) []byte, error) {
		absent := q.absent.Load()
		if !absent {
			user = user.Existing()
		}
		sent, err := user.Replies().Ask(ctx, q.name, id, ttl, broker.Outgoing{Outgoing: message})
		if err == nil && absent {
			q.absent.Store(false)
		}
		errs, whole := outcome(elsewhere(err))
		return func(dst []byte) []byte { return oap.AppendSent(dst, sent, errs) }, whole
	})
}

// startAsking is sendAsking that does not wait.
func (c *conn) startAsking(ctx context.Context, q *queue, r *request, id string, ttl time.Duration, message driver.Outgoing) {
	if !c.admit(r) {
		return
	}
	c.awaitFirst()
	replies, _, _ := q.caller.user.Replies().Quick(&c.round)
	if err := replies.CreateForSend(ctx, id, ttl); err != nil {
		c.respond(&c.round, r, elsewhere(err), nil)
		return
	}
	c.work.Add(1)
	c.round.Alone = c.started.Add(1) == 1 && c.in.idle()
	c.first = q.caller.user.StartSend(ctx, &c.round, q.name, brokerMessages([]driver.Outgoing{message}), func(round *completion.Round, sent []driver.Sent, err error) {
		errs, whole := outcome(elsewhere(err))
		respond := func(round *completion.Round) {
			c.started.Add(-1)
			c.respond(round, r, whole, func(dst []byte) []byte { return oap.AppendSent(dst, sent, errs) })
			c.work.Done()
		}
		if err == nil {
			respond(round)
			return
		}
		sent = slices.Clone(sent)
		completion.Begin(func() func(*completion.Round) {
			_ = q.caller.user.Replies().Delete(context.WithoutCancel(ctx), id) // otherwise it expires
			return respond
		})
	})
	c.round.Alone = false
}

// answerAndAck stores an answer and acks its request.
func (c *conn) answerAndAck(ctx context.Context, f *oap.Frame) {
	target, q, ok := c.target(f)
	if !ok {
		return
	}
	_, receipt, id, answer, err := oap.ParseAnswering(f.Payload)
	if !c.readable(f.Correlation, err) {
		return
	}
	r := &request{correlation: f.Correlation, ticket: target.Ticket}
	replies, _, quick := q.caller.user.Replies().Quick(&c.round)
	if !quick {
		c.once(f.Correlation, target.Ticket, func() (func([]byte) []byte, error) {
			return c.answered(q.caller.user.Replies().Answer(ctx, q.name, receipt.Handle, id, answer))
		})
		return
	}
	if !c.admit(r) {
		return
	}
	c.work.Add(1)
	c.round.Alone = c.started.Add(1) == 1 && c.in.idle()
	replies.StartAnswer(ctx, q.name, receipt.Handle, id, answer, func(round *completion.Round, slotErr, ackErr error) {
		c.started.Add(-1)
		fill, err := c.answered(slotErr, ackErr)
		c.respond(round, r, elsewhere(err), fill)
		c.work.Done()
	})
	c.round.Alone = false
}

// answered returns the answer to OpAnswer, or an error if neither was the slot written nor the delivery
// acked.
func (c *conn) answered(slotErr, ackErr error) (fill func([]byte) []byte, err error) {
	if slotErr != nil && !replyslot.IsOver(slotErr) {
		return nil, slotErr
	}
	c.held.settled(1 - stillHeld(driver.NewBatchError([]error{ackErr}), 1))
	return func(dst []byte) []byte { return oap.AppendFailures(dst, []error{slotErr, ackErr}) }, nil
}

// listed returns a list as a sequence, which ends with err if that is not nil.
func listed(all []string, err error) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for _, one := range all {
			if !yield(one, nil) {
				return
			}
		}
		if err != nil {
			yield("", err)
		}
	}
}

// maxUnreadAnswers bounds the answers for a client that does not read them: one slot can have
// thousands of waits, and each gets a copy.
const maxUnreadAnswers = 8 << 20

// slotWaiting is a request that waits for a reply slot.
type slotWaiting struct {
	conn        *conn
	correlation uint64

	// Guarded by conn.mu.
	ended   bool  // it is complete
	tracked bool  // it is one of conn.running
	cause   error // why it was cancelled
}

// waitForSlot starts a wait, or reads a slot. Waits do not count as requests in flight: a client has
// as many as it has callers, and the broker bounds them.
func (c *conn) waitForSlot(ctx context.Context, f *oap.Frame) {
	_, id, wait, err := oap.ParseSlotTime(f.Payload)
	if !c.readable(f.Correlation, err) || !c.free(f.Correlation) {
		return
	}
	replies := c.caller.user.Replies()
	if wait <= 0 {
		once := c.once
		if quick, all, _ := replies.Quick(&c.round); all {
			replies, once = quick, c.onceHere
		}
		once(f.Correlation, oap.Ticket{}, func() (func([]byte) []byte, error) {
			slot, err := replies.Get(ctx, id)
			return func(dst []byte) []byte { return oap.AppendSlot(dst, &slot) }, err
		})
		return
	}
	if c.isDraining() {
		c.answer(f.Correlation, oap.StatusElsewhere, nil)
		return
	}
	c.ease()
	w := &slotWaiting{conn: c, correlation: f.Correlation}
	c.slotWaits.Add(1)
	c.inFlight.Add(-1)
	c.work.Add(1)
	if waiting := replies.StartWait(ctx, &c.round, id, wait, w); waiting != nil {
		w.track(waiting)
	}
}

// track makes a wait one that the client can cancel, unless it is complete by now.
func (w *slotWaiting) track(waiting completion.Waiting) {
	c := w.conn
	cancel := func(cause error) {
		c.mu.Lock()
		w.cause = cause
		c.mu.Unlock()
		waiting.Cancel()
	}
	c.mu.Lock()
	draining := c.draining
	if w.tracked = !w.ended; w.tracked {
		c.running[w.correlation] = &running{conn: c, correlation: w.correlation, cancel: cancel}
	}
	c.mu.Unlock()
	if draining {
		cancel(errElsewhere)
	}
}

// SlotRead implements broker.SlotReader.
func (w *slotWaiting) SlotRead(round *completion.Round, slot driver.Slot, err error) {
	c := w.conn
	c.mu.Lock()
	w.ended = true
	cause := w.cause
	if w.tracked {
		delete(c.running, w.correlation)
	}
	c.mu.Unlock()
	c.inFlight.Add(1)
	c.slotWaits.Add(-1)
	if err == nil && len(slot.Answer.Body)+len(slot.Answer.Failure) > 0 && c.out.size() > maxUnreadAnswers {
		// The client asks again, and gets the answer when it has read what it was sent before.
		slot.State, slot.Answer, slot.ResolvedAt = driver.SlotPending, driver.Answer{}, time.Time{}
	}
	if errors.Is(err, context.Canceled) {
		if err = errElsewhere; cause != nil { // without a cause the daemon drains
			err = cause
		}
	}
	if errors.Is(err, context.Canceled) {
		c.out.frame(round, oap.Response, oap.StatusCancelled, w.correlation, nil)
		c.inFlight.Add(-1)
	} else {
		c.respond(round, &request{correlation: w.correlation}, elsewhere(err), func(dst []byte) []byte { return oap.AppendSlot(dst, &slot) })
	}
	c.work.Done()
}
