package faulty

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var orderFaults = []Saboteur{
	{
		Name: "sends-a-batch-backwards", Breaks: "ORD-1",
		What: "The messages of a batch are enqueued in reverse.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return sendsBackwards{q} }),
	},
	{
		Name: "returns-a-batch-backwards", Breaks: "ORD-1",
		What: "The messages of a receive are in reverse.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return receivesBackwards{q} }),
	},
	{
		Name: "claims-shards-by-default", Breaks: "ORD-1",
		What: "A queue without a configuration has two shards.",
		Wrap: perOpener(func(b *wrapper) backend { return shardsByDefault{b} }),
	},

	{
		Name: "puts-the-expired-at-the-tail", Breaks: "ORD-2",
		What: "A message whose lease runs out goes to the tail.",
		Wrap: perQueue(func(q passThrough, held *table[driver.Receipt, lease]) driver.Queue { return expiresToTail{q, held} }),
	},
	{
		Name: "puts-the-given-up-at-the-tail", Breaks: "ORD-2",
		What: "A message whose lease is ended by an extend to zero goes to the tail.",
		Wrap: perQueue(func(q passThrough, delivered *deliveries) driver.Queue {
			return givesUpToTail{remembersDeliveries{q, delivered}}
		}),
	},
	{
		Name: "puts-the-nacked-at-the-head", Breaks: "ORD-2",
		What: "A nacked message keeps its place.",
		Wrap: perQueue(func(q passThrough, causes *nackCauses) driver.Queue { return nacksToHead{q, causes} }),
	},
	{
		Name: "places-the-nacked-when-due", Breaks: "ORD-2",
		What: "A message that was nacked with a delay goes to the tail when the delay is over.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return placesWhenDue{q} }),
	},

	{
		Name: "spreads-a-group", Breaks: "ORD-3",
		What: "The messages of a group are spread over all shards.",
		Wrap: perQueue(func(q passThrough, groups *trueGroups) driver.Queue {
			return regroups{q, groups, func(msg driver.Outgoing) string {
				if q.config().Shards < 2 || msg.Group == "" {
					return msg.Group
				}
				return fmt.Sprint(msg.Group, groups.turn.Add(1))
			}}
		}),
	},
	{
		Name: "bounds-each-shard", Breaks: "ORD-3",
		What: "The bound on messages holds for each shard, not for the queue.",
		Wrap: changesConfig(func(config *driver.Config) { config.MaxMessages *= max(config.Shards, 1) }),
	},
	{
		Name: "bounds-the-leased-of-each-shard", Breaks: "ORD-3", Also: []string{"RCV-1"},
		What: "The in-flight ceiling holds for each shard, not for the queue.",
		Wrap: changesConfig(func(config *driver.Config) { config.MaxInFlight *= max(config.Shards, 1) }),
	},
	{
		Name: "bounds-the-bytes-of-each-shard", Breaks: "ORD-3", Also: []string{"SND-5"},
		What: "The bound on bytes holds for each shard, not for the queue.",
		Wrap: changesConfig(func(config *driver.Config) { config.MaxBytes *= max(config.Shards, 1) }),
	},
	{
		Name: "bounds-the-dead-of-each-shard", Breaks: "ORD-3", Also: []string{"DLQ-5"},
		What: "The bound on dead letters holds for each shard, not for the queue.",
		Wrap: changesConfig(func(config *driver.Config) { config.MaxDead *= max(config.Shards, 1) }),
	},
	{
		Name: "purges-one-shard", Breaks: "ORD-3", Also: []string{"CNT-3"},
		What: "A purge of a queue with several shards removes only half of it.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return purgesHalf{q} }),
	},
	{
		Name: "lists-the-dead-by-shard", Breaks: "ORD-3", Also: []string{"DLQ-5"},
		What: "Dead letters of a queue with several shards are not listed by time of death.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			if q.Traits().Ordering == driver.OrderingPerShard {
				return listsYoungest{q}
			}
			return q
		}),
	},
	{
		Name: "limits-a-redrive-by-shard", Breaks: "ORD-3", Also: []string{"DLQ-5"},
		What: "The limit of a redrive holds for each shard.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return changesRedrive{q, func(ids []string, limit int) ([]string, int) { return ids, limit * max(q.config().Shards, 1) }}
		}),
	},
	{
		Name: "claims-order-over-shards", Breaks: "ORD-3",
		What: "A queue of several shards claims to be FIFO.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return claimsOrder{q} }),
	},
	{
		Name: "wakes-for-one-shard", Breaks: "ORD-3",
		What: "In a queue with several shards only one shard wakes waiting receivers; messages of the others are found a second later.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return wakesForOneShard{q} }),
	},
}

