package broker

import (
	"context"
	"maps"
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
	// maxDeathsListed bounds how many dead letters of a topic are looked through
	// for new ones.
	maxDeathsListed = 10_000
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
		} else {
			b.metrics.Reordered(level.Shard, t.order.deepest())
		}
	}
	b.countDeaths(ctx, t, stats.Dead)
	return level, nil
}

// A deathCount is how far the deaths of a topic were counted.
type deathCount struct {
	// latest is the latest death that was listed, or when the broker was made, and
	// dead how many letters there were then.
	latest time.Time
	dead   int
	// ids are those of the letters that died at latest: others may die in the same
	// moment, as far as a clock can tell.
	ids map[string]struct{}
	// buried and left are topic.buried and topic.deadLeft as they were then.
	buried, left int64
}

// listed notes a death.
func (d *deathCount) listed(letter *driver.DeadLetter) {
	switch {
	case letter.DeadAt.After(d.latest):
		d.latest, d.ids = letter.DeadAt, map[string]struct{}{letter.ID: {}}
	case letter.DeadAt.Equal(d.latest):
		if d.ids == nil {
			d.ids = make(map[string]struct{})
		}
		d.ids[letter.ID] = struct{}{}
	}
}

// reasonOther is that of deaths that were counted and not looked at.
const reasonOther = "other"

// countDeaths counts messages that the backend declared dead by itself, because
// they were delivered too often or too old. Nobody tells the broker of them, so it
// looks for those that died since it looked last, or since it was made. Of a great
// many letters it looks at the oldest, and knows of the others only how many there
// are: their reason is other. What has left the dead letters in between is not seen,
// unless it left through this broker.
func (b *Broker) countDeaths(ctx context.Context, t *topic, dead int) {
	letters := t.deadLetterer()
	if letters == nil {
		return
	}
	last := deathCount{latest: b.start.UTC()}
	if t.deaths != nil {
		last = *t.deaths
	}
	now := deathCount{latest: last.latest, ids: maps.Clone(last.ids), dead: dead, buried: t.buried.Load(), left: t.deadLeft.Load()}
	since := now.latest
	listed, seen := 0, 0
	deaths := make(map[driver.Reason]int)
	if dead > 0 {
		for letter, err := range letters.DeadLetters(ctx) {
			if listed++; err != nil || listed > maxDeathsListed {
				break
			}
			if _, counted := last.ids[letter.ID]; letter.DeadAt.Before(since) || counted {
				continue
			}
			now.listed(&letter)
			if byItself(letter.Reason) {
				deaths[letter.Reason]++
				seen++
			}
		}
	}
	for reason, n := range deaths {
		t.meter.Died(string(reason), n)
	}
	if dead > maxDeathsListed {
		grown := dead - last.dead + int(now.left-last.left) - int(now.buried-last.buried)
		if t.measured && grown > seen {
			t.meter.Died(reasonOther, grown-seen)
		}
		now.latest = time.Now() // those that were not listed are not to be listed later
	}
	t.measured, t.deaths = true, nil
	if dead > 0 || now.buried > 0 || now.left > 0 || !now.latest.Equal(b.start) {
		t.deaths = &now // else it is as if nobody had looked, and most topics are like that
	}
}

// byItself reports whether a backend finds this reason without being told.
func byItself(reason driver.Reason) bool {
	return reason == driver.ReasonMaxDeliveries || reason == driver.ReasonExpired
}
