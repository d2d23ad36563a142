package faulty

import (
	"context"
	"iter"
	"slices"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var retentionFaults = []Saboteur{
	{Name: "drops-the-expired", Breaks: "RET-1",
		What: "A message that waited too long disappears and leaves no dead letter.",
		on:   discardDead(driver.ReasonExpired, func(config driver.Config) bool { return config.RetainReady != (driver.Retention{}) })},
	{Name: "keeps-the-old", Breaks: "RET-1",
		What: "A message can wait without limit.",
		on:   hooks{config: func(c *driver.Config) { c.RetainReady.Age = 0 }}},
	{Name: "expires-late", Breaks: "RET-1",
		What: "A message that waited too long dies a tenth of a second late.",
		on: hooks{config: func(c *driver.Config) {
			set(c.RetainReady.Age > 0, &c.RetainReady.Age, c.RetainReady.Age+100*time.Millisecond)
		}}},
	{Name: "counts-the-age-from-the-send", Breaks: "RET-1",
		What: "A message that was delayed for longer than messages are kept is dead when it is due.",
		on: hooks{receive: afterReceive(func(q *queue, ctx context.Context, got []driver.Delivery) []driver.Delivery {
			age := q.config().RetainReady.Age
			return slices.DeleteFunc(got, func(d driver.Delivery) bool {
				old := age > 0 && d.Deliveries == 1 && time.Since(d.EnqueuedAt) >= age
				if old {
					_ = q.deadLetterOne(ctx, driver.DeadLetterRequest{Receipt: d.Receipt, Reason: driver.ReasonExpired})
				}
				return old
			})
		})}},
	{Name: "counts-the-delayed-as-kept", Breaks: "RET-1",
		What: "A delayed message counts as one that is kept.",
		on: hooks{send: func(q *queue, ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
			for _, msg := range msgs {
				if msg.Delay > 0 && q.config().RetainReady.Count > 1 {
					if err := q.reconfigure(ctx, func(c *driver.Config) { c.RetainReady.Count-- }); err != nil {
						return nil, err
					}
				}
			}
			return q.Send(ctx, msgs)
		}}},
	{Name: "keeps-too-many", Breaks: "RET-1",
		What: "Any number of messages can wait.",
		on:   hooks{config: func(c *driver.Config) { c.RetainReady.Count = 0 }}},
	{Name: "keeps-the-old-dead", Breaks: "RET-1",
		What: "Dead letters are kept without limit.",
		on:   hooks{config: func(c *driver.Config) { c.RetainDead.Age = 0 }}},
	{Name: "keeps-too-many-dead", Breaks: "RET-1",
		What: "Any number of dead letters is kept.",
		on:   hooks{config: func(c *driver.Config) { c.RetainDead.Count = 0 }}},
	{Name: "calls-the-expired-worn-out", Breaks: "RET-1",
		What: "A message that waited too long has the reason max deliveries.",
		on: hooks{deadLetters: alterDead(func(q *queue, letter *driver.DeadLetter) {
			set(letter.Reason == driver.ReasonExpired && q.config().RetainReady != (driver.Retention{}), &letter.Reason, driver.ReasonMaxDeliveries)
		})}},
	{Name: "makes-young-by-a-nack", Breaks: "RET-1",
		What: "A nack resets the age of a message.",
		on: hooks{receive: countOn, nack: oneByOne(func(q *queue, ctx context.Context, nack driver.Nack) error {
			if q.config().RetainReady.Age == 0 || nack.Delay != 0 {
				return q.nackOne(ctx, nack)
			}
			return q.deadLetterAndRedrive(ctx, nack)
		})}},
	{Name: "does-not-make-young-by-a-redrive", Breaks: "RET-1",
		What: "A message that is too old cannot be redriven.",
		on: hooks{redrive: func(q *queue, ctx context.Context, ids []string, limit int) (int, error) {
			letters, err := collect(q.DeadLetters(ctx))
			age := q.config().RetainReady.Age
			if err != nil || age == 0 {
				return q.Redrive(ctx, ids, limit)
			}
			young, old := []string{}, 0
			for _, letter := range letters {
				switch {
				case wanted(ids, letter) && time.Since(letter.EnqueuedAt) < age:
					young = append(young, letter.ID)
				case wanted(ids, letter):
					old++
				}
			}
			moved, err := q.Redrive(ctx, young, limit)
			return moved + old, err
		}}},
	{Name: "takes-the-old-from-their-holders", Breaks: "RET-1",
		What: "A message that is too old dies in flight, when its lease is extended.",
		on: hooks{extend: func(q *queue, ctx context.Context, extensions []driver.Extension) ([]time.Duration, error) {
			for _, extension := range extensions {
				d, ok := q.delivered.get(extension.Receipt)
				if age := q.config().RetainReady.Age; ok && age > 0 && time.Since(d.EnqueuedAt) >= age {
					_ = q.deadLetterOne(ctx, driver.DeadLetterRequest{Receipt: d.Receipt, Reason: driver.ReasonExpired}) // it may be settled
				}
			}
			return q.Extend(ctx, extensions)
		}}},
}

var dropFaults = []Saboteur{
	{Name: "keeps-the-dropped-as-dead", Breaks: "RET-2",
		What: "A message that waited too long becomes a dead letter, although the queue drops expired messages.",
		on:   hooks{config: func(c *driver.Config) { c.DropExpired = false }}},
	{Name: "sends-the-dropped-where-the-dead-go", Breaks: "RET-2",
		What: "A message that waited too long goes to the dead-letter queue, if there is one.",
		on:   hooks{config: func(c *driver.Config) { c.DropExpired = c.DropExpired && c.DeadLetterTo == "" }}},
	{Name: "drops-nothing-while-the-dead-are-full", Breaks: "RET-2",
		What: "If dead letters are bounded, a message that waited too long becomes one, or waits for room.",
		on:   hooks{config: func(c *driver.Config) { c.DropExpired = c.DropExpired && c.MaxDead == 0 }}},
	{Name: "drops-late", Breaks: "RET-2",
		What: "A message is dropped a tenth of a second late.",
		on: hooks{config: func(c *driver.Config) {
			set(c.DropExpired && c.RetainReady.Age > 0, &c.RetainReady.Age, c.RetainReady.Age+100*time.Millisecond)
		}}},
	{Name: "drops-too-few", Breaks: "RET-2",
		What: "A queue that drops messages keeps one more than configured.",
		on: hooks{config: func(c *driver.Config) {
			set(c.DropExpired && c.RetainReady.Count > 0, &c.RetainReady.Count, c.RetainReady.Count+1)
		}}},
	{Name: "drops-the-worn-out", Breaks: "RET-2",
		What: "A queue that drops old messages also drops those that reached the delivery limit.",
		on:   discardDead(driver.ReasonMaxDeliveries, func(config driver.Config) bool { return config.DropExpired })},
}

// discardDead discards dead letters with a reason before they are seen, in queues that match.
func discardDead(reason driver.Reason, match func(driver.Config) bool) hooks {
	discard := func(q *queue, ctx context.Context) {
		letters, _ := collect(q.DeadLetters(ctx))
		for _, letter := range letters {
			if letter.Reason == reason && match(q.config()) {
				_, _ = q.Discard(ctx, []string{letter.ID})
			}
		}
	}
	return hooks{
		stats: func(q *queue, ctx context.Context) (driver.Stats, error) {
			discard(q, ctx)
			return q.Stats(ctx)
		},
		deadLetters: func(q *queue, ctx context.Context) iter.Seq2[driver.DeadLetter, error] {
			discard(q, ctx)
			return q.DeadLetters(ctx)
		},
	}
}
