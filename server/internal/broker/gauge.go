package broker

import (
	"context"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/server/internal/metrics"
)

const (
	// gaugeEvery keeps many scrapers from asking the backend more often than one.
	gaugeEvery = time.Second
	// gaugeBudget is how long the backend may take for all topics; what it does
	// not answer in time keeps its old figures.
	gaugeBudget = 2 * time.Second
	// maxDeathsListed bounds how many dead letters of a topic are looked through
	// for new ones.
	maxDeathsListed = 10_000
)

// Measure brings the figures of topics up to date: how many messages are in which
// state, how full they are, and who died without being buried. Surfaces call it
// before they show metrics. It blocks on the backend, for a bounded time.
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
		level.Capacity = config.MaxMessages
		if config.Shards > 1 {
			level.Shard = "all"
		}
	}
	b.countDeaths(ctx, t, stats.Dead)
	return level, nil
}

// countDeaths counts messages that the backend declared dead by itself, because
// they were delivered too often or too old. Nobody tells the broker of them, so it
// looks for those that died since it looked last. What has left the dead letters
// again in between is not seen.
func (b *Broker) countDeaths(ctx context.Context, t *topic, dead int) {
	since := t.deathsSeen
	if dead == 0 || t.dead == nil {
		return
	}
	listed := 0
	deaths := make(map[driver.Reason]int)
	for letter, err := range t.dead.DeadLetters(ctx) {
		if listed++; err != nil || listed > maxDeathsListed {
			break
		}
		if !letter.DeadAt.After(since) {
			continue
		}
		if letter.DeadAt.After(t.deathsSeen) {
			t.deathsSeen = letter.DeadAt
		}
		if byItself(letter.Reason) {
			deaths[letter.Reason]++
		}
	}
	for reason, n := range deaths {
		t.meter.Died(string(reason), n)
	}
}

// byItself reports whether a backend finds this reason without being told.
func byItself(reason driver.Reason) bool {
	return reason == driver.ReasonMaxDeliveries || reason == driver.ReasonExpired
}
