package broker

import (
	"context"
	"errors"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/completion"
	"github.com/mailboxmq/mailbox/internal/verify"
)

// Wait is Get that waits until the slot is not pending, for patience at most, and for no longer than
// the daemon's limit. The slot that it returns is pending too when the daemon drains. Further codes:
// ErrFull (the share of waiting calls).
func (r Replies) Wait(ctx context.Context, id string, patience time.Duration) (slot driver.Slot, err error) {
	if patience <= 0 {
		return r.Get(ctx, id)
	}
	c, b := r.caller, r.caller.broker
	w, err := c.beginSlotWait(ctx, id)
	if err != nil {
		return slot, err
	}
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	b.waiting.set(&w.wait, completion.Canceller(cancel))
	slot, err = b.replies.Wait(waiting, w.name, c.slotPatience(patience))
	if err != nil && ctx.Err() == nil && waiting.Err() != nil && errors.Is(err, waiting.Err()) { // the daemon drains
		slot, err = b.replies.Get(ctx, w.name)
	}
	c.resume(ctx)
	return w.end(ctx, slot, err)
}

// A SlotReader gets the result of a wait that was started.
type SlotReader interface {
	SlotRead(r *completion.Round, slot driver.Slot, err error)
}

// startedWaits is a reply store that waits without a goroutine; see slotstore.Store.
type startedWaits interface {
	StartWait(id string, wait time.Duration, done func(driver.Slot, error)) (cancel func())
}

// StartWait is Wait that does not block; see package completion. When the daemon drains the wait ends
// with context.Canceled. It returns nil if the call is complete.
func (r Replies) StartWait(ctx context.Context, round *completion.Round, id string, patience time.Duration, to SlotReader) completion.Waiting {
	c, b := r.caller, r.caller.broker
	w, err := c.beginSlotWait(ctx, id)
	if err != nil {
		to.SlotRead(round, driver.Slot{}, err)
		return nil
	}
	done := func(slot driver.Slot, err error) {
		slot, err = w.end(ctx, slot, err)
		round := completion.NewRound()
		to.SlotRead(round, slot, err)
		round.Close()
	}
	// Slots that are not pending are read at once, however often: that takes turns.
	if err := c.startTurn(ctx, round, opWaitSlot, driver.SlotAddress(id), 1); err != nil {
		slot, err := w.end(ctx, driver.Slot{}, err)
		to.SlotRead(round, slot, err)
		return nil
	}
	defer c.done(1)
	patience = c.slotPatience(patience)
	var waiting completion.Waiting
	if store, ok := b.replies.(startedWaits); ok {
		if cancel := store.StartWait(w.name, patience, done); cancel != nil {
			waiting = completion.Canceller(cancel)
		}
	} else {
		ctx, cancel := context.WithCancel(ctx)
		waiting = completion.Canceller(cancel)
		go func() {
			defer cancel()
			done(b.replies.Wait(ctx, w.name, patience))
		}()
	}
	if waiting != nil {
		b.waiting.set(&w.wait, waiting)
	}
	return waiting
}

// A slotWait is a call that waits for a slot.
type slotWait struct {
	caller   *Caller
	id, name string // the slot as the caller names it, and as the backend does
	by       slotGrant
	wait     wait
}

// beginSlotWait authorises a wait and takes a unit of the caller's share of waiting calls, which end
// gives back.
func (c *Caller) beginSlotWait(ctx context.Context, id string) (*slotWait, error) {
	b, owner := c.broker, c.owner()
	by, err := c.authorizeSlot(ctx, id, verify.Load{}, capability.OpAsk, capability.OpAnswer, capability.OpAdmin)
	if err != nil {
		return nil, err
	}
	name, err := c.slotName(opWaitSlot, id, lastForReads)
	if err != nil {
		return nil, err
	}
	if err := b.waits.Take(owner[:], 1); err != nil {
		b.metrics.Rejected(metricSaturated)
		return nil, refusedShare(err, opWaitSlot, driver.SlotAddress(id))
	}
	w := &slotWait{caller: c, id: id, name: name, by: by}
	b.waiting.enter(&w.wait)
	return w, nil
}

// end ends a wait with what the backend has returned. A token that was revoked meanwhile gets nothing.
func (w *slotWait) end(ctx context.Context, slot driver.Slot, err error) (driver.Slot, error) {
	c, b, owner := w.caller, w.caller.broker, w.caller.owner()
	b.waiting.leave(&w.wait)
	b.waits.Give(owner[:], 1)
	if err == nil {
		if err = b.verifier.Valid(ctx, c.token); err != nil {
			c.refused(ctx, c.request(w.by.operation, ""), err)
		} else if slot.State == driver.SlotResolved {
			b.slots.noteRead(w.name)
		}
	}
	return c.shownSlot(slot, w.id, w.by, named(err, driver.SlotAddress(w.name), driver.SlotAddress(w.id)))
}

// slotPatience bounds how long a call waits for a slot.
func (c *Caller) slotPatience(patience time.Duration) time.Duration {
	if limit := c.limits().MaxWait; limit > 0 {
		return min(patience, limit)
	}
	return patience
}
