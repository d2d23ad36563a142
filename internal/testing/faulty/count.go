package faulty

import (
	"context"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var countFaults = []Saboteur{
	{Name: "counts-delayed-as-ready", Breaks: "CNT-1",
		What: "Stats counts delayed messages as ready.",
		on:   hooks{stats: alterStats(func(_ *queue, stats *driver.Stats) { stats.Ready, stats.Delayed = stats.Ready+stats.Delayed, 0 })}},
	{Name: "does-not-count-the-leased", Breaks: "CNT-1",
		What: "Stats does not count messages in flight.",
		on:   hooks{stats: alterStats(func(_ *queue, stats *driver.Stats) { stats.InFlight = 0 })}},
	{Name: "loses-a-count", Breaks: "CNT-1",
		What: "Stats is one short when more than two messages are ready.",
		on:   hooks{stats: alterStats(func(_ *queue, stats *driver.Stats) { set(stats.Ready > 2, &stats.Ready, stats.Ready-1) })}},
	{Name: "counts-only-now-and-then", Breaks: "CNT-1",
		What: "Stats is up to a second old.",
		on: hooks{stats: func(q *queue, ctx context.Context) (driver.Stats, error) {
			old := state[oldStats](q)
			if stats, at := old.get(); !at.IsZero() && time.Since(at) < time.Second {
				return stats, nil
			}
			stats, err := q.Stats(ctx)
			old.set(stats, err)
			return stats, err
		}}},
	{Name: "needs-a-sweep-to-count", Breaks: "CNT-1",
		What: "Stats counts due messages as delayed or in flight until another operation runs on the queue.",
		on: hooks{
			send: func(q *queue, ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
				defer func() { state[oldStats](q).set(q.Stats(ctx)) }()
				return q.Send(ctx, msgs)
			},
			receive: func(q *queue, ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
				defer func() { state[oldStats](q).set(q.Stats(ctx)) }()
				return q.Receive(ctx, req)
			},
			nack: func(q *queue, ctx context.Context, nacks []driver.Nack) error {
				defer func() { state[oldStats](q).set(q.Stats(ctx)) }()
				return q.Nack(ctx, nacks)
			},
			stats: func(q *queue, ctx context.Context) (driver.Stats, error) {
				stats, err := q.Stats(ctx)
				old, at := state[oldStats](q).get()
				if err == nil && old.Waiting() == stats.Waiting() && old.Ready < stats.Ready && time.Since(at) > 0 {
					return old, nil
				}
				return stats, err
			},
		}},
	{Name: "does-not-count-the-dead", Breaks: "CNT-1", Also: []string{"DLQ-1"},
		What: "Stats does not count dead letters.",
		on:   hooks{stats: alterStats(func(_ *queue, stats *driver.Stats) { stats.Dead = 0 })}},

	{Name: "spares-the-leased-in-a-purge", Breaks: "CNT-3",
		What: "A purge leaves the messages in flight.",
		on:   hooks{purge: spare(driver.StateInFlight)}},
	{Name: "spares-the-delayed-in-a-purge", Breaks: "CNT-3",
		What: "A purge leaves the delayed messages.",
		on:   hooks{purge: spare(driver.StateDelayed)}},
	{Name: "keeps-receipts-after-a-purge", Breaks: "CNT-3",
		What: "Receipts of purged messages can be acked.",
		on: hooks{
			purge: func(q *queue, ctx context.Context) (int, error) {
				for _, receipt := range q.delivered.keys() {
					state[receiptMarks](q).put(receipt, true)
				}
				return q.Purge(ctx)
			},
			ack: oneByOne(func(q *queue, ctx context.Context, receipt driver.Receipt) error {
				err, purged := q.ackOne(ctx, receipt), state[receiptMarks](q)
				if purged.at(receipt) && ofBatch(err) {
					purged.drop(receipt)
					return nil
				}
				q.delivered.drop(receipt)
				return err
			}),
		}},
	{Name: "purges-the-dead-too", Breaks: "CNT-3",
		What: "A purge removes the dead letters.",
		on:   hooks{purge: both((*queue).PurgeDead, (*queue).Purge)}},
	{Name: "reports-only-the-ready-purged", Breaks: "CNT-3",
		What: "A purge returns the number of ready messages, not of removed ones.",
		on: hooks{purge: func(q *queue, ctx context.Context) (int, error) {
			stats, err := q.Stats(ctx)
			if err != nil {
				return 0, err
			}
			_, err = q.Purge(ctx)
			return stats.Ready, err
		}}},
	{Name: "purges-every-queue", Breaks: "CNT-3",
		What: "A purge of one queue purges all queues of the backend.",
		on: hooks{purge: func(q *queue, ctx context.Context) (int, error) {
			for name, err := range q.wrapper.Queues(ctx) {
				if err != nil {
					return 0, err
				}
				other, err := q.wrapper.inner.OpenQueue(ctx, name)
				if err != nil || name == q.name {
					continue
				}
				if _, err := other.Purge(ctx); err != nil {
					return 0, err
				}
			}
			return q.Purge(ctx)
		}}},
	{Name: "counts-a-purge-in-two-steps", Breaks: "CNT-3",
		What: "A purge counts first and removes later, so that concurrent purges count messages twice.",
		on: hooks{purge: func(q *queue, ctx context.Context) (int, error) {
			stats, err := q.Stats(ctx)
			if err != nil {
				return 0, err
			}
			yieldToOthers()
			_, err = q.Purge(ctx)
			return stats.Waiting(), err
		}}},
	{Name: "forgets-that-a-purge-makes-room", Breaks: "CNT-3", Also: []string{"SND-5"}, Rare: true,
		What: "The bytes of purged messages still take room.",
		on: hooks{purge: func(q *queue, ctx context.Context) (int, error) {
			bytes := 0
			for _, seen := range q.peeked(ctx, driver.StateReady, driver.StateDelayed, driver.StateInFlight) {
				bytes += len(seen.Body)
			}
			removed, err := q.Purge(ctx)
			lost := add(state[counts](q), "", bytes)
			if q.config().MaxBytes > 0 && err == nil {
				err = q.reconfigure(ctx, func(c *driver.Config) { c.MaxBytes = max(c.MaxBytes-lost, 1) })
			}
			return removed, err
		}}},
}

// oldStats are earlier counts.
type oldStats struct {
	mu    sync.Mutex // guards the fields below
	stats driver.Stats
	at    time.Time
}

func (o *oldStats) get() (driver.Stats, time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.stats, o.at
}

// set keeps the counts of a Stats that succeeded.
func (o *oldStats) set(stats driver.Stats, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err == nil {
		o.stats, o.at = stats, time.Now()
	}
}

// both purges in two ways, and returns the number of the second.
func both(first, second func(*queue, context.Context) (int, error)) func(*queue, context.Context) (int, error) {
	return func(q *queue, ctx context.Context) (int, error) {
		if _, err := first(q, ctx); err != nil {
			return 0, err
		}
		return second(q, ctx)
	}
}

// spare sends messages that were in a state again after a purge.
func spare(state driver.State) func(*queue, context.Context) (int, error) {
	return func(q *queue, ctx context.Context) (int, error) {
		spared := q.peeked(ctx, state)
		removed, err := q.Purge(ctx)
		for _, seen := range spared {
			msg := again(seen.Message)
			if state == driver.StateDelayed {
				msg.Delay = min(max(time.Until(seen.DueAt), 0), q.Traits().MaxDelay)
			}
			_, _ = q.sendOne(ctx, msg)
		}
		return max(removed-len(spared), 0), err
	}
}

// peeked returns the messages in some states, in the order of the states.
func (q *queue) peeked(ctx context.Context, states ...driver.State) (found []driver.Peeked) {
	for _, state := range states {
		for seen, err := range q.Peek(ctx, driver.Query{States: []driver.State{state}}) {
			if err == nil {
				found = append(found, seen)
			}
		}
	}
	return found
}

// again returns a message to send that equals m.
func again(m driver.Message) driver.Outgoing {
	return driver.Outgoing{Body: m.Body, Attributes: m.Attributes, Group: m.Group, ReplyTo: m.ReplyTo, CorrelationID: m.CorrelationID, Seal: m.Seal}
}
