package faulty

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var moveFaults = []Saboteur{
	{
		Name: "loses-on-move", Breaks: "DLQ-9",
		What: "A move of three or more messages loses one.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return losesOnMove{q} }),
	},
	{
		Name: "doubles-on-move", Breaks: "DLQ-9",
		What: "A move leaves a copy of the first message in the source.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return doublesOnMove{q} }),
	},
	{
		Name: "moves-out-of-order", Breaks: "DLQ-9",
		What: "A move puts the first message last.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return movesOutOfOrder{q} }),
	},
	{
		Name: "moves-without-limit", Breaks: "DLQ-9",
		What: "A move moves everything, whatever the limit.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return movesWithoutLimit{q} }),
	},
	{
		Name: "moves-into-a-full-queue", Breaks: "DLQ-9",
		What: "A move ignores the bounds of the target.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return movesIntoFull{q} }),
	},
	{
		Name: "makes-queues-by-moving", Breaks: "DLQ-9",
		What: "A move creates a missing target.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return makesByMoving{q} }),
	},
	{
		Name: "keeps-dead-attributes-on-move", Breaks: "DLQ-9",
		What: "A message that moves keeps its dead-letter attributes.",
		Wrap: changesMoved(func(d *driver.Delivery, before driver.Message) { d.Attributes = before.Attributes }),
	},
	{
		Name: "drops-attributes-on-move", Breaks: "DLQ-9",
		What: "A message that moves loses its attributes.",
		Wrap: changesMoved(func(d *driver.Delivery, _ driver.Message) { d.Attributes = nil }),
	},
	{
		Name: "counts-on-after-a-move", Breaks: "DLQ-9",
		What: "A message that moved keeps its delivery count.",
		Wrap: changesMoved(func(d *driver.Delivery, before driver.Message) { d.Deliveries += before.Deliveries }),
	},
	{
		Name: "dates-the-send-by-the-move", Breaks: "DLQ-9",
		What: "A message that moved has the time of the move as that of its send.",
		Wrap: changesMoved(func(d *driver.Delivery, _ driver.Message) { d.EnqueuedAt = d.EnqueuedAt.Add(time.Second) }),
	},
	{
		Name: "drops-dead-letters-without-a-source", Breaks: "DLQ-9",
		What: "A move back to the sources loses dead letters without a source.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return dropsHomeless{q} }),
	},
	{
		Name: "does-not-wake-for-the-moved", Breaks: "DLQ-9",
		What: "A receiver that waits at the target is woken a second late.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return polls{q, time.Second} }),
	},
	{
		Name: "undoes-moves-on-restart", Breaks: "DLQ-9",
		What: "After a restart messages that moved are back in their source as well.",
		Wrap: restarts(restartFault{restart: bringsBackRecorded, before: func(q passThrough, log *restartLog) driver.Queue { return recordsMoved{q, log} }}),
	},
}

// ready returns the ready messages.
func (q passThrough) ready(ctx context.Context) (messages []driver.Message) {
	for _, seen := range q.peeked(ctx, driver.StateReady) {
		messages = append(messages, seen.Message)
	}
	return messages
}

type losesOnMove struct{ passThrough }

func (q losesOnMove) Move(ctx context.Context, to string, limit int) (int, error) {
	moved, err := q.Queue.Move(ctx, to, limit)
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
}

type doublesOnMove struct{ passThrough }

func (q doublesOnMove) Move(ctx context.Context, to string, limit int) (int, error) {
	before := q.ready(ctx)
	moved, err := q.Queue.Move(ctx, to, limit)
	if moved > 0 && len(before) > 0 {
		_, _ = q.sendOne(ctx, again(before[0])) // the move made room
	}
	return moved, err
}

type movesOutOfOrder struct{ passThrough }

func (q movesOutOfOrder) Move(ctx context.Context, to string, limit int) (int, error) {
	got, err := q.Queue.Receive(ctx, driver.ReceiveRequest{Max: 1, Visibility: time.Minute})
	if err == nil && len(got) == 1 {
		_ = q.Queue.Nack(ctx, []driver.Nack{{Receipt: got[0].Receipt}})
	}
	return q.Queue.Move(ctx, to, limit)
}

type movesWithoutLimit struct{ passThrough }

func (q movesWithoutLimit) Move(ctx context.Context, to string, limit int) (int, error) {
	return q.Queue.Move(ctx, to, min(limit, 0))
}

// movesIntoFull removes the bounds of the target during the move.
type movesIntoFull struct{ passThrough }

func (q movesIntoFull) Move(ctx context.Context, to string, limit int) (int, error) {
	admin := q.wrapper.inner.(driver.Admin)
	config, err := admin.QueueConfig(ctx, to)
	if err != nil {
		return q.Queue.Move(ctx, to, limit)
	}
	unbounded := config
	unbounded.MaxMessages, unbounded.MaxBytes = driver.Off, driver.Off
	if err := admin.ConfigureQueue(ctx, to, unbounded); err != nil {
		return 0, err
	}
	moved, err := q.Queue.Move(ctx, to, limit)
	return moved, errors.Join(err, admin.ConfigureQueue(ctx, to, config))
}

type makesByMoving struct{ passThrough }

func (q makesByMoving) Move(ctx context.Context, to string, limit int) (int, error) {
	if to != "" {
		if target, err := q.wrapper.inner.OpenQueue(ctx, to); err == nil {
			defer func() { _ = target.Close() }()
		}
	}
	return q.Queue.Move(ctx, to, limit)
}

// changesMoved changes deliveries of messages that have moved. It gets the message as it was
// before the move.
func changesMoved(change func(d *driver.Delivery, before driver.Message)) func(driver.Opener) driver.Opener {
	return perHandle(func(q passThrough) driver.Queue {
		return remembersMoved{q, stateOf[table[string, driver.Message]](q.wrapper, ""), change}
	})
}

type remembersMoved struct {
	passThrough
	moved  *table[string, driver.Message]
	change func(d *driver.Delivery, before driver.Message)
}

func (q remembersMoved) Move(ctx context.Context, to string, limit int) (int, error) {
	before := q.ready(ctx)
	moved, err := q.Queue.Move(ctx, to, limit)
	if moved == len(before) { // otherwise it is unknown which
		for _, m := range before {
			m.Attributes = maps.Clone(m.Attributes)
			q.moved.put(m.ID, m)
		}
	}
	return moved, err
}

func (q remembersMoved) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	got, err := q.Queue.Receive(ctx, req)
	for i := range got {
		if before, ok := q.moved.get(got[i].ID); ok {
			q.change(&got[i], before)
		}
	}
	return got, err
}

type dropsHomeless struct{ passThrough }

func (q dropsHomeless) Move(ctx context.Context, to string, limit int) (int, error) {
	moved, err := q.Queue.Move(ctx, to, limit)
	if to == "" && limit == 0 {
		_, purgeErr := q.Queue.Purge(ctx)
		err = errors.Join(err, purgeErr)
	}
	return moved, err
}

type recordsMoved struct {
	passThrough
	log *restartLog
}

func (q recordsMoved) Move(ctx context.Context, to string, limit int) (int, error) {
	before := q.ready(ctx)
	moved, err := q.Queue.Move(ctx, to, limit)
	if moved > 0 && moved <= len(before) {
		q.log.put(q.name, before[:moved])
	}
	return moved, err
}