type sendsBackwards struct{ passThrough }

func (q sendsBackwards) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	backwards := slices.Clone(msgs)
	slices.Reverse(backwards)
	sent, err := q.Queue.Send(ctx, backwards)
	slices.Reverse(sent)
	if ofBatch(err) {
		errs := make([]error, len(msgs))
		for i := range errs {
			errs[len(msgs)-1-i] = driver.At(err, i)
		}
		err = driver.NewBatchError(errs)
	}
	return sent, err
}

type receivesBackwards struct{ passThrough }

func (q receivesBackwards) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	got, err := q.Queue.Receive(ctx, req)
	slices.Reverse(got)
	return got, err
}

type shardsByDefault struct{ *wrapper }

func (b shardsByDefault) OpenQueue(ctx context.Context, name string) (driver.Queue, error) {
	if _, err := b.QueueConfig(ctx, name); err != nil && driver.CheckName(name) == nil {
		if err := b.inner.(driver.Admin).ConfigureQueue(ctx, name, driver.Config{Shards: 2}); err != nil {
			return nil, err
		}
	}
	return b.wrapper.OpenQueue(ctx, name)
}

// leased records deliveries with their deadlines.
func leased(held *table[driver.Receipt, lease], got []driver.Delivery, visibility time.Duration) {
	for _, d := range got {
		held.put(d.Receipt, lease{d, time.Now().Add(visibility)})
	}
}

type expiresToTail struct {
	passThrough
	held *table[driver.Receipt, lease]
}

func (q expiresToTail) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	got, err := q.Queue.Receive(ctx, req)
	leased(q.held, got, req.Visibility)
	for _, d := range got {
		q.nackAtEnd(ctx, d.Receipt, req.Visibility)
	}
	return got, err
}

func (q expiresToTail) Extend(ctx context.Context, extensions []driver.Extension) ([]time.Duration, error) {
	granted, err := q.Queue.Extend(ctx, extensions)
	for i, extension := range extensions {
		if held, ok := q.held.get(extension.Receipt); ok && driver.At(err, i) == nil {
			q.held.put(extension.Receipt, lease{held.Delivery, time.Now().Add(extension.Visibility)})
			q.nackAtEnd(ctx, extension.Receipt, extension.Visibility)
		}
	}
	return granted, err
}

// nackAtEnd nacks a message just before its lease ends, unless the lease was extended.
func (q expiresToTail) nackAtEnd(ctx context.Context, receipt driver.Receipt, visibility time.Duration) {
	ctx = context.WithoutCancel(ctx)
	time.AfterFunc(visibility-1, func() {
		if held, ok := q.held.get(receipt); ok && time.Until(held.until) <= 1 {
			_ = q.Queue.Nack(ctx, []driver.Nack{{Receipt: receipt, Cause: held.LastError}}) // fails if it is settled
		}
	})
}

type givesUpToTail struct{ remembersDeliveries }

func (q givesUpToTail) Extend(ctx context.Context, extensions []driver.Extension) ([]time.Duration, error) {
	return eachExtension(extensions, func(extension driver.Extension) ([]time.Duration, error) {
		if held, ok := q.delivered.get(extension.Receipt); ok && extension.Visibility == 0 {
			return nil, renamed(q.Queue.Nack(ctx, []driver.Nack{{Receipt: extension.Receipt, Cause: held.LastError}}), "extend")
		}
		return q.Queue.Extend(ctx, []driver.Extension{extension})
	})
}

