package faulty

import (
	"context"
	"iter"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var priorityFaults = []Saboteur{
	{Name: "ignores-priorities", Breaks: "FLOW-1",
		What: "Messages are delivered in the order of sending, whatever their priority.",
		on:   alterPriority(func(priority int) int { return 0 })},
	{Name: "delivers-the-lowest-priority-first", Breaks: "FLOW-1",
		What: "A message with a lower priority is delivered first.",
		on:   alterPriority(func(priority int) int { return driver.MaxPriority + 1 - priority })},
	{Name: "knows-two-priorities", Breaks: "FLOW-1",
		What: "All priorities above 0 are the same.",
		on:   alterPriority(func(int) int { return 1 })},
	{Name: "merges-the-two-highest-priorities", Breaks: "FLOW-1",
		What: "The priorities 8 and 9 are the same.",
		on:   alterPriority(func(priority int) int { return min(priority, driver.MaxPriority-1) })},
	{Name: "clamps-priorities", Breaks: "FLOW-1",
		What: "A priority outside its limits is clamped instead of refused.",
		on: hooks{send: alterSent(func(_ *queue, msg *driver.Outgoing) {
			msg.Priority = min(max(msg.Priority, 0), driver.MaxPriority)
		})}},
	{Name: "never-ages", Breaks: "FLOW-1",
		What: "The level of a message never rises.",
		on:   hooks{config: func(c *driver.Config) { c.PriorityAging = driver.Off }}},
	{Name: "ages-slowly", Breaks: "FLOW-1",
		What: "Levels rise at half the speed.",
		on:   hooks{config: func(c *driver.Config) { set(c.PriorityAging > 0, &c.PriorityAging, 2*c.PriorityAging) }}},
	{Name: "ages-fast", Breaks: "FLOW-1",
		What: "Levels rise three times as fast.",
		on:   hooks{config: func(c *driver.Config) { set(c.PriorityAging > 0, &c.PriorityAging, c.PriorityAging/3) }}},
	{Name: "ages-although-it-is-off", Breaks: "FLOW-1",
		What: "Levels rise in a queue whose ageing is off.",
		on:   hooks{config: func(c *driver.Config) { set(c.PriorityAging <= 0, &c.PriorityAging, time.Second) }}},
	{Name: "released-messages-are-young-again", Breaks: "FLOW-1",
		What: "The age of a released message starts again.",
		on: hooks{nack: alterEach((*queue).Nack, func(q *queue, nack *driver.Nack) {
			set(q.config().PriorityAging > 0 && nack.Mode == driver.NackRelease, &nack.Mode, driver.NackPutBack)
		})}},
	{Name: "put-back-messages-keep-their-age", Breaks: "FLOW-1",
		What: "The age of a message that is put back does not start again.",
		on: hooks{nack: alterEach((*queue).Nack, func(q *queue, nack *driver.Nack) {
			set(q.config().PriorityAging > 0 && nack.Mode == driver.NackPutBack, &nack.Mode, driver.NackRelease)
		})}},
	{Name: "redriven-messages-have-no-priority", Breaks: "FLOW-1",
		What: "A redriven message has priority 0.",
		on: hooks{redrive: func(q *queue, ctx context.Context, ids []string, limit int) (int, error) {
			letters, _ := collect(q.DeadLetters(ctx))
			moved, err := q.Redrive(ctx, ids, limit)
			for _, letter := range letters {
				if letter.Priority > 0 {
					_, _ = q.Edit(ctx, letter.ID, driver.Edit{Prioritize: true})
				}
			}
			return moved, err
		}}},
	{Name: "hides-priorities-from-receivers", Breaks: "FLOW-1",
		What: "A delivery does not show the priority of its message.",
		on:   hooks{receive: alterDelivered(func(_ *queue, d *driver.Delivery) { d.Priority = 0 })}},
	{Name: "hides-priorities-from-peeks", Breaks: "FLOW-1",
		What: "A peek does not show the priority of a message.",
		on: hooks{peek: func(q *queue, ctx context.Context, query driver.Query) iter.Seq2[driver.Peeked, error] {
			return func(yield func(driver.Peeked, error) bool) {
				for peeked, err := range q.Peek(ctx, query) {
					peeked.Priority = 0
					if !yield(peeked, err) {
						return
					}
				}
			}
		}}},
	{Name: "hides-priorities-of-dead-letters", Breaks: "FLOW-1",
		What: "A dead letter does not show the priority that it had.",
		on:   hooks{deadLetters: alterDead(func(_ *queue, letter *driver.DeadLetter) { letter.Priority = 0 })}},
	{Name: "denies-priorities", Breaks: "FLOW-1",
		What: "A queue whose messages can have priorities says that they cannot.",
		on:   hooks{traits: alterTraits(func(_ *queue, traits *driver.Traits) { traits.Priorities = false })}},
	{Name: "promises-priorities-in-strict-groups", Breaks: "FLOW-1",
		What: "A queue with strict groups says that its messages can have priorities.",
		on: hooks{only: strict, traits: alterTraits(func(_ *queue, traits *driver.Traits) {
			traits.Priorities = true
		})}},
	{Name: "ignores-changes-of-priorities", Breaks: "FLOW-3",
		What: "A change of the priority succeeds and changes nothing.",
		on: hooks{edit: func(q *queue, ctx context.Context, id string, edit driver.Edit) (driver.State, error) {
			if was := q.stateOf(ctx, id); edit.Prioritize && edit.Priority <= driver.MaxPriority && (was == driver.StateReady || was == driver.StateDelayed) {
				return was, nil
			}
			return q.Edit(ctx, id, edit)
		}}},
	{Name: "only-raises-priorities", Breaks: "FLOW-3",
		What: "A priority cannot be changed to 0.",
		on: hooks{edit: alterEdit(func(edit *driver.Edit) {
			set(edit.Prioritize && edit.Priority == 0, &edit.Priority, 1)
		})}},
	{Name: "clamps-changed-priorities", Breaks: "FLOW-3",
		What: "A change to a priority outside its limits is clamped instead of refused.",
		on: hooks{edit: alterEdit(func(edit *driver.Edit) {
			set(edit.Prioritize, &edit.Priority, min(max(edit.Priority, 0), driver.MaxPriority))
		})}},
	{Name: "makes-prioritized-messages-ready", Breaks: "FLOW-3",
		What: "A delayed message that gets another priority is ready at once.",
		on: hooks{edit: func(q *queue, ctx context.Context, id string, edit driver.Edit) (driver.State, error) {
			was, err := q.Edit(ctx, id, edit)
			if err == nil && edit.Prioritize {
				_, _ = q.Edit(ctx, id, driver.Edit{Ready: true})
			}
			return was, err
		}}},
}

// alterPriority changes valid priorities above 0 before messages are sent.
func alterPriority(change func(priority int) int) hooks {
	return hooks{send: alterSent(func(_ *queue, msg *driver.Outgoing) {
		if msg.Priority > 0 && msg.Priority <= driver.MaxPriority {
			msg.Priority = change(msg.Priority)
		}
	})}
}
