package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// A Level is how full a topic is.
type Level struct {
	// Shard is the label: "0" if there is one, "all" if there are several.
	Shard                          string
	Ready, Delayed, InFlight, Dead int
	// Capacity bounds the first three together; 0 means that nothing does.
	Capacity int
}

// Plus adds two topics that share their series.
func (l Level) Plus(other Level) Level {
	if l.Shard == "" {
		return other
	}
	if l.Shard != other.Shard {
		l.Shard = "all"
	}
	l.Ready += other.Ready
	l.Delayed += other.Delayed
	l.InFlight += other.InFlight
	l.Dead += other.Dead
	l.Capacity += other.Capacity
	return l
}

// saturation is how full it is, 0 to 1.
func (l Level) saturation() float64 {
	if l.Capacity <= 0 {
		return 0
	}
	return min(1, float64(l.Ready+l.Delayed+l.InFlight)/float64(l.Capacity))
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
		Name: "reorder_depth_max",
		Help: "The most messages of a topic that were sent before one and first delivered after it, since the daemon started. Topics with strict groups or with several shards are not first in, first out as a whole, and are left out.",
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
