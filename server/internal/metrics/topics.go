package metrics

import (
	"maps"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// MaxTopics is how many topics have a label of their own.
const MaxTopics = 200

// other is the label of the topics beyond MaxTopics.
const other = "other"

// topicSeries are the series that have a queue as a label. It is their collector.
type topicSeries struct {
	sent, repeated, handed, settled, died, redriven *prometheus.Desc
	extended, removed, dropped, keyless             *prometheus.Desc
	depth, inFlight, saturation, dead               *prometheus.Desc
	bounds                                          []bound

	mu      sync.Mutex        // guards the field below
	byLabel map[string]*Topic // that of the others is there from the start
}

func (s *topicSeries) init(registry *prometheus.Registry) {
	series := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, append([]string{"queue"}, labels...), nil)
	}
	s.sent = series("mailbox_enqueued_total", "Messages that were accepted.")
	s.repeated = series("mailbox_deduplicated_total", "Sends that were repeats of an earlier one.")
	s.handed = series("mailbox_delivered_total", "Deliveries.")
	s.settled = series("mailbox_settled_total", "Deliveries that were acked, nacked or dead-lettered, by outcome.", "outcome")
	s.extended = series("mailbox_extended_total", "Deliveries that were extended.")
	s.died = series("mailbox_dlq_total", "Messages that became dead letters, by reason.", "reason")
	s.redriven = series("mailbox_dlq_redriven_total", "Dead letters that were made ready again.")
	s.keyless = series("mailbox_keyless_total", "Messages that were sent by gRPC or Connect without a dedup key: repeating such a send may send twice.")
	s.removed = series("mailbox_dlq_removed_total", "Dead letters that retention removed.")
	s.dropped = series("mailbox_dropped_total", "Messages that were too old and were removed without becoming dead letters, in queues that ask for it.")
	s.depth = series("mailbox_queue_depth", "Messages that wait, by state: ready or delayed.", "shard", "state")
	s.inFlight = series("mailbox_inflight", "Messages in flight.", "shard")
	s.saturation = series("mailbox_saturation", "How full the queue is, by the nearest of its bounds, 0 to 1.", "shard")
	s.dead = series("mailbox_dlq_depth", "Dead letters.")
	s.bounds = newBounds(series)
	s.byLabel = map[string]*Topic{other: newTopic(other)}
	registry.MustRegister(s)
}

// Topic returns the counts of a topic. Tenants are part of the label.
func (s *Set) Topic(tenant, name string) *Topic {
	label := name
	if tenant != "" {
		label = tenant + "/" + name
	}
	topics := &s.topics
	topics.mu.Lock()
	defer topics.mu.Unlock()
	if known := topics.byLabel[label]; known != nil {
		return known
	}
	if len(topics.byLabel) > MaxTopics {
		return topics.byLabel[other]
	}
	made := newTopic(label)
	topics.byLabel[label] = made
	return made
}

// Describe implements prometheus.Collector.
func (s *topicSeries) Describe(descs chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{
		s.sent, s.repeated, s.handed, s.settled, s.extended, s.died, s.redriven, s.removed, s.dropped, s.keyless, s.depth, s.inFlight, s.saturation, s.dead,
	} {
		descs <- desc
	}
	for _, b := range s.bounds {
		descs <- b.desc
	}
}

// Collect implements prometheus.Collector.
func (s *topicSeries) Collect(series chan<- prometheus.Metric) {
	s.mu.Lock()
	topics := slices.Collect(maps.Values(s.byLabel))
	s.mu.Unlock()
	for _, t := range topics {
		s.collectCounts(t, series)
		s.collectLevel(t, series)
	}
}

func (s *topicSeries) collectCounts(t *Topic, series chan<- prometheus.Metric) {
	counter := func(desc *prometheus.Desc, value uint64, labels ...string) {
		labels = append([]string{t.Label}, labels...)
		metric, err := prometheus.NewConstMetricWithCreatedTimestamp(desc, prometheus.CounterValue, float64(value), t.since, labels...)
		series <- orInvalid(desc, metric, err)
	}
	counter(s.sent, t.sent.Load())
	counter(s.repeated, t.repeated.Load())
	counter(s.handed, t.handed.Load())
	counter(s.redriven, t.redriven.Load())
	counter(s.removed, t.removed.Load())
	counter(s.dropped, t.dropped.Load())
	counter(s.keyless, t.keyless.Load())
	counter(s.settled, t.acked.Load(), "ack")
	counter(s.settled, t.nacked.Load(), "nack")
	counter(s.settled, t.deadLettered.Load(), "dead-letter")
	counter(s.extended, t.extended.Load())
	t.mu.Lock()
	died := maps.Clone(t.died)
	t.mu.Unlock()
	for reason, n := range died {
		counter(s.died, n, reason)
	}
}

