package faulty

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var orderFaults = []Saboteur{
	{Name: "sends-a-batch-backwards", Breaks: "ORD-1",
		What: "The messages of a batch are enqueued in reverse.",
		on: hooks{send: func(q *queue, ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
			backwards := slices.Clone(msgs)
			slices.Reverse(backwards)
			sent, err := q.Send(ctx, backwards)
			slices.Reverse(sent)
			return sent, replaced(err, len(msgs), func(i int) int { return len(msgs) - 1 - i })
		}}},
	{Name: "returns-a-batch-backwards", Breaks: "ORD-1",
		What: "The messages of a receive are in reverse.",
		on:   hooks{receive: returnBackwards}},
	{Name: "claims-shards-by-default", Breaks: "ORD-1",
		What: "A queue without a configuration has two shards.",
		on:   hooks{beforeOpen: createWith(driver.Config{Shards: 2})}},

	{Name: "puts-the-expired-at-the-tail", Breaks: "ORD-2",
		What: "A message whose lease runs out goes to the tail.",
		on: hooks{
			receive: func(q *queue, ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
				got, err := q.Receive(ctx, req)
				for _, d := range got {
					q.nackAtEnd(ctx, d, req.Visibility)
				}
				return got, err
			},
			extend: func(q *queue, ctx context.Context, extensions []driver.Extension) ([]time.Duration, error) {
				granted, err := q.Extend(ctx, extensions)
				for i, extension := range extensions {
					if d, ok := q.delivered.get(extension.Receipt); ok && driver.At(err, i) == nil {
						q.nackAtEnd(ctx, d, extension.Visibility)
					}
				}
				return granted, err
			},
		}},
	{Name: "puts-the-given-up-at-the-tail", Breaks: "ORD-2",
		What: "A message whose lease is ended by an extend to zero goes to the tail.",
		on: hooks{extend: extendOneByOne(func(q *queue, ctx context.Context, extension driver.Extension) ([]time.Duration, error) {
			if held, ok := q.delivered.get(extension.Receipt); ok && extension.Visibility == 0 {
				return nil, renamed(q.nackOne(ctx, driver.Nack{Receipt: extension.Receipt, Cause: held.LastError}), "extend")
			}
			return q.extendOne(ctx, extension)
		})}},
	{Name: "puts-the-nacked-at-the-head", Breaks: "ORD-2",
		What: "A nacked message keeps its place.",
		on: hooks{
			receive: alterDelivered(func(q *queue, d *driver.Delivery) { state[texts](q).load(d.ID, &d.LastError) }),
			nack: oneByOne(func(q *queue, ctx context.Context, nack driver.Nack) error {
				d, ok := q.delivered.get(nack.Receipt)
				if nack.Delay != 0 || !ok {
					return q.nackOne(ctx, nack)
				}
				err := q.release(ctx, nack.Receipt)
				if err == nil {
					state[texts](q).put(d.ID, driver.TrimCause(nack.Cause))
				}
				return renamed(err, "nack")
			}),
		}},
	{Name: "places-the-nacked-when-due", Breaks: "ORD-2",
		What: "A message that was nacked with a delay goes to the tail when the delay is over.",
		// It stays leased until the delay is over, and is then nacked.
		on: hooks{nack: oneByOne(func(q *queue, ctx context.Context, nack driver.Nack) error {
			if nack.Delay < time.Second || nack.Delay > q.Traits().MaxVisibility {
				return q.nackOne(ctx, nack)
			}
			err := extended(q.extendOne(ctx, driver.Extension{Receipt: nack.Receipt, Visibility: nack.Delay}))
			late := context.WithoutCancel(ctx)
			time.AfterFunc(nack.Delay-1, func() { _ = q.nackOne(late, driver.Nack{Receipt: nack.Receipt, Cause: nack.Cause}) })
			return renamed(err, "nack")
		})}},

	{Name: "spreads-a-group", Breaks: "ORD-3",
		What: "The messages of a group are spread over all shards.",
		on: regroup(
			func(q *queue, group string) bool { return q.config().Shards > 1 && group != "" },
			func(q *queue, group string) string { return fmt.Sprint(group, q.calls.Add(1)) })},
	{Name: "bounds-each-shard", Breaks: "ORD-3",
		What: "The bound on messages holds for each shard, not for the queue.",
		on:   hooks{config: func(c *driver.Config) { c.MaxMessages *= max(c.Shards, 1) }}},
	{Name: "bounds-the-leased-of-each-shard", Breaks: "ORD-3", Also: []string{"RCV-1"},
		What: "The in-flight ceiling holds for each shard, not for the queue.",
		on:   hooks{config: func(c *driver.Config) { c.MaxInFlight *= max(c.Shards, 1) }}},
	{Name: "bounds-the-bytes-of-each-shard", Breaks: "ORD-3", Also: []string{"SND-5"},
		What: "The bound on bytes holds for each shard, not for the queue.",
		on:   hooks{config: func(c *driver.Config) { c.MaxBytes *= max(c.Shards, 1) }}},
	{Name: "bounds-the-dead-of-each-shard", Breaks: "ORD-3", Also: []string{"DLQ-5"},
		What: "The bound on dead letters holds for each shard, not for the queue.",
		on:   hooks{config: func(c *driver.Config) { c.MaxDead *= max(c.Shards, 1) }}},
	{Name: "purges-one-shard", Breaks: "ORD-3", Also: []string{"CNT-3"},
		What: "A purge of a queue with several shards removes only half of it.",
		on: hooks{only: sharded, purge: func(q *queue, ctx context.Context) (int, error) {
			ready := q.readyMessages(ctx)
			removed, err := q.Purge(ctx)
			if err != nil {
				return removed, err
			}
			left := ready[:len(ready)/2]
			for _, m := range left {
				_, _ = q.sendOne(ctx, again(m))
			}
			return removed - len(left), nil
		}}},
	{Name: "lists-the-dead-by-shard", Breaks: "ORD-3", Also: []string{"DLQ-5"},
		What: "Dead letters of a queue with several shards are not listed by time of death.",
		on:   hooks{only: sharded, deadLetters: listBackwards}},
	{Name: "limits-a-redrive-by-shard", Breaks: "ORD-3", Also: []string{"DLQ-5"},
		What: "The limit of a redrive holds for each shard.",
		on: hooks{redrive: func(q *queue, ctx context.Context, ids []string, limit int) (int, error) {
			return q.Redrive(ctx, ids, limit*max(q.config().Shards, 1))
		}}},
	{Name: "claims-order-over-shards", Breaks: "ORD-3",
		What: "A queue of several shards claims to be FIFO.",
		on:   hooks{traits: alterTraits(func(_ *queue, traits *driver.Traits) { traits.Ordering = driver.OrderingFIFO })}},
	{Name: "wakes-for-one-shard", Breaks: "ORD-3",
		What: "In a queue with several shards only one shard wakes waiting receivers; messages of the others are found a second later.",
		on:   hooks{only: sharded, receive: pollEvery(time.Second, nil)}},
}

