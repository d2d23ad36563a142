package faulty

import (
	"context"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var countFaults = []Saboteur{
	{
		Name: "counts-delayed-as-ready", Breaks: "CNT-1",
		What: "Stats counts delayed messages as ready.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return changesStats{q, func(stats *driver.Stats) { stats.Ready, stats.Delayed = stats.Ready+stats.Delayed, 0 }}
		}),
	},
	{
		Name: "does-not-count-the-leased", Breaks: "CNT-1",
		What: "Stats does not count messages in flight.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return changesStats{q, func(stats *driver.Stats) { stats.InFlight = 0 }}
		}),
	},
	{
		Name: "loses-a-count", Breaks: "CNT-1",
		What: "Stats is one short when more than two messages are ready.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return changesStats{q, func(stats *driver.Stats) {
				if stats.Ready > 2 {
					stats.Ready--
				}
			}}
		}),
	},
	{
		Name: "counts-only-now-and-then", Breaks: "CNT-1",
		What: "Stats is up to a second old.",
		Wrap: perQueue(func(q passThrough, old *oldStats) driver.Queue { return countsLate{q, old} }),
	},
	{
		Name: "needs-a-sweep-to-count", Breaks: "CNT-1",
		What: "Stats counts due messages as delayed or in flight until another operation runs on the queue.",
		Wrap: perQueue(func(q passThrough, frozen *oldStats) driver.Queue { return countsUnswept{q, frozen} }),
	},
	{
		Name: "does-not-count-the-dead", Breaks: "CNT-1", Also: []string{"DLQ-1"},
		What: "Stats does not count dead letters.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return changesStats{q, func(stats *driver.Stats) { stats.Dead = 0 }} }),
	},

	{
		Name: "spares-the-leased-in-a-purge", Breaks: "CNT-3",
		What: "A purge leaves the messages in flight.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return sparesLeased{q} }),
	},
	{
		Name: "spares-the-delayed-in-a-purge", Breaks: "CNT-3",
		What: "A purge leaves the delayed messages.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return sparesDelayed{q} }),
	},
	{
		Name: "keeps-receipts-after-a-purge", Breaks: "CNT-3",
		What: "Receipts of purged messages can be acked.",
		Wrap: perQueue(func(q passThrough, held *purgedReceipts) driver.Queue { return keepsReceipts{q, held} }),
	},
	{
		Name: "purges-the-dead-too", Breaks: "CNT-3",
		What: "A purge removes the dead letters.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return purgesDead{q} }),
	},
	{
		Name: "reports-only-the-ready-purged", Breaks: "CNT-3",
		What: "A purge returns the number of ready messages, not of removed ones.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return reportsReady{q} }),
	},
	{
		Name: "purges-every-queue", Breaks: "CNT-3",
		What: "A purge of one queue purges all queues of the backend.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return purgesAll{q} }),
	},
	{
		Name: "counts-a-purge-in-two-steps", Breaks: "CNT-3",
		What: "A purge counts first and removes later, so that concurrent purges count messages twice.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return countsThenPurges{q} }),
	},
	{
		Name: "forgets-that-a-purge-makes-room", Breaks: "CNT-3", Also: []string{"SND-5"}, Rare: true,
		What: "The bytes of purged messages still take room.",
		Wrap: perQueue(func(q passThrough, lost *table[string, int]) driver.Queue { return leaksBytes{q, lost} }),
	},
}

// changesStats changes the returned counts.
type changesStats struct {
	passThrough
	change func(*driver.Stats)
}

func (q changesStats) Stats(ctx context.Context) (driver.Stats, error) {
	stats, err := q.Queue.Stats(ctx)
	q.change(&stats)
	return stats, err
}

// oldStats are earlier counts.
type oldStats struct {
	mu    sync.Mutex // guards the fields below
	stats driver.Stats
	at    time.Time
}

type countsLate struct {
	passThrough
	*oldStats
}

func (q countsLate) Stats(ctx context.Context) (driver.Stats, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.at.IsZero() && time.Since(q.at) < time.Second {
		return q.stats, nil
	}
	stats, err := q.Queue.Stats(ctx)
	if err == nil {
		q.stats, q.at = stats, time.Now()
	}
	return stats, err
}

// countsUnswept returns the counts as they were after the last operation.
type countsUnswept struct {
	passThrough
	*oldStats
}

func (q countsUnswept) count(ctx context.Context) {
	stats, err := q.Queue.Stats(ctx)
	q.mu.Lock()
	defer q.mu.Unlock()
	if err == nil {
		q.stats, q.at = stats, time.Now()
	}
}

func (q countsUnswept) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	defer q.count(ctx)
	return q.Queue.Send(ctx, msgs)
}

func (q countsUnswept) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	defer q.count(ctx)
	return q.Queue.Receive(ctx, req)
}

