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
	{
		Name: "keeps-as-few-exiled-as-dead", Breaks: "DLQ-8",
		What: "Of the messages that die and go elsewhere, only as many arrive as would be kept here.",
		Wrap: perQueue(func(q passing, seen *table[string, bool]) handle { return losesExiled{q, seen} }),
	},
	{
		Name: "counts-only-the-latest-death", Breaks: "DLQ-8",
		What: "A message that died more than once says only how often it was delivered before its latest death.",
		Wrap: perHandle(func(q passing) handle {
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
		What: "A queue cannot be the target of dead letters and have a target itself.",
		Wrap: perOpener(func(b *box) backend { return refusesCircles{b} }),
	},
	{
		Name: "limits-deliveries-over-all-queues", Breaks: "DLQ-8",
		What: "Deliveries do not begin again when a message goes back to its own queue.",
		Wrap: perHandle(func(q passing) handle {
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
		Wrap: misreads(func(config *driver.Config) { config.DropExpired = config.DropExpired || config.DeadLetterTo != "" }),
	},
	{
		Name: "forgets-where-the-dead-go", Breaks: "DLQ-8",
		What: "When the queue for the dead is deleted, dead letters stay with their queue for good.",
		Wrap: perOpener(func(b *box) backend { return forgetsTarget{b} }),
	},
}

// forgetsTarget takes the deletion of a queue for a change of the configuration
// of those that send their dead letters there.
type forgetsTarget struct{ *box }

func (b forgetsTarget) DeleteQueue(ctx context.Context, name string) error {
	if err := b.box.DeleteQueue(ctx, name); err != nil {
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

// refusesCircles allows no queue to be both a target and a source.
type refusesCircles struct{ *box }

func (b refusesCircles) ConfigureQueue(ctx context.Context, name string, config driver.Config) error {
	b.mu.Lock()
	refused := config.DeadLetterTo != "" && (config.DeadLetterTo == name || b.asked[config.DeadLetterTo].DeadLetterTo != "")
	b.mu.Unlock()
	if refused {
		return &driver.Error{Code: driver.ErrInvalid, Op: "configure", Queue: name, Field: "DeadLetterTo"}
	}
	return b.box.ConfigureQueue(ctx, name, config)
}

// losesExiled drops those that come to the queue for the dead when as many have
// come as their own queue keeps dead letters.
type losesExiled struct {
	passing
	seen *table[string, bool]
}

func (q losesExiled) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	got, err := q.Queue.Receive(ctx, req)
	var kept []driver.Delivery
	for _, d := range got {
		q.box.mu.Lock()
		most := q.box.asked[d.Attributes[driver.AttributeDeadSource]].RetainDead.Count
		q.box.mu.Unlock()
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
