package faulty

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var movers = []Saboteur{
	{
		Name: "loses-on-move", Breaks: "DLQ-9",
		What: "Of three or more messages that move together, one is lost.",
		Wrap: perHandle(func(q passing) handle { return losesOnMove{q} }),
	},
	{
		Name: "doubles-on-move", Breaks: "DLQ-9",
		What: "The first of the messages that move stays where it was as well.",
		Wrap: perHandle(func(q passing) handle { return doublesOnMove{q} }),
	},
	{
		Name: "moves-out-of-order", Breaks: "DLQ-9",
		What: "The first of the messages to move goes last.",
		Wrap: perHandle(func(q passing) handle { return movesOutOfOrder{q} }),
	},
	{
		Name: "moves-without-limit", Breaks: "DLQ-9",
		What: "A move moves everything, whatever the limit.",
		Wrap: perHandle(func(q passing) handle { return movesWithoutLimit{q} }),
	},
	{
		Name: "moves-into-a-full-queue", Breaks: "DLQ-9",
		What: "A move does not ask whether there is room.",
		Wrap: perHandle(func(q passing) handle { return movesIntoFull{q} }),
	},
	{
		Name: "makes-queues-by-moving", Breaks: "DLQ-9",
		What: "A move to a queue that is not there makes it.",
		Wrap: perHandle(func(q passing) handle { return makesByMoving{q} }),
	},
	{
		Name: "keeps-dead-attributes-on-move", Breaks: "DLQ-9",
		What: "A message that moves keeps what it got when it died.",
		Wrap: changesMoved(func(d *driver.Delivery, before driver.Message) { d.Attributes = before.Attributes }),
	},
	{
		Name: "drops-attributes-on-move", Breaks: "DLQ-9",
		What: "A message that moves loses its attributes.",
		Wrap: changesMoved(func(d *driver.Delivery, _ driver.Message) { d.Attributes = nil }),
	},
	{
		Name: "counts-on-after-a-move", Breaks: "DLQ-9",
		What: "A message that moved goes on counting its deliveries.",
		Wrap: changesMoved(func(d *driver.Delivery, before driver.Message) { d.Deliveries += before.Deliveries }),
	},
	{
		Name: "sends-anew-on-move", Breaks: "DLQ-9",
		What: "A message that moved says that it was sent when it moved.",
		Wrap: changesMoved(func(d *driver.Delivery, _ driver.Message) { d.EnqueuedAt = d.EnqueuedAt.Add(time.Second) }),
	},
	{
		Name: "drops-the-homeless", Breaks: "DLQ-9",
		What: "When the dead go home, those that have no home are lost.",
		Wrap: perHandle(func(q passing) handle { return dropsHomeless{q} }),
	},
	{
		Name: "does-not-wake-for-the-moved", Breaks: "DLQ-9",
		What: "Who waits at a queue learns of a message that moved there a second late.",
		Wrap: perHandle(func(q passing) handle { return polls{q, time.Second} }),
	},
	{
		Name: "undoes-moves-on-restart", Breaks: "DLQ-9",
		What: "After a restart messages that moved are where they were as well.",
		Wrap: restarts(amnesia{restart: bringsBackRecorded, before: func(q passing, diary *diary) handle { return recordsMoved{q, diary} }}),
	},
}

// ready returns the messages that are ready.
func (q passing) ready(ctx context.Context) (messages []driver.Message) {
	for _, seen := range q.peeked(ctx, driver.StateReady) {
		messages = append(messages, seen.Message)
	}
	return messages
}

type losesOnMove struct{ passing }

func (q losesOnMove) Move(ctx context.Context, to string, limit int) (int, error) {
	moved, err := q.Queue.Move(ctx, to, limit)
	if moved < 3 || to == "" {
		return moved, err
	}
	target, openErr := q.box.inner.OpenQueue(ctx, to)
	if openErr != nil {
		return moved, openErr
	}
	got, lostErr := target.Receive(ctx, driver.ReceiveRequest{Max: 1, Visibility: time.Second})
	if len(got) > 0 {
		lostErr = errors.Join(lostErr, target.Ack(ctx, []driver.Receipt{got[0].Receipt}))
	}
	return moved, errors.Join(err, lostErr, target.Close())
}

type doublesOnMove struct{ passing }

func (q doublesOnMove) Move(ctx context.Context, to string, limit int) (int, error) {
	before := q.ready(ctx)
	moved, err := q.Queue.Move(ctx, to, limit)
	if moved > 0 && len(before) > 0 {
		_, _ = q.sendOne(ctx, again(before[0])) // there is room: it was just made
	}
	return moved, err
}

type movesOutOfOrder struct{ passing }

func (q movesOutOfOrder) Move(ctx context.Context, to string, limit int) (int, error) {
	got, err := q.Queue.Receive(ctx, driver.ReceiveRequest{Max: 1, Visibility: time.Minute})
	if err == nil && len(got) == 1 {
		_ = q.Queue.Nack(ctx, []driver.Nack{{Receipt: got[0].Receipt}})
	}
	return q.Queue.Move(ctx, to, limit)
}

type movesWithoutLimit struct{ passing }

func (q movesWithoutLimit) Move(ctx context.Context, to string, limit int) (int, error) {
	return q.Queue.Move(ctx, to, min(limit, 0))
}

// movesIntoFull takes the bounds away for as long as the move takes.
type movesIntoFull struct{ passing }

func (q movesIntoFull) Move(ctx context.Context, to string, limit int) (int, error) {
	admin := q.box.inner.(driver.Admin)
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

type makesByMoving struct{ passing }

func (q makesByMoving) Move(ctx context.Context, to string, limit int) (int, error) {
	if to != "" {
		if target, err := q.box.inner.OpenQueue(ctx, to); err == nil {
			defer func() { _ = target.Close() }()
		}
	}
	return q.Queue.Move(ctx, to, limit)
}

// changesMoved changes deliveries of messages that have moved; before is what
// they were when they did.
func changesMoved(change func(d *driver.Delivery, before driver.Message)) func(driver.Opener) driver.Opener {
	return perHandle(func(q passing) handle {
		return remembersMoved{q, memoryOf[table[string, driver.Message]](q.box, ""), change}
	})
}

type remembersMoved struct {
	passing
	moved  *table[string, driver.Message]
	change func(d *driver.Delivery, before driver.Message)
}

func (q remembersMoved) Move(ctx context.Context, to string, limit int) (int, error) {
	before := q.ready(ctx)
	moved, err := q.Queue.Move(ctx, to, limit)
	if moved == len(before) { // else it is not known which
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

type dropsHomeless struct{ passing }

func (q dropsHomeless) Move(ctx context.Context, to string, limit int) (int, error) {
	moved, err := q.Queue.Move(ctx, to, limit)
	if to == "" && limit == 0 {
		_, purgeErr := q.Queue.Purge(ctx)
		err = errors.Join(err, purgeErr)
	}
	return moved, err
}

type recordsMoved struct {
	passing
	diary *diary
}

func (q recordsMoved) Move(ctx context.Context, to string, limit int) (int, error) {
	before := q.ready(ctx)
	moved, err := q.Queue.Move(ctx, to, limit)
	if moved > 0 && moved <= len(before) {
		q.diary.put(q.name, before[:moved])
	}
	return moved, err
}