// collectLevel tells how full a topic is, if that was ever measured.
func (s *topicSeries) collectLevel(t *Topic, series chan<- prometheus.Metric) {
	t.mu.Lock()
	level := t.level
	t.mu.Unlock()
	if level.Shards == nil {
		return
	}
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		metric, err := prometheus.NewConstMetric(desc, prometheus.GaugeValue, value, append([]string{t.Label}, labels...)...)
		series <- orInvalid(desc, metric, err)
	}
	for _, shard := range level.Shards {
		label := shard.Label
		gauge(s.depth, float64(shard.Ready), label, "ready")
		gauge(s.depth, float64(shard.Delayed), label, "delayed")
		gauge(s.inFlight, float64(shard.InFlight), label)
		gauge(s.saturation, shard.saturation(), label)
		for _, b := range s.bounds {
			if b.ofShard != nil {
				gauge(b.desc, b.ofShard(shard), label)
			}
		}
	}
	gauge(s.dead, float64(level.Dead))
	for _, b := range s.bounds {
		if b.ofTopic != nil {
			gauge(b.desc, b.ofTopic(level))
		}
	}
}

// A bound is a figure that says how much of a bound is used, or what the bound is.
type bound struct {
	desc    *prometheus.Desc
	ofShard func(ShardLevel) float64 // nil: it is of the topic
	ofTopic func(Level) float64
}

func newBounds(series func(name, help string, labels ...string) *prometheus.Desc) []bound {
	shard := func(name, help string, value func(ShardLevel) float64) bound {
		return bound{desc: series(name, help, "shard"), ofShard: value}
	}
	topic := func(name, help string, value func(Level) float64) bound {
		return bound{desc: series(name, help), ofTopic: value}
	}
	return []bound{
		shard("mailbox_queue_limit", "How many messages may wait or be in flight; 0 means no bound.", func(s ShardLevel) float64 { return float64(s.Capacity) }),
		shard("mailbox_queue_bytes", "Bytes of the bodies of messages that wait or are in flight.", func(s ShardLevel) float64 { return float64(s.Bytes) }),
		shard("mailbox_queue_bytes_limit", "How many bytes bodies may have; 0 means no bound.", func(s ShardLevel) float64 { return float64(s.MaxBytes) }),
		topic("mailbox_inflight_limit", "How many messages of the queue may be in flight; 0 means no bound.", func(l Level) float64 { return float64(l.MaxInFlight) }),
		topic("mailbox_dlq_limit", "How many dead letters there may be; 0 means no bound.", func(l Level) float64 { return float64(l.MaxDead) }),
		topic("mailbox_dedup_keys", "Dedup keys that are remembered.", func(l Level) float64 { return float64(l.Keys) }),
		topic("mailbox_dedup_keys_limit", "How many dedup keys can be remembered; 0 means no bound.", func(l Level) float64 { return float64(l.MaxKeys) }),
		topic("mailbox_oldest_ready_seconds", "Age of the oldest waiting message, as retention counts.", func(l Level) float64 { return l.OldestReady.Seconds() }),
		topic("mailbox_retain_ready_seconds", "How old a waiting message may get; 0 means no bound.", func(l Level) float64 { return l.MaxReadyAge.Seconds() }),
		topic("mailbox_retain_ready_messages", "How many waiting messages are kept; 0 means no bound.", func(l Level) float64 { return float64(l.MaxReady) }),
		topic("mailbox_oldest_dead_seconds", "Age of the oldest dead letter, counted from its death.", func(l Level) float64 { return l.OldestDead.Seconds() }),
		topic("mailbox_retain_dead_seconds", "How long dead letters are kept; 0 means no bound.", func(l Level) float64 { return l.MaxDeadAge.Seconds() }),
		topic("mailbox_retain_dead_messages", "How many dead letters are kept; 0 means no bound.", func(l Level) float64 { return float64(l.RetainDead) }),
	}
}

// orInvalid is the metric, or one that tells who asks why there is none.
func orInvalid(desc *prometheus.Desc, metric prometheus.Metric, err error) prometheus.Metric {
	if err != nil {
		return prometheus.NewInvalidMetric(desc, err)
	}
	return metric
}
