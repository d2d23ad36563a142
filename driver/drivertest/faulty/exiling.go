package faulty

import (
	"context"
	"maps"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/mailboxmq/mailbox/driver"
)

var exiles = []Saboteur{
	{
		Name: "ignores-dead-letter-to", Breaks: "DLQ-8",
		What: "Dead letters stay with their queue, wherever they should go.",
		Wrap: misreads(func(config *driver.Config) { config.DeadLetterTo = "" }),
	},
	{
		Name: "sends-the-dead-twice", Breaks: "DLQ-8",
		What: "A message that dies arrives twice in the queue for the dead.",
		Wrap: perQueue(func(q passing, seen *table[string, bool]) handle { return sendsDeadTwice{q, seen} }),
	},
	{
		Name: "does-not-say-why-it-sends-the-dead", Breaks: "DLQ-8",
		What: "A message in the queue for the dead does not say why it died.",
		Wrap: perHandle(func(q passing) handle {
			return changesDelivered{q, func(d *driver.Delivery) {
				d.Attributes = maps.Clone(d.Attributes)
				delete(d.Attributes, driver.AttributeDeadReason)
			}}
		}),
	},
	{
		Name: "counts-on-in-the-queue-for-the-dead", Breaks: "DLQ-8",
		What: "A message in the queue for the dead goes on counting its deliveries.",
		Wrap: perHandle(func(q passing) handle {
			return changesDelivered{q, func(d *driver.Delivery) {
				if d.Attributes[driver.AttributeDeadSource] != "" {
					d.Deliveries += 2
				}
			}}
		}),
	},
	{
		Name: "renames-the-exiled", Breaks: "DLQ-8",
		What: "A message gets a new id when it moves to the queue for the dead.",
		Wrap: perHandle(func(q passing) handle {
			return changesDelivered{q, func(d *driver.Delivery) {
				if d.Attributes[driver.AttributeDeadSource] != "" {
					d.ID = ulid.Make().String()
				}
			}}
		}),
	},
	{
		Name: "does-not-wake-for-the-exiled", Breaks: "DLQ-8",
		What: "Who waits at a queue learns of a message that died elsewhere a second late.",
		Wrap: perHandle(func(q passing) handle { return missesExiled{q} }),
	},
}

type sendsDeadTwice struct {
	passing
	seen *table[string, bool]
}

func (q sendsDeadTwice) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	got, err := q.Queue.Receive(ctx, req)
	for _, d := range got {
		if before, _ := q.seen.get(d.ID); before || d.Attributes[driver.AttributeDeadSource] == "" {
			continue
		}
		q.seen.put(d.ID, true)
		sent, err := q.sendOne(ctx, again(d.Message))
		if err != nil {
			return got, err
		}
		q.seen.put(sent.ID, true)
	}
	return got, err
}

type missesExiled struct{ passing }

func (q missesExiled) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	q.box.mu.Lock()
	target := false
	for _, config := range q.box.asked {
		target = target || config.DeadLetterTo == q.name
	}
	q.box.mu.Unlock()
	if target {
		return polls{q.passing, time.Second}.Receive(ctx, req)
	}
	return q.Queue.Receive(ctx, req)
}
