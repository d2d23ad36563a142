package faulty

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var editFaults = []Saboteur{
	{Name: "keeps-what-is-removed", Breaks: "FLOW-3",
		What: "A message that is removed stays.",
		on:   hooks{edit: pretend(func(edit driver.Edit) bool { return edit.Remove })}},
	{Name: "keeps-what-is-made-ready-delayed", Breaks: "FLOW-3",
		What: "A delayed message that is made ready stays delayed.",
		on:   hooks{edit: pretend(func(edit driver.Edit) bool { return edit.Ready })}},
	{Name: "keeps-due-times", Breaks: "FLOW-3",
		What: "A new due time is not used.",
		on:   hooks{edit: pretend(func(edit driver.Edit) bool { return !edit.DeliverAt.IsZero() })}},
	{Name: "reschedules-delayed-messages-only", Breaks: "FLOW-3",
		What: "A ready message with a new due time stays ready.",
		on: hooks{edit: func(q *queue, ctx context.Context, id string, edit driver.Edit) (driver.State, error) {
			if was := q.stateOf(ctx, id); was == driver.StateReady && !edit.Remove && edit.Check(new(q.Traits())) == nil {
				return was, nil
			}
			return q.Edit(ctx, id, edit)
		}}},
	{Name: "delays-until-a-past-time", Breaks: "FLOW-3",
		What: "A new due time that is past delays a message.",
		on: hooks{edit: alterEdit(func(edit *driver.Edit) {
			set(!edit.DeliverAt.IsZero() && time.Until(edit.DeliverAt) < 0, &edit.DeliverAt, time.Now().Add(1300*time.Millisecond))
		})}},
	{Name: "does-not-wake-for-what-is-made-ready", Breaks: "FLOW-3",
		What: "A receive that waits notices after a while that a message was made ready.",
		on: hooks{edit: alterEdit(func(edit *driver.Edit) {
			if *edit == (driver.Edit{Ready: true}) {
				*edit = driver.Edit{DeliverAt: time.Now().Add(1300 * time.Millisecond)}
			}
		})}},
	{Name: "removes-what-is-in-flight", Breaks: "FLOW-3",
		What: "A message in flight can be removed.",
		on: hooks{edit: func(q *queue, ctx context.Context, id string, edit driver.Edit) (driver.State, error) {
			was, err := q.Edit(ctx, id, edit)
			if receipt, ok := q.latest.get(id); ok && edit.Remove && errors.Is(err, driver.ErrConflict) {
				return driver.StateInFlight, q.ackOne(ctx, receipt)
			}
			return was, err
		}}},
	{Name: "removes-dead-letters", Breaks: "FLOW-3",
		What: "A dead message can be removed.",
		on: hooks{edit: func(q *queue, ctx context.Context, id string, edit driver.Edit) (driver.State, error) {
			if edit.Remove {
				if n, err := q.Discard(ctx, []string{id}); n > 0 || err != nil {
					return driver.StateDead, err
				}
			}
			return q.Edit(ctx, id, edit)
		}}},
	{Name: "refuses-without-the-state", Breaks: "FLOW-3",
		What: "The refusal of an edit does not say in which state the message is.",
		on: hooks{edit: func(q *queue, ctx context.Context, id string, edit driver.Edit) (driver.State, error) {
			was, err := q.Edit(ctx, id, edit)
			if errors.Is(err, driver.ErrConflict) {
				err = &driver.Error{Code: driver.ErrConflict, Op: "edit", Queue: q.name, MessageID: id}
			}
			return was, err
		}}},
	{Name: "takes-every-message-for-ready", Breaks: "FLOW-3",
		What: "The answer says that the message was ready, whatever it was.",
		on: hooks{edit: func(q *queue, ctx context.Context, id string, edit driver.Edit) (driver.State, error) {
			was, err := q.Edit(ctx, id, edit)
			set(was != "", &was, driver.StateReady)
			return was, err
		}}},
	{Name: "edits-what-is-gone", Breaks: "FLOW-3",
		What: "An edit of a message that does not exist succeeds.",
		on: hooks{edit: func(q *queue, ctx context.Context, id string, edit driver.Edit) (driver.State, error) {
			was, err := q.Edit(ctx, id, edit)
			if errors.Is(err, driver.ErrNotFound) {
				return driver.StateReady, nil
			}
			return was, err
		}}},
	{Name: "does-not-find-redriven-messages", Breaks: "FLOW-3",
		What: "A message that was redriven cannot be changed.",
		on: hooks{edit: func(q *queue, ctx context.Context, id string, edit driver.Edit) (driver.State, error) {
			for _, peeked := range q.peeked(ctx, driver.StateReady) {
				if peeked.ID == id && peeked.Redrives > 0 {
					return "", driver.NotWaiting(id, "")
				}
			}
			return q.Edit(ctx, id, edit)
		}}},
	{Name: "searches-one-shard", Breaks: "FLOW-3",
		What: "Messages of some shards are not found.",
		on: hooks{only: sharded, edit: func(q *queue, ctx context.Context, id string, edit driver.Edit) (driver.State, error) {
			if q.nth(3) {
				return "", driver.NotWaiting(id, "")
			}
			return q.Edit(ctx, id, edit)
		}}},
	{Name: "puts-edited-messages-last", Breaks: "FLOW-3",
		What: "A message loses its place when its due time changes.",
		on: hooks{edit: noteEdited, receive: afterReceive(func(q *queue, _ context.Context, got []driver.Delivery) []driver.Delivery {
			edited := state[marks](q)
			slices.SortStableFunc(got, func(a, b driver.Delivery) int {
				return map[bool]int{true: 1}[edited.at(a.ID)] - map[bool]int{true: 1}[edited.at(b.ID)]
			})
			return got
		})}},
	{Name: "forgets-deliveries-of-edited-messages", Breaks: "FLOW-3",
		What: "A message whose due time changes counts its deliveries from 1.",
		on: hooks{edit: noteEdited, receive: alterDelivered(func(q *queue, d *driver.Delivery) {
			set(state[marks](q).at(d.ID), &d.Deliveries, 1)
		})}},
	{Name: "does-not-age-what-is-made-ready", Breaks: "FLOW-3",
		What: "The age of a message counts from the due time that it had first.",
		on: hooks{edit: noteEdited, stats: func(q *queue, ctx context.Context) (driver.Stats, error) {
			stats, err := q.Stats(ctx)
			letters, _ := collect(q.DeadLetters(ctx))
			for _, letter := range letters {
				if state[marks](q).at(letter.ID) && letter.Reason == driver.ReasonExpired {
					stats.Dead--
					stats.Ready++
				}
			}
			return stats, err
		}}},
	{Name: "removal-frees-no-room", Breaks: "FLOW-3",
		What: "A message that was removed counts against the bound on messages.",
		on: hooks{edit: afterRemoval(func(q *queue, ctx context.Context, _ string) error {
			if q.config().MaxMessages == 0 {
				return nil
			}
			removed := state[counts](q)
			return q.reconfigure(ctx, func(c *driver.Config) { c.MaxMessages -= add(removed, "", 1) })
		})}},
	{Name: "removal-forgets-the-dedup-key", Breaks: "FLOW-3",
		What: "The dedup key of a message that was removed is free.",
		on: hooks{edit: afterRemoval(func(q *queue, ctx context.Context, _ string) error {
			return q.ForgetDedup(ctx)
		})}},
	{Name: "removed-messages-block-their-group", Breaks: "FLOW-3",
		What: "A strict group waits for the due time of a message that was removed.",
		on: hooks{only: strict, edit: func(q *queue, ctx context.Context, id string, edit driver.Edit) (driver.State, error) {
			if was := q.stateOf(ctx, id); edit.Remove && was == driver.StateDelayed {
				return was, nil
			}
			return q.Edit(ctx, id, edit)
		}}},
	{Name: "shows-the-old-due-time", Breaks: "FLOW-3",
		What: "A peek shows the due time that a message had first.",
		on: hooks{edit: noteEdited, peek: func(q *queue, ctx context.Context, query driver.Query) iter.Seq2[driver.Peeked, error] {
			return filter(q.Peek(ctx, query), func(peeked *driver.Peeked) bool {
				set(state[marks](q).at(peeked.ID) && !peeked.DueAt.IsZero(), &peeked.DueAt, peeked.EnqueuedAt)
				return true
			})
		}}},
	{Name: "takes-two-changes", Breaks: "FLOW-3",
		What: "An edit with several changes does one of them.",
		on: hooks{edit: alterEdit(func(edit *driver.Edit) {
			if edit.Remove {
				*edit = driver.Edit{Remove: true}
			}
		})}},
	{Name: "takes-any-due-time", Breaks: "FLOW-3",
		What: "A due time that is too far ahead is moved to the longest one.",
		on: hooks{edit: func(q *queue, ctx context.Context, id string, edit driver.Edit) (driver.State, error) {
			longest := time.Now().Add(q.Traits().MaxDelay)
			set(edit.DeliverAt.After(longest), &edit.DeliverAt, longest)
			return q.Edit(ctx, id, edit)
		}}},
	{Name: "denies-that-it-edits", Breaks: "FLOW-3",
		What: "A queue that can change messages says that it cannot.",
		on:   hooks{traits: alterTraits(func(_ *queue, traits *driver.Traits) { traits.Edit = false })}},
	{Name: "brings-removed-messages-back-on-restart", Breaks: "FLOW-3",
		What: "After a restart messages that were removed are back.",
		on: hooks{edit: func(q *queue, ctx context.Context, id string, edit driver.Edit) (driver.State, error) {
			for _, peeked := range q.peeked(ctx, driver.StateReady) {
				if peeked.ID == id && edit.Remove {
					q.wrapper.log.put(q.name, append(slices.Clip(q.wrapper.log.at(q.name)), peeked.Message))
				}
			}
			return q.Edit(ctx, id, edit)
		}},
		restart: (*queue).bringBack},
	{Name: "forgets-new-due-times-on-restart", Breaks: "FLOW-3",
		What: "After a restart messages that got a due time are ready.",
		restart: func(q *queue, ctx context.Context) error {
			for _, peeked := range q.peeked(ctx, driver.StateDelayed) {
				if _, err := q.Edit(ctx, peeked.ID, driver.Edit{Ready: true}); err != nil {
					return err
				}
			}
			return nil
		}},
}

