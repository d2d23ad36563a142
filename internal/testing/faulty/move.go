package faulty

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var moveFaults = []Saboteur{
	{Name: "loses-on-move", Breaks: "DLQ-9",
		What: "A move of three or more messages loses one.",
		on: hooks{move: func(q *queue, ctx context.Context, to string, limit int) (int, error) {
			moved, err := q.Move(ctx, to, limit)
			if moved < 3 || to == "" {
				return moved, err
			}
			target, openErr := q.wrapper.inner.OpenQueue(ctx, to)
			if openErr != nil {
				return moved, openErr
			}
			got, lostErr := target.Receive(ctx, driver.ReceiveRequest{Max: 1, Visibility: time.Second})
			if len(got) > 0 {
				lostErr = errors.Join(lostErr, target.Ack(ctx, []driver.Receipt{got[0].Receipt}))
			}
			return moved, errors.Join(err, lostErr, target.Close())
		}}},
	{Name: "doubles-on-move", Breaks: "DLQ-9",
		What: "A move leaves a copy of the first message in the source.",
		on: hooks{move: afterMove(func(q *queue, ctx context.Context, before []driver.Message, moved int) {
			if moved > 0 && len(before) > 0 {
				_, _ = q.sendOne(ctx, again(before[0])) // the move made room
			}
		})}},
	{Name: "moves-out-of-order", Breaks: "DLQ-9",
		What: "A move puts the first message last.",
		on: hooks{move: func(q *queue, ctx context.Context, to string, limit int) (int, error) {
			got, err := q.Receive(ctx, driver.ReceiveRequest{Max: 1, Visibility: time.Minute})
			if err == nil && len(got) == 1 {
				_ = q.nackOne(ctx, driver.Nack{Receipt: got[0].Receipt})
			}
			return q.Move(ctx, to, limit)
		}}},
	{Name: "moves-without-limit", Breaks: "DLQ-9",
		What: "A move moves everything, whatever the limit.",
		on: hooks{move: func(q *queue, ctx context.Context, to string, limit int) (int, error) {
			return q.Move(ctx, to, min(limit, 0))
		}}},
	{Name: "moves-into-a-full-queue", Breaks: "DLQ-9",
		What: "A move ignores the bounds of the target.",
		on: hooks{move: func(q *queue, ctx context.Context, to string, limit int) (int, error) {
			admin := q.wrapper.inner.(driver.Admin)
			config, err := admin.QueueConfig(ctx, to)
			if err != nil {
				return q.Move(ctx, to, limit)
			}
			unbounded := config
			unbounded.MaxMessages, unbounded.MaxBytes = driver.Off, driver.Off
			if err := admin.ConfigureQueue(ctx, to, unbounded); err != nil {
				return 0, err
			}
			moved, err := q.Move(ctx, to, limit)
			return moved, errors.Join(err, admin.ConfigureQueue(ctx, to, config))
		}}},
	{Name: "makes-queues-by-moving", Breaks: "DLQ-9",
		What: "A move creates a missing target.",
		on: hooks{move: func(q *queue, ctx context.Context, to string, limit int) (int, error) {
			if to != "" {
				if target, err := q.wrapper.inner.OpenQueue(ctx, to); err == nil {
					defer func() { _ = target.Close() }()
				}
			}
			return q.Move(ctx, to, limit)
		}}},
	{Name: "keeps-dead-attributes-on-move", Breaks: "DLQ-9",
		What: "A message that moves keeps its dead-letter attributes.",
		on:   alterMoved(func(d *driver.Delivery, before driver.Message) { d.Attributes = before.Attributes })},
	{Name: "drops-attributes-on-move", Breaks: "DLQ-9",
		What: "A message that moves loses its attributes.",
		on:   alterMoved(func(d *driver.Delivery, _ driver.Message) { d.Attributes = nil })},
	{Name: "counts-on-after-a-move", Breaks: "DLQ-9",
		What: "A message that moved keeps its delivery count.",
		on:   alterMoved(func(d *driver.Delivery, before driver.Message) { d.Deliveries += before.Deliveries })},
	{Name: "dates-the-send-by-the-move", Breaks: "DLQ-9",
		What: "A message that moved has the time of the move as that of its send.",
		on:   alterMoved(func(d *driver.Delivery, _ driver.Message) { d.EnqueuedAt = d.EnqueuedAt.Add(time.Second) })},
	{Name: "drops-dead-letters-without-a-source", Breaks: "DLQ-9",
		What: "A move back to the sources loses dead letters without a source.",
		on: hooks{move: func(q *queue, ctx context.Context, to string, limit int) (int, error) {
			moved, err := q.Move(ctx, to, limit)
			if to == "" && limit == 0 {
				_, purgeErr := q.Purge(ctx)
				err = errors.Join(err, purgeErr)
			}
			return moved, err
		}}},
	{Name: "does-not-wake-for-the-moved", Breaks: "DLQ-9",
		What: "A receiver that waits at the target is woken a second late.",
		on:   hooks{receive: pollEvery(time.Second, nil)}},
	{Name: "undoes-moves-on-restart", Breaks: "DLQ-9",
		What: "After a restart messages that moved are back in their source as well.",
		on: hooks{move: afterMove(func(q *queue, _ context.Context, before []driver.Message, moved int) {
			if moved > 0 && moved <= len(before) {
				q.wrapper.log.put(q.name, before[:moved])
			}
		})},
		restart: (*queue).bringBack},
}

// readyMessages returns the ready messages.
func (q *queue) readyMessages(ctx context.Context) (messages []driver.Message) {
	for _, seen := range q.peeked(ctx, driver.StateReady) {
		messages = append(messages, seen.Message)
	}
	return messages
}

// afterMove calls then after each move, with the messages that were ready before.
func afterMove(then func(q *queue, ctx context.Context, before []driver.Message, moved int)) func(*queue, context.Context, string, int) (int, error) {
	return func(q *queue, ctx context.Context, to string, limit int) (int, error) {
		before := q.readyMessages(ctx)
		moved, err := q.Move(ctx, to, limit)
		then(q, ctx, before, moved)
		return moved, err
	}
}

// alterMoved changes deliveries of messages that have moved. It gets the message as it was
// before the move.
func alterMoved(change func(d *driver.Delivery, before driver.Message)) hooks {
	return hooks{
		move: afterMove(func(q *queue, _ context.Context, before []driver.Message, moved int) {
			for _, m := range before {
				if moved == len(before) { // otherwise it is unknown which
					m.Attributes = maps.Clone(m.Attributes)
					state[table[string, driver.Message]](q.wrapper).put(m.ID, m)
				}
			}
		}),
		receive: alterDelivered(func(q *queue, d *driver.Delivery) {
			if before, ok := state[table[string, driver.Message]](q.wrapper).get(d.ID); ok {
				change(d, before)
			}
		}),
	}
}
