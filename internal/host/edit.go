package host

import (
	"context"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/engine"
)

func (h *handle) Edit(ctx context.Context, id string, edit driver.Edit) (was driver.State, err error) {
	if err := h.check(ctx, "edit"); err != nil {
		return "", err
	}
	if err := edit.Check(h.settings.Load().traits); err != nil {
		return "", h.named(err, "edit")
	}
	if h.journal != nil && !edit.Remove { // the message is written again
		if err := h.journal.Admit(); err != nil {
			return "", h.named(err, "edit")
		}
	}
	was, err = h.edit(ctx, id, edit)
	h.serve(nil)
	if durable := h.backend.barrier(); durable != nil {
		return "", h.named(durable, "edit")
	}
	return was, h.named(err, "edit")
}

// edit finds a message and changes it. Of a message that was moved or redriven the id does not
// tell where a journal has it, so that is searched among all.
func (h *handle) edit(ctx context.Context, id string, edit driver.Edit) (was driver.State, err error) {
	for _, sh := range h.shards {
		if was, _, err = sh.edit(id, edit, 0); was != "" || err != nil {
			return was, err
		}
	}
	for _, sh := range h.shards {
		for next := uint64(1); h.journal != nil && next > 0; {
			if err := h.check(ctx, "edit"); err != nil {
				return "", err
			}
			if was, next, err = sh.edit(id, edit, next); was != "" || err != nil {
				return was, err
			}
		}
	}
	if err := h.broken("edit"); err != nil {
		return "", err
	}
	return "", driver.NotWaiting(id, "")
}

// edit changes a message if it is in the shard; was is empty if it is not. Unless from is 0, it
// searches from this Seq on, and returns where to go on, or 0.
func (sh *shard) edit(id string, edit driver.Edit, from uint64) (was driver.State, next uint64, err error) {
	sh.lock()
	defer sh.unlock()
	now := sh.queue.now()
	var e *engine.Entry
	var state engine.State
	if from == 0 {
		e, state = sh.engine.Find(now, id)
	} else {
		e, state, next = sh.engine.Search(now, id, from)
	}
	switch {
	case state == engine.InFlight:
		return "", 0, driver.NotWaiting(id, driver.StateInFlight)
	case e == nil && sh.engine.FindDead(id) != nil:
		return "", 0, driver.NotWaiting(id, driver.StateDead)
	case e == nil:
		return "", next, nil
	}
	was = driver.StateReady
	if state == engine.Delayed {
		was = driver.StateDelayed
	}
	due := now.Wall
	if !edit.DeliverAt.IsZero() {
		due = wallNanos(edit.DeliverAt)
	}
	switch {
	case edit.Remove:
		sh.engine.Remove(e)
	case edit.Prioritize:
		sh.engine.Prioritize(now, e, uint8(edit.Priority))
	case state == engine.Delayed || due > now.Wall:
		sh.engine.Reschedule(now, e, due)
	}
	return was, 0, nil
}
