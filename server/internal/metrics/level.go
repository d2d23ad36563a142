package metrics

import (
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// A Level is how full a queue is, bound by bound. A limit of 0 means that there is
// none.
type Level struct {
	// Shards are those of the topic, by label; see ShardLabel. Nil means that it
	// was never measured.
	Shards                   []ShardLevel
	MaxInFlight              int // of all shards together
	Dead, MaxDead            int
	Keys, MaxKeys            int // of dedup
	OldestReady, MaxReadyAge time.Duration
	OldestDead, MaxDeadAge   time.Duration
	MaxReady, RetainDead     int // bounds of retention, by number
}

// A ShardLevel is how full a shard of a topic is.
type ShardLevel struct {
	Label                    string
	Ready, Delayed, InFlight int
	Bytes                    int
	// Capacity bounds Ready, Delayed and InFlight together, and MaxBytes the bytes.
	Capacity, MaxBytes int
}

const (
	// maxShards is how many shards have a label of their own.
	maxShards = 16
	// allShards is the label of topics that share their series.
	allShards = "all"
)

// ShardLabel is the label of a shard: its number, or other beyond a bound.
func ShardLabel(shard int) string {
	if shard < maxShards {
		return strconv.Itoa(shard)
	}
	return other
}

// Add adds a shard to the one with the same label.
func (l *Level) Add(s ShardLevel) {
	for i := range l.Shards {
		if known := &l.Shards[i]; known.Label == s.Label {
			known.Ready += s.Ready
			known.Delayed += s.Delayed
			known.InFlight += s.InFlight
			known.Bytes += s.Bytes
			known.Capacity += s.Capacity
			known.MaxBytes += s.MaxBytes
			return
		}
	}
	l.Shards = append(l.Shards, s)
}

// Plus adds two queues that share their series. Ages are those of the older, and
// the bounds of retention are left out.
func (l Level) Plus(o Level) Level {
	if l.Shards == nil {
		return o
	}
	var sum Level
	for _, level := range []Level{l, o} {
		for _, shard := range level.Shards {
			shard.Label = allShards
			sum.Add(shard)
		}
		sum.MaxInFlight += level.MaxInFlight
		sum.Dead += level.Dead
		sum.MaxDead += level.MaxDead
		sum.Keys += level.Keys
		sum.MaxKeys += level.MaxKeys
		sum.OldestReady = max(sum.OldestReady, level.OldestReady)
		sum.OldestDead = max(sum.OldestDead, level.OldestDead)
	}
	return sum
}

// saturation is how full a shard is, by the bound that is nearest, 0 to 1.
func (s ShardLevel) saturation() float64 {
	full := 0.0
	if s.Capacity > 0 {
		full = float64(s.Ready+s.Delayed+s.InFlight) / float64(s.Capacity)
	}
	if s.MaxBytes > 0 {
		full = max(full, float64(s.Bytes)/float64(s.MaxBytes))
	}
	return min(1, full)
}

// orderSeries say how far topics are from first in, first out.
type orderSeries struct {
	reorder *prometheus.GaugeVec

	mu      sync.Mutex // guards the field below
	deepest map[string]int
}

func (o *orderSeries) init(registry *prometheus.Registry) {
	o.deepest = make(map[string]int)
	o.reorder = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "mailbox_reorder_depth_max",
		Help: "The most messages of a shard of a queue that were sent before one and first delivered after it, since the daemon started. Queues with strict or fair groups have orders of their own, and are left out.",
	}, []string{"shard"})
	registry.MustRegister(o.reorder)
}

// Reordered says by how much the deliveries of a shard of some topic were out of
// order. What counts is the most.
func (s *Set) Reordered(shard string, depth int) {
	o := &s.order
	o.mu.Lock()
	defer o.mu.Unlock()
	o.deepest[shard] = max(o.deepest[shard], depth)
	o.reorder.WithLabelValues(shard).Set(float64(o.deepest[shard]))
}
