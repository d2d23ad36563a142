package faulty

import (
	"context"
	"maps"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/mailboxmq/mailbox/driver"
)

var deadLetterToFaults = []Saboteur{
	{Name: "ignores-dead-letter-to", Breaks: "DLQ-8",
		What: "Dead letters stay in their queue, whatever DeadLetterTo says.",
		on:   hooks{config: func(c *driver.Config) { c.DeadLetterTo = "" }}},
	{Name: "sends-the-dead-twice", Breaks: "DLQ-8",
		What: "A message that dies arrives twice in the dead-letter queue.",
		on: hooks{receive: func(q *queue, ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
			got, err := q.Receive(ctx, req)
			seen := state[marks](q)
			for _, d := range got {
				if seen.at(d.ID) || d.Attributes[driver.AttributeDeadSource] == "" {
					continue
				}
				seen.put(d.ID, true)
				sent, err := q.sendOne(ctx, again(d.Message))
				if err != nil {
					return got, err
				}
				seen.put(sent.ID, true)
			}
			return got, err
		}}},
	{Name: "does-not-say-why-it-sends-the-dead", Breaks: "DLQ-8",
		What: "A message in the dead-letter queue has no reason.",
		on: hooks{receive: alterDelivered(func(_ *queue, d *driver.Delivery) {
			d.Attributes = maps.Clone(d.Attributes)
			delete(d.Attributes, driver.AttributeDeadReason)
		})}},
	{Name: "counts-on-in-the-queue-for-the-dead", Breaks: "DLQ-8",
		What: "A message in the dead-letter queue keeps its delivery count.",
		on: hooks{receive: alterDelivered(func(_ *queue, d *driver.Delivery) {
			set(d.Attributes[driver.AttributeDeadSource] != "", &d.Deliveries, d.Deliveries+2)
		})}},
	{Name: "changes-the-id-of-the-forwarded", Breaks: "DLQ-8",
		What: "A message gets a new id when it moves to the dead-letter queue.",
		on: hooks{receive: alterDelivered(func(_ *queue, d *driver.Delivery) {
			set(d.Attributes[driver.AttributeDeadSource] != "", &d.ID, ulid.Make().String())
		})}},
	{Name: "does-not-wake-for-the-forwarded", Breaks: "DLQ-8",
		What: "A receiver that waits at the dead-letter queue is woken a second late.",
		on: hooks{receive: pollEvery(time.Second, func(q *queue, _ context.Context, _ driver.ReceiveRequest) bool {
			q.wrapper.mu.Lock()
			defer q.wrapper.mu.Unlock()
			for _, config := range q.wrapper.asked {
				if config.DeadLetterTo == q.name {
					return true
				}
			}
			return false
		})}},
	{Name: "forwards-only-as-many-as-it-keeps", Breaks: "DLQ-8",
		What: "No more messages arrive in the dead-letter queue than the source would keep.",
		on: hooks{receive: func(q *queue, ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
			got, err := q.Receive(ctx, req)
			seen := state[marks](q)
			var kept []driver.Delivery
			for _, d := range got {
				most := q.wrapper.askedFor(d.Attributes[driver.AttributeDeadSource]).RetainDead.Count
				if most > 0 && !seen.at(d.ID) && len(seen.keys()) >= most {
					if err := q.ackOne(ctx, d.Receipt); err != nil {
						return kept, err
					}
					continue
				}
				seen.put(d.ID, true)
				kept = append(kept, d)
			}
			return kept, err
		}}},
	{Name: "counts-only-the-latest-death", Breaks: "DLQ-8",
		What: "A message that died more than once has only the deliveries before its latest death.",
		on: hooks{receive: alterDelivered(func(_ *queue, d *driver.Delivery) {
			if d.TotalDeliveries()-d.Deliveries > 2 {
				d.Attributes = maps.Clone(d.Attributes)
				d.Attributes[driver.AttributeDeadDeliveries] = "2"
			}
		})}},
	{Name: "refuses-circles-of-targets", Breaks: "DLQ-8",
		What: "A queue cannot be the target of dead letters and have a target of its own.",
		on: hooks{configure: func(b *wrapper, ctx context.Context, name string, config driver.Config) error {
			if to := config.DeadLetterTo; to != "" && (to == name || b.askedFor(to).DeadLetterTo != "") {
				return &driver.Error{Code: driver.ErrInvalid, Op: "configure", Queue: name, Field: "DeadLetterTo"}
			}
			return b.ConfigureQueue(ctx, name, config)
		}}},
	{Name: "limits-deliveries-over-all-queues", Breaks: "DLQ-8",
		What: "The delivery count does not restart when a message goes back to its own queue.",
		on: hooks{receive: alterDelivered(func(q *queue, d *driver.Delivery) {
			set(d.Attributes[driver.AttributeDeadSource] == q.name, &d.Deliveries, d.TotalDeliveries())
		})}},
	{Name: "drops-what-expires-in-a-circle", Breaks: "DLQ-8",
		What: "A message that expires in a queue that is its own target is gone.",
		on:   hooks{config: func(c *driver.Config) { c.DropExpired = c.DropExpired || c.DeadLetterTo != "" }}},
	{Name: "forgets-where-the-dead-go", Breaks: "DLQ-8",
		What: "When the dead-letter queue is deleted, later dead letters stay in their queue, even after it is created again.",
		on: hooks{deleteQueue: func(b *wrapper, ctx context.Context, name string) error {
			if err := b.DeleteQueue(ctx, name); err != nil {
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
		}}},
}