// nackCauses are causes that the wrapped queue is not told.
type nackCauses struct {
	messages table[driver.Receipt, string]
	causes   table[string, string]
}

type nacksToHead struct {
	passThrough
	*nackCauses
}

func (q nacksToHead) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	got, err := q.Queue.Receive(ctx, req)
	for i := range got {
		q.messages.put(got[i].Receipt, got[i].ID)
		if cause, ok := q.causes.get(got[i].ID); ok {
			got[i].LastError = cause
		}
	}
	return got, err
}

func (q nacksToHead) Nack(ctx context.Context, nacks []driver.Nack) error {
	return each(nacks, func(nack driver.Nack) error {
		id, ok := q.messages.get(nack.Receipt)
		if nack.Delay != 0 || !ok {
			return q.Queue.Nack(ctx, []driver.Nack{nack})
		}
		_, err := q.Queue.Extend(ctx, []driver.Extension{{Receipt: nack.Receipt}})
		if err == nil {
			q.causes.put(id, driver.TrimCause(nack.Cause))
		}
		return renamed(err, "nack")
	})
}

type placesWhenDue struct{ passThrough }

func (q placesWhenDue) Nack(ctx context.Context, nacks []driver.Nack) error {
	return each(nacks, func(nack driver.Nack) error {
		if nack.Delay < time.Second || nack.Delay > q.Traits().MaxVisibility {
			return q.Queue.Nack(ctx, []driver.Nack{nack})
		}
		// The message stays leased until the delay is over, and is then nacked.
		_, err := q.Queue.Extend(ctx, []driver.Extension{{Receipt: nack.Receipt, Visibility: nack.Delay}})
		late := context.WithoutCancel(ctx)
		time.AfterFunc(nack.Delay-1, func() {
			_ = q.Queue.Nack(late, []driver.Nack{{Receipt: nack.Receipt, Cause: nack.Cause}})
		})
		return renamed(err, "nack")
	})
}

// trueGroups are the groups that the messages were sent to.
type trueGroups struct {
	groups table[string, string]
	turn   atomic.Int64
}

// regroups sends messages to other groups than requested.
type regroups struct {
	passThrough
	*trueGroups
	instead func(driver.Outgoing) string
}

func (q regroups) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	return sendEach(msgs, func(msg driver.Outgoing) (driver.Sent, error) {
		group, traits := msg.Group, q.Traits()
		if msg.Check(&traits) == nil {
			msg.Group = q.instead(msg)
		}
		if len(msg.Group) > driver.MaxGroupBytes {
			msg.Group = group
		}
		// Receivers may be faster than this call, so they wait for it.
		q.groups.mu.Lock()
		defer q.groups.mu.Unlock()
		sent, err := q.sendOne(ctx, msg)
		if err == nil {
			if q.groups.entries == nil {
				q.groups.entries = make(map[string]string)
			}
			q.groups.entries[sent.ID] = group
		}
		return sent, err
	})
}

func (q regroups) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	got, err := q.Queue.Receive(ctx, req)
	for i := range got {
		if group, ok := q.groups.get(got[i].ID); ok {
			got[i].Group = group
		}
	}
	return got, err
}

type purgesHalf struct{ passThrough }

func (q purgesHalf) Purge(ctx context.Context) (int, error) {
	ready := q.peeked(ctx, driver.StateReady)
	removed, err := q.Queue.Purge(ctx)
	if q.config().Shards < 2 || err != nil {
		return removed, err
	}
	left := ready[:len(ready)/2]
	for _, seen := range left {
		_, _ = q.sendOne(ctx, again(seen.Message))
	}
	return removed - len(left), nil
}

type claimsOrder struct{ passThrough }

func (q claimsOrder) Traits() driver.Traits {
	traits := q.Queue.Traits()
	traits.Ordering = driver.OrderingFIFO
	return traits
}

type wakesForOneShard struct{ passThrough }

func (q wakesForOneShard) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	if q.config().Shards > 1 {
		return polls{q.passThrough, time.Second}.Receive(ctx, req)
	}
	return q.Queue.Receive(ctx, req)
}
