package broker

import (
	"context"
	"log/slog"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/server/internal/metrics"
)

const (
	// gaugeEvery bounds how often scrapers measure the backend.
	gaugeEvery = time.Second
	// gaugeBudget bounds the time for measuring all queues; queues that are not measured
	// in time keep their old figures.
	gaugeBudget = 2 * time.Second
)

// MayMeasure returns nil if the caller may see the figures of the daemon, which name
// the queues of all tenants: it needs a token of no tenant that allows stats on any
// queue.
func (c Caller) MayMeasure(ctx context.Context) error {
	if _, err := c.authorize(ctx, capability.OpStats, ""); err != nil {
		return err
	}
	if c.tenant != "" {
		return &driver.Error{Code: driver.ErrForbidden, Op: "measure", Field: "tenant", Detail: "figures name the queues of all tenants; want a token without a tenant", Err: capability.ReasonTenant}
	}
	return nil
}

// Measure updates the figures of the open queues: messages by state, and use of
// limits. Surfaces call it before they export metrics. It blocks on the backend for at
// most gaugeBudget.
func (b *Broker) Measure(ctx context.Context) {
	now := b.now()
	last := b.measuredAt.Load()
	if last != 0 && now-time.Duration(last) < gaugeEvery || !b.measuredAt.CompareAndSwap(last, max(1, int64(now))) {
		return
	}
	if !b.measuring.TryLock() {
		return // another scrape is measuring
	}
	defer b.measuring.Unlock()
	ctx, cancel := context.WithTimeout(ctx, gaugeBudget)
	defer cancel()
	levels := make(map[*metrics.Queue]metrics.Level)
	full := 0
	for _, q := range b.queues.all() {
		level, err := b.measure(ctx, q)
		if err != nil {
			continue
		}
		levels[q.meter] = levels[q.meter].Plus(level)
		if level.MaxDead > 0 && level.Dead >= level.MaxDead {
			full++
		}
	}
	b.deadFull.Store(int64(full))
	for meter, level := range levels {
		meter.Measured(level)
	}
	if n := b.messageLines.rest(); n > 0 {
		b.log.LogAttrs(ctx, slog.LevelInfo, "message.suppressed", slog.Int("suppressed", n))
	}
	b.logSuppressed()
	verifier := b.verifier.Stats()
	b.metrics.CapCacheEntries.Set(float64(verifier.Entries))
	b.metrics.CapCacheLimit.Set(float64(verifier.MaxEntries))
	b.metrics.InFlight.Set(float64(b.InFlight()))
}

func (b *Broker) measure(ctx context.Context, q *queue) (metrics.Level, error) {
	key := queueKey{q.tenant, q.name}
	if q = b.queues.shard(key).acquire(key); q == nil {
		return metrics.Level{}, driver.ErrNotFound
	}
	defer q.release(time.Duration(q.lastUsed.Load())) // measuring does not count as use
	counted := b.unique.of(key)
	usage, err := usageOf(ctx, q.handle)
	if err != nil {
		return metrics.Level{}, err
	}
	b.unique.lower(key, counted, int64(usage.UniqueKeys))
	var config driver.Config
	if b.admin != nil {
		if config, err = b.admin.QueueConfig(ctx, q.backend); err != nil {
			return metrics.Level{}, err
		}
		config = config.Effective()
	}
	limit := func(bound int) int { return max(bound, 0) } // 0 if it is off
	level := metrics.Level{
		MaxInFlight: limit(config.MaxInFlight),
		MaxDead:     limit(config.MaxDead), Keys: usage.DedupKeys, MaxKeys: limit(config.DedupMax),
		Unique: usage.UniqueKeys, MaxUnique: limit(config.DedupMax),
		MaxReadyAge: max(config.RetainReady.Age, 0), MaxDeadAge: max(config.RetainDead.Age, 0),
		MaxReady: limit(config.RetainReady.Count), RetainDead: limit(config.RetainDead.Count),
	}
	for i, shard := range usage.Shards {
		label := metrics.ShardLabel(i)
		level.Add(metrics.ShardLevel{
			Label: label,
			Ready: shard.Ready, Delayed: shard.Delayed, InFlight: shard.InFlight, Bytes: shard.Bytes,
			Capacity: shardPart(limit(config.MaxMessages), len(usage.Shards), i), MaxBytes: shardPart(limit(config.MaxBytes), len(usage.Shards), i),
		})
		level.Dead += shard.Dead
		level.Throttled += shard.Throttled
		if shard.Paused {
			level.Paused = 1
		}
		level.OldestReady = max(level.OldestReady, shard.OldestReady)
		level.OldestDead = max(level.OldestDead, shard.OldestDead)
		b.metrics.Reordered(label, q.order.deepest(i))
	}
	return level, nil
}

// usageOf measures a queue. A backend without Usage has one shard.
func usageOf(ctx context.Context, handle driver.Queue) (driver.Usage, error) {
	if handle.Traits().Usage {
		return handle.Usage(ctx)
	}
	stats, err := handle.Stats(ctx)
	return driver.Usage{Shards: []driver.ShardUsage{{Stats: stats}}}, err
}

// shardPart returns the part of a limit for shard i of n, as backends split it.
func shardPart(bound, n, i int) int {
	part := bound / n
	if i < bound%n {
		part++
	}
	return part
}

// DeadLettersFull returns how many queues were at MaxDead when they were last measured:
// their messages cannot be dead-lettered and are delivered again.
func (b *Broker) DeadLettersFull() int { return int(b.deadFull.Load()) }