// stateOf returns the state of a message, or "".
func (q *queue) stateOf(ctx context.Context, id string) driver.State {
	for peeked, err := range q.Peek(ctx, driver.Query{ID: id}) {
		if err == nil {
			return peeked.State
		}
	}
	return ""
}

// pretend answers valid edits of waiting messages without doing them.
func pretend(which func(driver.Edit) bool) editFunc {
	return func(q *queue, ctx context.Context, id string, edit driver.Edit) (driver.State, error) {
		was := q.stateOf(ctx, id)
		if waits := was == driver.StateReady || was == driver.StateDelayed; waits && which(edit) && edit.Check(new(q.Traits())) == nil {
			return was, nil
		}
		return q.Edit(ctx, id, edit)
	}
}

// alterEdit changes each edit before the backend gets it.
func alterEdit(change func(*driver.Edit)) editFunc {
	return func(q *queue, ctx context.Context, id string, edit driver.Edit) (driver.State, error) {
		change(&edit)
		return q.Edit(ctx, id, edit)
	}
}

// noteEdited marks the messages whose due time is changed.
func noteEdited(q *queue, ctx context.Context, id string, edit driver.Edit) (driver.State, error) {
	was, err := q.Edit(ctx, id, edit)
	if err == nil && !edit.Remove {
		state[marks](q).put(id, true)
	}
	return was, err
}

// afterRemoval does something after each removal.
func afterRemoval(then func(q *queue, ctx context.Context, id string) error) editFunc {
	return func(q *queue, ctx context.Context, id string, edit driver.Edit) (driver.State, error) {
		was, err := q.Edit(ctx, id, edit)
		if err == nil && edit.Remove {
			err = then(q, ctx, id)
		}
		return was, err
	}
}
