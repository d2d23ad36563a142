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
	// gaugeEvery keeps many scrapers from asking the backend more often than one.
	gaugeEvery = time.Second
	// gaugeBudget is how long the backend may take for all topics; what it does
	// not answer in time keeps its old figures.
	gaugeBudget = 2 * time.Second
)

// MayMeasure returns nil if the caller may see the figures of the daemon, which
// name the topics of everybody: it needs a token of no tenant for counting any
// topic.
func (c Caller) MayMeasure(ctx context.Context) error {
	if _, err := c.authorize(ctx, capability.OpStats, ""); err != nil {
		return err
	}
	if c.tenant != "" {
		return &driver.Error{Code: driver.ErrForbidden, Op: "measure", Field: "tenant", Detail: "the figures are of all tenants", Err: capability.ReasonTenant}
	}
	return nil
}

// Measure brings the figures of topics up to date: how many messages are in which
// state, and how full they are. Surfaces call it before they show metrics. It blocks
// on the backend, for a bounded time.
func (b *Broker) Measure(ctx context.Context) {
	now := b.now()
	last := b.measuredAt.Load()
	if last != 0 && now-time.Duration(last) < gaugeEvery || !b.measuredAt.CompareAndSwap(last, max(1, int64(now))) {
		return
	}
	if !b.measuring.TryLock() {
		return // somebody is still at it
	}
	defer b.measuring.Unlock()
	ctx, cancel := context.WithTimeout(ctx, gaugeBudget)
	defer cancel()
	levels := make(map[*metrics.Topic]metrics.Level)
	for _, t := range b.topics.all() {
		level, err := b.measure(ctx, t)
		if err != nil {
			continue
		}
		levels[t.meter] = levels[t.meter].Plus(level)
	}
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

func (b *Broker) measure(ctx context.Context, t *topic) (metrics.Level, error) {
	key := topicKey{t.tenant, t.name}
	if t = b.topics.shard(key).acquire(key); t == nil {
		return metrics.Level{}, driver.ErrNotFound
	}
	defer t.release(time.Duration(t.lastUsed.Load())) // looking is not using
	stats, err := t.queue.Stats(ctx)
	if err != nil {
		return metrics.Level{}, err
	}
	level := metrics.Level{Shard: "0", Ready: stats.Ready, Delayed: stats.Delayed, InFlight: stats.InFlight, Dead: stats.Dead}
	if b.admin != nil {
		config, err := b.admin.QueueConfig(ctx, t.backend)
		if err != nil {
			return level, err
		}
		level.Capacity = max(config.MaxMessages, 0) // 0 if it is off
		if config.Shards > 1 {
			level.Shard = "all"
		} else {
			b.metrics.Reordered(level.Shard, t.order.deepest())
		}
	}
	return level, nil
}