// returnBackwards returns batches in reverse.
var returnBackwards = afterReceive(func(_ *queue, _ context.Context, got []driver.Delivery) []driver.Delivery {
	slices.Reverse(got)
	return got
})

// nackAtEnd nacks a message just before its lease ends, unless the lease is extended.
func (q *queue) nackAtEnd(ctx context.Context, d driver.Delivery, visibility time.Duration) {
	ends, ctx := state[table[driver.Receipt, time.Time]](q), context.WithoutCancel(ctx)
	ends.put(d.Receipt, time.Now().Add(visibility))
	time.AfterFunc(visibility-1, func() {
		if time.Until(ends.at(d.Receipt)) <= 1 {
			_ = q.nackOne(ctx, driver.Nack{Receipt: d.Receipt, Cause: d.LastError}) // fails if it is settled
		}
	})
}

// regroup sends messages of some groups to others, and hides it.
func regroup(when func(q *queue, group string) bool, instead func(q *queue, group string) string) hooks {
	return hooks{
		send: sendOneByOne(func(q *queue, ctx context.Context, msg driver.Outgoing) (driver.Sent, error) {
			group, traits := msg.Group, q.Traits()
			if msg.Check(&traits) == nil && when(q, group) {
				msg.Group = instead(q, group)
			}
			if len(msg.Group) > driver.MaxGroupBytes {
				msg.Group = group
			}
			groups := state[texts](q)
			// Receivers may be faster than this call, so they wait for it.
			groups.mu.Lock()
			defer groups.mu.Unlock()
			sent, err := q.sendOne(ctx, msg)
			if err == nil {
				groups.putLocked(sent.ID, group)
			}
			return sent, err
		}),
		receive: alterDelivered(func(q *queue, d *driver.Delivery) { state[texts](q).load(d.ID, &d.Group) }),
	}
}
