package faulty

import (
	"context"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var counters = []Saboteur{
	{
		Name: "counts-delayed-as-ready", Breaks: "CNT-1",
		What: "Stats counts delayed messages as ready.",
		Wrap: perHandle(func(q passing) handle {
			return changesStats{q, func(stats *driver.Stats) { stats.Ready, stats.Delayed = stats.Ready+stats.Delayed, 0 }}
		}),
	},
	{
		Name: "does-not-count-the-leased", Breaks: "CNT-1",
		What: "Stats does not count messages in flight.",
		Wrap: perHandle(func(q passing) handle {
			return changesStats{q, func(stats *driver.Stats) { stats.InFlight = 0 }}
		}),
	},
	{
		Name: "loses-a-count", Breaks: "CNT-1",
		What: "Stats is one short when more than two messages are ready.",
		Wrap: perHandle(func(q passing) handle {
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
		Wrap: perQueue(func(q passing, old *oldStats) handle { return countsLate{q, old} }),
	},
	{
		Name: "needs-a-sweep-to-count", Breaks: "CNT-1",
		What: "Stats counts what has come due as delayed or in flight until something else touches the queue.",
		Wrap: perQueue(func(q passing, frozen *oldStats) handle { return countsUnswept{q, frozen} }),
	},
	{
		Name: "does-not-count-the-dead", Breaks: "CNT-1", Also: []string{"DLQ-1"},
		What: "Stats does not count dead letters.",
		Wrap: perHandle(func(q passing) handle { return changesStats{q, func(stats *driver.Stats) { stats.Dead = 0 }} }),
	},

	{
		Name: "spares-the-leased-in-a-purge", Breaks: "CNT-3",
		What: "A purge leaves the messages in flight.",
		Wrap: perHandle(func(q passing) handle { return sparesLeased{q} }),
	},
	{
		Name: "spares-the-delayed-in-a-purge", Breaks: "CNT-3",
		What: "A purge leaves the delayed messages.",
		Wrap: perHandle(func(q passing) handle { return sparesDelayed{q} }),
	},
	{
		Name: "keeps-receipts-after-a-purge", Breaks: "CNT-3",
		What: "Receipts of purged messages can be acked.",
		Wrap: perQueue(func(q passing, held *purgedReceipts) handle { return keepsReceipts{q, held} }),
	},
	{
		Name: "purges-the-dead-too", Breaks: "CNT-3",
		What: "A purge removes the dead letters.",
		Wrap: perHandle(func(q passing) handle { return purgesDead{q} }),
	},
	{
		Name: "reports-only-the-ready-purged", Breaks: "CNT-3",
		What: "A purge says how many ready messages there were, not how many it removed.",
		Wrap: perHandle(func(q passing) handle { return reportsReady{q} }),
	},
	{
		Name: "purges-every-queue", Breaks: "CNT-3",
		What: "A purge of one queue purges all of the backend.",
		Wrap: perHandle(func(q passing) handle { return purgesAll{q} }),
	},
	{
		Name: "counts-a-purge-in-two-steps", Breaks: "CNT-3",
		What: "A purge counts first and removes then, so that purges at once count messages twice.",
		Wrap: perHandle(func(q passing) handle { return countsThenPurges{q} }),
	},
	{
		Name: "forgets-that-a-purge-makes-room", Breaks: "CNT-3", Also: []string{"SND-5"}, Rare: true,
		What: "The bytes of purged messages go on taking room.",
		Wrap: perQueue(func(q passing, lost *table[string, int]) handle { return leaksBytes{q, lost} }),
	},
}

// changesStats changes the counts on their way out.
type changesStats struct {
	passing
	change func(*driver.Stats)
}

func (q changesStats) Stats(ctx context.Context) (driver.Stats, error) {
	stats, err := q.Queue.Stats(ctx)
	q.change(&stats)
	return stats, err
}

// oldStats are counts from before.
type oldStats struct {
	mu    sync.Mutex // guards the fields below
	stats driver.Stats
	at    time.Time
}

type countsLate struct {
	passing
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

// countsUnswept keeps the counts as they were after the last operation.
type countsUnswept struct {
	passing
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

// peeked returns what is in a state.
func (q passing) peeked(ctx context.Context, state driver.State) (found []driver.Peeked) {
	for seen, err := range q.Peek(ctx, driver.Query{States: []driver.State{state}}) {
		if err == nil {
			found = append(found, seen)
		}
	}
	return found
}

// again is a message to be sent that is like another.
func again(m driver.Message) driver.Outgoing {
	return driver.Outgoing{Body: m.Body, Attributes: m.Attributes, Group: m.Group, ReplyTo: m.ReplyTo, CorrelationID: m.CorrelationID}
}

type sparesLeased struct{ passing }

func (q sparesLeased) Purge(ctx context.Context) (int, error) {
	spared := q.peeked(ctx, driver.StateInFlight)
	removed, err := q.Queue.Purge(ctx)
	for _, seen := range spared {
		_, _ = q.sendOne(ctx, again(seen.Message))
		removed--
	}
	return max(removed, 0), err
}

type sparesDelayed struct{ passing }

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

// purgedReceipts are those that a purge should have expired.
type purgedReceipts struct {
	held   table[driver.Receipt, bool]
	purged table[driver.Receipt, bool]
}

type keepsReceipts struct {
	passing
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

type purgesDead struct{ passing }

func (q purgesDead) Purge(ctx context.Context) (int, error) {
	if _, err := q.PurgeDead(ctx); err != nil {
		return 0, err
	}
	return q.Queue.Purge(ctx)
}

type reportsReady struct{ passing }

func (q reportsReady) Purge(ctx context.Context) (int, error) {
	stats, err := q.Queue.Stats(ctx)
	if err != nil {
		return 0, err
	}
	_, err = q.Queue.Purge(ctx)
	return stats.Ready, err
}

type purgesAll struct{ passing }

func (q purgesAll) Purge(ctx context.Context) (int, error) {
	for name, err := range q.box.Queues(ctx) {
		if err != nil {
			return 0, err
		}
		other, err := q.box.inner.OpenQueue(ctx, name)
		if err != nil || name == q.name {
			continue
		}
		if _, err := other.Purge(ctx); err != nil {
			return 0, err
		}
	}
	return q.Queue.Purge(ctx)
}

type countsThenPurges struct{ passing }

func (q countsThenPurges) Purge(ctx context.Context) (int, error) {
	stats, err := q.Queue.Stats(ctx)
	if err != nil {
		return 0, err
	}
	letOthersIn()
	_, err = q.Queue.Purge(ctx)
	return stats.Waiting(), err
}

type leaksBytes struct {
	passing
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
