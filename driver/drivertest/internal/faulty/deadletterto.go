package faulty

import (
	"context"
	"maps"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/mailboxmq/mailbox/driver"
)

var deadLetterToFaults = []Saboteur{
	{
		Name: "ignores-dead-letter-to", Breaks: "DLQ-8",
		What: "Dead letters stay in their queue, whatever DeadLetterTo says.",
		Wrap: changesConfig(func(config *driver.Config) { config.DeadLetterTo = "" }),
	},
	{
		Name: "sends-the-dead-twice", Breaks: "DLQ-8",
		What: "A message that dies arrives twice in the dead-letter queue.",
		Wrap: perQueue(func(q passThrough, seen *table[string, bool]) driver.Queue { return sendsDeadTwice{q, seen} }),
	},
	{
		Name: "does-not-say-why-it-sends-the-dead", Breaks: "DLQ-8",
		What: "A message in the dead-letter queue has no reason.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return changesDelivered{q, func(d *driver.Delivery) {
				d.Attributes = maps.Clone(d.Attributes)
				delete(d.Attributes, driver.AttributeDeadReason)
			}}
		}),
	},
	{
		Name: "counts-on-in-the-queue-for-the-dead", Breaks: "DLQ-8",
		What: "A message in the dead-letter queue keeps its delivery count.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return changesDelivered{q, func(d *driver.Delivery) {
				if d.Attributes[driver.AttributeDeadSource] != "" {
					d.Deliveries += 2
				}
			}}
		}),
	},
	{
		Name: "changes-the-id-of-the-forwarded", Breaks: "DLQ-8",
		What: "A message gets a new id when it moves to the dead-letter queue.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return changesDelivered{q, func(d *driver.Delivery) {
				if d.Attributes[driver.AttributeDeadSource] != "" {
					d.ID = ulid.Make().String()
				}
			}}
		}),
	},
	{
		Name: "does-not-wake-for-the-forwarded", Breaks: "DLQ-8",
		What: "A receiver that waits at the dead-letter queue is woken a second late.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return missesExiled{q} }),
	},
	{
		Name: "forwards-only-as-many-as-it-keeps", Breaks: "DLQ-8",
		What: "No more messages arrive in the dead-letter queue than the source would keep.",
		Wrap: perQueue(func(q passThrough, seen *table[string, bool]) driver.Queue { return losesDeadLettersOnTheWay{q, seen} }),
	},
	{
		Name: "counts-only-the-latest-death", Breaks: "DLQ-8",
		What: "A message that died more than once has only the deliveries before its latest death.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return changesDelivered{q, func(d *driver.Delivery) {
				if driver.EarlierDeliveries(d.Attributes) > 2 {
					d.Attributes = maps.Clone(d.Attributes)
					d.Attributes[driver.AttributeDeadDeliveries] = "2"
				}
			}}
		}),
	},
	{
		Name: "refuses-circles-of-targets", Breaks: "DLQ-8",
		What: "A queue cannot be the target of dead letters and have a target of its own.",
		Wrap: perOpener(func(b *wrapper) backend { return refusesCircles{b} }),
	},
	{
		Name: "limits-deliveries-over-all-queues", Breaks: "DLQ-8",
		What: "The delivery count does not restart when a message goes back to its own queue.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return changesDelivered{q, func(d *driver.Delivery) {
				if d.Attributes[driver.AttributeDeadSource] == q.name {
					d.Deliveries = d.TotalDeliveries()
				}
			}}
		}),
	},
	{
		Name: "drops-what-expires-in-a-circle", Breaks: "DLQ-8",
		What: "A message that expires in a queue that is its own target is gone.",
		Wrap: changesConfig(func(config *driver.Config) { config.DropExpired = config.DropExpired || config.DeadLetterTo != "" }),
	},
	{
		Name: "forgets-where-the-dead-go", Breaks: "DLQ-8",
		What: "When the dead-letter queue is deleted, later dead letters stay in their queue, even after it is created again.",
		Wrap: perOpener(func(b *wrapper) backend { return forgetsTarget{b} }),
	},
}

// forgetsTarget clears DeadLetterTo in all queues whose target is deleted.
type forgetsTarget struct{ *wrapper }

func (b forgetsTarget) DeleteQueue(ctx context.Context, name string) error {
	if err := b.wrapper.DeleteQueue(ctx, name); err != nil {
		return err
	}
	admin := b.inner.(driver.Admin)
	for other, err := range admin.Queues(ctx) {
		if err != nil {
			return err
		}
		config, err := admin.QueueConfig(ctx, other)
		if err != nil {
			return err
		}
		if config.DeadLetterTo == name {
			config.DeadLetterTo = ""
			if err := admin.ConfigureQueue(ctx, other, config); err != nil {
				return err
			}
		}
	}
	return nil
}

// refusesCircles refuses a queue that is both a target and a source.
type refusesCircles struct{ *wrapper }

func (b refusesCircles) ConfigureQueue(ctx context.Context, name string, config driver.Config) error {
	b.mu.Lock()
	refused := config.DeadLetterTo != "" && (config.DeadLetterTo == name || b.asked[config.DeadLetterTo].DeadLetterTo != "")
	b.mu.Unlock()
	if refused {
		return &driver.Error{Code: driver.ErrInvalid, Op: "configure", Queue: name, Field: "DeadLetterTo"}
	}
	return b.wrapper.ConfigureQueue(ctx, name, config)
}

// losesDeadLettersOnTheWay drops messages for the dead-letter queue once as many have arrived
// as the source keeps dead letters.
type losesDeadLettersOnTheWay struct {
	passThrough
	seen *table[string, bool]
}

func (q losesDeadLettersOnTheWay) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	got, err := q.Queue.Receive(ctx, req)
	var kept []driver.Delivery
	for _, d := range got {
		q.wrapper.mu.Lock()
		most := q.wrapper.asked[d.Attributes[driver.AttributeDeadSource]].RetainDead.Count
		q.wrapper.mu.Unlock()
		if before, _ := q.seen.get(d.ID); most > 0 && !before && len(q.seen.keys()) >= most {
			if err := q.Queue.Ack(ctx, []driver.Receipt{d.Receipt}); err != nil {
				return kept, err
			}
			continue
		}
		q.seen.put(d.ID, true)
		kept = append(kept, d)
	}
	return kept, err
}

type sendsDeadTwice struct {
	passThrough
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

type missesExiled struct{ passThrough }

func (q missesExiled) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	q.wrapper.mu.Lock()
	target := false
	for _, config := range q.wrapper.asked {
		target = target || config.DeadLetterTo == q.name
	}
	q.wrapper.mu.Unlock()
	if target {
		return polls{q.passThrough, time.Second}.Receive(ctx, req)
	}
	return q.Queue.Receive(ctx, req)
}
