package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// levelSeries say how full topics are.
type levelSeries struct {
	depth, inFlight, saturation, dead, reorder *prometheus.GaugeVec

	mu      sync.Mutex // guards the field below
	deepest map[string]int
}

func newLevelSeries(registry *prometheus.Registry) *levelSeries {
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
		registry.MustRegister(g)
		return g
	}
	return &levelSeries{
		deepest:    make(map[string]int),
		depth:      gauge("queue_depth", "Messages that wait: ready and delayed.", "topic", "shard"),
		inFlight:   gauge("inflight", "Messages that are out.", "topic", "shard"),
		saturation: gauge("saturation", "How full the topic is, 0 to 1.", "topic", "shard"),
		dead:       gauge("dlq_depth", "Dead letters.", "topic"),
		reorder: gauge("reorder_depth_max",
			"The most messages of a topic that were sent before one and first delivered after it, since the daemon started.", "shard"),
	}
}

// Reordered says by how much the deliveries of a shard of some topic were out of
// order. What counts is the most.
func (s *Set) Reordered(shard string, depth int) {
	l := s.levels
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deepest[shard] = max(l.deepest[shard], depth)
	l.reorder.WithLabelValues(shard).Set(float64(l.deepest[shard]))
}

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

// Measured sets how full the topic is.
func (t *Topic) Measured(l Level) {
	s := t.set.levels
	s.depth.WithLabelValues(t.Label, l.Shard).Set(float64(l.Ready + l.Delayed))
	s.inFlight.WithLabelValues(t.Label, l.Shard).Set(float64(l.InFlight))
	s.dead.WithLabelValues(t.Label).Set(float64(l.Dead))
	saturation := 0.0
	if l.Capacity > 0 {
		saturation = float64(l.Ready+l.Delayed+l.InFlight) / float64(l.Capacity)
	}
	s.saturation.WithLabelValues(t.Label, l.Shard).Set(min(1, saturation))
}