func (q countsUnswept) Nack(ctx context.Context, nacks []driver.Nack) error {
	defer q.count(ctx)
	return q.Queue.Nack(ctx, nacks)
}

func (q countsUnswept) Stats(ctx context.Context) (driver.Stats, error) {
	stats, err := q.Queue.Stats(ctx)
	q.mu.Lock()
	defer q.mu.Unlock()
	if old := q.stats; err == nil && old.Waiting() == stats.Waiting() && old.Ready < stats.Ready && time.Since(q.at) > 0 {
		return old, nil
	}
	return stats, err
}

// peeked returns the messages in a state.
func (q passThrough) peeked(ctx context.Context, state driver.State) (found []driver.Peeked) {
	for seen, err := range q.Peek(ctx, driver.Query{States: []driver.State{state}}) {
		if err == nil {
			found = append(found, seen)
		}
	}
	return found
}

// again returns a message to send that equals m.
func again(m driver.Message) driver.Outgoing {
	return driver.Outgoing{Body: m.Body, Attributes: m.Attributes, Group: m.Group, ReplyTo: m.ReplyTo, CorrelationID: m.CorrelationID, Seal: m.Seal}
}

type sparesLeased struct{ passThrough }

func (q sparesLeased) Purge(ctx context.Context) (int, error) {
	spared := q.peeked(ctx, driver.StateInFlight)
	removed, err := q.Queue.Purge(ctx)
	for _, seen := range spared {
		_, _ = q.sendOne(ctx, again(seen.Message))
		removed--
	}
	return max(removed, 0), err
}

type sparesDelayed struct{ passThrough }

func (q sparesDelayed) Purge(ctx context.Context) (int, error) {
	spared := q.peeked(ctx, driver.StateDelayed)
	removed, err := q.Queue.Purge(ctx)
	for _, seen := range spared {
		msg := again(seen.Message)
		msg.Delay = min(max(time.Until(seen.DueAt), 0), q.Traits().MaxDelay)
		_, _ = q.sendOne(ctx, msg)
		removed--
	}
	return max(removed, 0), err
}

// purgedReceipts are the receipts that a purge should have expired.
type purgedReceipts struct {
	held   table[driver.Receipt, bool]
	purged table[driver.Receipt, bool]
}

type keepsReceipts struct {
	passThrough
	*purgedReceipts
}

func (q keepsReceipts) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	got, err := q.Queue.Receive(ctx, req)
	for _, d := range got {
		q.held.put(d.Receipt, true)
	}
	return got, err
}

func (q keepsReceipts) Purge(ctx context.Context) (int, error) {
	for _, receipt := range q.held.keys() {
		q.purged.put(receipt, true)
	}
	return q.Queue.Purge(ctx)
}

func (q keepsReceipts) Ack(ctx context.Context, acked []driver.Receipt) error {
	return each(acked, func(receipt driver.Receipt) error {
		err := q.Queue.Ack(ctx, []driver.Receipt{receipt})
		if purged, _ := q.purged.get(receipt); purged && ofBatch(err) {
			q.purged.drop(receipt)
			return nil
		}
		q.held.drop(receipt)
		return err
	})
}

type purgesDead struct{ passThrough }

func (q purgesDead) Purge(ctx context.Context) (int, error) {
	if _, err := q.PurgeDead(ctx); err != nil {
		return 0, err
	}
	return q.Queue.Purge(ctx)
}

type reportsReady struct{ passThrough }

func (q reportsReady) Purge(ctx context.Context) (int, error) {
	stats, err := q.Queue.Stats(ctx)
	if err != nil {
		return 0, err
	}
	_, err = q.Queue.Purge(ctx)
	return stats.Ready, err
}

type purgesAll struct{ passThrough }

func (q purgesAll) Purge(ctx context.Context) (int, error) {
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
	return q.Queue.Purge(ctx)
}

type countsThenPurges struct{ passThrough }

func (q countsThenPurges) Purge(ctx context.Context) (int, error) {
	stats, err := q.Queue.Stats(ctx)
	if err != nil {
		return 0, err
	}
	yieldToOthers()
	_, err = q.Queue.Purge(ctx)
	return stats.Waiting(), err
}

type leaksBytes struct {
	passThrough
	lost *table[string, int]
}

func (q leaksBytes) Purge(ctx context.Context) (int, error) {
	bytes := 0
	for _, state := range []driver.State{driver.StateReady, driver.StateDelayed, driver.StateInFlight} {
		for _, seen := range q.peeked(ctx, state) {
			bytes += len(seen.Body)
		}
	}
	removed, err := q.Queue.Purge(ctx)
	lost := add(q.lost, q.name, bytes)
	if q.config().MaxBytes > 0 && err == nil {
		err = q.reconfigure(ctx, func(config *driver.Config) { config.MaxBytes = max(config.MaxBytes-lost, 1) })
	}
	return removed, err
}
