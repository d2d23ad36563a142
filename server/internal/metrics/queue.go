package metrics

import (
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// A Queue holds the counts of one queue, or of all queues that share the label
// "other". It is kept for as long as the daemon runs, because a counter must not
// decrease. Most queues are idle most of the time, so a Queue is a few numbers;
// the Prometheus series are built at each scrape.
type Queue struct {
	Label string
	since time.Time // when counting began

	sent, repeated, handed, redriven atomic.Uint64
	acked, nacked, deadLettered      atomic.Uint64
	released, putBack                atomic.Uint64
	extended                         atomic.Uint64
	removed, dropped, keyless        atomic.Uint64
	editRemoved, editReady, editDue  atomic.Uint64
	editPriority, editReplaced       atomic.Uint64
	fired, notFired                  atomic.Uint64

	mu    sync.Mutex // guards the fields below
	died  map[string]uint64
	level Level
}

func newQueue(label string) *Queue { return &Queue{Label: label, since: time.Now()} }

// Sent counts accepted messages and duplicates.
func (q *Queue) Sent(accepted, repeats int) {
	q.sent.Add(uint64(accepted))
	if repeats > 0 {
		q.repeated.Add(uint64(repeats))
	}
}

// Delivered counts deliveries.
func (q *Queue) Delivered(n int) { q.handed.Add(uint64(n)) }

// Settled counts deliveries that were acked, nacked, released, put back, dead-lettered or
// extended.
func (q *Queue) Settled(how string, n int) {
	switch how {
	case "ack":
		q.acked.Add(uint64(n))
	case "nack":
		q.nacked.Add(uint64(n))
	case "release":
		q.released.Add(uint64(n))
	case "put-back":
		q.putBack.Add(uint64(n))
	case "dead-letter":
		q.deadLettered.Add(uint64(n))
	case "extend":
		q.extended.Add(uint64(n))
	}
}

// Died counts dead letters.
func (q *Queue) Died(reason string, n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.died == nil {
		q.died = make(map[string]uint64)
	}
	q.died[reason] += uint64(n)
}

// Keyless counts messages that were sent without a dedup key where one is expected.
func (q *Queue) Keyless(n int) { q.keyless.Add(uint64(n)) }

// Removed counts dead letters that retention removed.
func (q *Queue) Removed(n int) { q.removed.Add(uint64(n)) }

// Dropped counts messages that were dropped because they were too old or past their time to live.
func (q *Queue) Dropped(n int) { q.dropped.Add(uint64(n)) }

// Edited counts waiting messages that were removed, made ready, replaced, or got another due time or priority.
func (q *Queue) Edited(change string) {
	switch change {
	case "remove":
		q.editRemoved.Add(1)
	case "ready":
		q.editReady.Add(1)
	case "due":
		q.editDue.Add(1)
	case "priority":
		q.editPriority.Add(1)
	case "replace":
		q.editReplaced.Add(1)
	}
}

// Fired counts messages that schedules sent, and firings that failed.
func (q *Queue) Fired(outcome string, n int) {
	switch outcome {
	case "sent":
		q.fired.Add(uint64(n))
	case "failed":
		q.notFired.Add(uint64(n))
	}
}

// Redriven counts dead letters that were made ready again.
func (q *Queue) Redriven(n int) { q.redriven.Add(uint64(n)) }

// Measured sets how full the queue is.
func (q *Queue) Measured(l Level) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.level = l
}

// MaxQueues is how many queues have a label of their own.
const MaxQueues = 200

// other is the label of the queues beyond MaxQueues.
const other = "other"

// queueSeries collects the series that have a queue as a label.
type queueSeries struct {
	sent, repeated, handed, settled, died, redriven    *prometheus.Desc
	extended, removed, dropped, keyless, edited, fired *prometheus.Desc
	depth, inFlight, saturation, dead                  *prometheus.Desc
	bounds                                             []bound

	mu      sync.Mutex        // guards the field below
	byLabel map[string]*Queue // the label other is always there
}

func (s *queueSeries) init(registry *prometheus.Registry) {
	series := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, append([]string{"queue"}, labels...), nil)
	}
	s.sent = series("mailbox_enqueued_total", "Messages that were accepted.")
	s.repeated = series("mailbox_deduplicated_total", "Sends that were repeats of an earlier one.")
	s.handed = series("mailbox_delivered_total", "Deliveries.")
	s.settled = series("mailbox_settled_total", "Deliveries that were acked, nacked, released, put back or dead-lettered, by outcome.", "outcome")
	s.extended = series("mailbox_extended_total", "Deliveries that were extended.")
	s.edited = series("mailbox_edited_total", "Waiting messages that were changed, by change: remove, ready, due, priority or replace.", "change")
	s.fired = series("mailbox_schedule_runs_total", "Messages of schedules that were sent, and attempts to send some that failed, by outcome.", "outcome")
	s.died = series("mailbox_dlq_total", "Messages that became dead letters, by reason.", "reason")
	s.redriven = series("mailbox_dlq_redriven_total", "Dead letters that were made ready again.")
	s.keyless = series("mailbox_keyless_total", "Messages that were sent by gRPC or Connect without a dedup key: repeating such a send may send twice.")
	s.removed = series("mailbox_dlq_removed_total", "Dead letters that retention removed.")
	s.dropped = series("mailbox_dropped_total", "Messages that were too old or past their time to live and were removed without becoming dead letters, in queues that ask for it.")
	s.depth = series("mailbox_queue_depth", "Messages that wait, by state: ready or delayed.", "shard", "state")
	s.inFlight = series("mailbox_inflight", "Messages in flight.", "shard")
	s.saturation = series("mailbox_saturation", "How full the queue is, by the nearest of its bounds, 0 to 1.", "shard")
	s.dead = series("mailbox_dlq_depth", "Dead letters.")
	s.bounds = newBounds(series)
	s.byLabel = map[string]*Queue{other: newQueue(other)}
	registry.MustRegister(s)
}

// Queue returns the counts of a queue. The label names the tenant too.
func (s *Set) Queue(tenant, name string) *Queue {
	label := name
	if tenant != "" {
		label = tenant + "/" + name
	}
	queues := &s.queues
	queues.mu.Lock()
	defer queues.mu.Unlock()
	if known := queues.byLabel[label]; known != nil {
		return known
	}
	if len(queues.byLabel) > MaxQueues {
		return queues.byLabel[other]
	}
	made := newQueue(label)
	queues.byLabel[label] = made
	return made
}

// Describe implements prometheus.Collector.
func (s *queueSeries) Describe(descs chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{
		s.sent, s.repeated, s.handed, s.settled, s.extended, s.edited, s.fired, s.died, s.redriven, s.removed, s.dropped, s.keyless, s.depth, s.inFlight, s.saturation, s.dead,
	} {
		descs <- desc
	}
	for _, b := range s.bounds {
		descs <- b.desc
	}
}

// Collect implements prometheus.Collector.
func (s *queueSeries) Collect(series chan<- prometheus.Metric) {
	s.mu.Lock()
	queues := slices.Collect(maps.Values(s.byLabel))
	s.mu.Unlock()
	for _, q := range queues {
		s.collectCounts(q, series)
		s.collectLevel(q, series)
	}
}

func (s *queueSeries) collectCounts(q *Queue, series chan<- prometheus.Metric) {
	counter := func(desc *prometheus.Desc, value uint64, labels ...string) {
		labels = append([]string{q.Label}, labels...)
		metric, err := prometheus.NewConstMetricWithCreatedTimestamp(desc, prometheus.CounterValue, float64(value), q.since, labels...)
		series <- orInvalid(desc, metric, err)
	}
	counter(s.sent, q.sent.Load())
	counter(s.repeated, q.repeated.Load())
	counter(s.handed, q.handed.Load())
	counter(s.redriven, q.redriven.Load())
	counter(s.removed, q.removed.Load())
	counter(s.dropped, q.dropped.Load())
	counter(s.keyless, q.keyless.Load())
	counter(s.settled, q.acked.Load(), "ack")
	counter(s.settled, q.nacked.Load(), "nack")
	counter(s.settled, q.released.Load(), "release")
	counter(s.settled, q.putBack.Load(), "put-back")
	counter(s.settled, q.deadLettered.Load(), "dead-letter")
	counter(s.extended, q.extended.Load())
	counter(s.edited, q.editRemoved.Load(), "remove")
	counter(s.edited, q.editReady.Load(), "ready")
	counter(s.edited, q.editDue.Load(), "due")
	counter(s.edited, q.editPriority.Load(), "priority")
	counter(s.edited, q.editReplaced.Load(), "replace")
	counter(s.fired, q.fired.Load(), "sent")
	counter(s.fired, q.notFired.Load(), "failed")
	q.mu.Lock()
	died := maps.Clone(q.died)
	q.mu.Unlock()
	for reason, n := range died {
		counter(s.died, n, reason)
	}
}

// collectLevel emits how full a queue is, if it was ever measured.
func (s *queueSeries) collectLevel(q *Queue, series chan<- prometheus.Metric) {
	q.mu.Lock()
	level := q.level
	q.mu.Unlock()
	if level.Shards == nil {
		return
	}
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		metric, err := prometheus.NewConstMetric(desc, prometheus.GaugeValue, value, append([]string{q.Label}, labels...)...)
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
		if b.ofQueue != nil {
			gauge(b.desc, b.ofQueue(level))
		}
	}
}

// A bound is a series with the use of a limit, or with the limit itself.
type bound struct {
	desc    *prometheus.Desc
	ofShard func(ShardLevel) float64 // nil for series of the whole queue
	ofQueue func(Level) float64
}

func newBounds(series func(name, help string, labels ...string) *prometheus.Desc) []bound {
	shard := func(name, help string, value func(ShardLevel) float64) bound {
		return bound{desc: series(name, help, "shard"), ofShard: value}
	}
	queue := func(name, help string, value func(Level) float64) bound {
		return bound{desc: series(name, help), ofQueue: value}
	}
	return []bound{
		shard("mailbox_queue_limit", "How many messages may wait or be in flight; 0 means no bound.", func(s ShardLevel) float64 { return float64(s.Capacity) }),
		shard("mailbox_queue_bytes", "Bytes of the bodies of messages that wait or are in flight.", func(s ShardLevel) float64 { return float64(s.Bytes) }),
		shard("mailbox_queue_bytes_limit", "How many bytes bodies may have; 0 means no bound.", func(s ShardLevel) float64 { return float64(s.MaxBytes) }),
		queue("mailbox_inflight_limit", "How many messages of the queue may be in flight; 0 means no bound.", func(l Level) float64 { return float64(l.MaxInFlight) }),
		queue("mailbox_queue_paused", "1 if the queue is paused: it delivers no messages.", func(l Level) float64 { return float64(l.Paused) }),
		queue("mailbox_queue_throttled", "Ready messages of groups at their limit, which wait for it.", func(l Level) float64 { return float64(l.Throttled) }),
		queue("mailbox_dlq_limit", "How many dead letters there may be; 0 means no bound.", func(l Level) float64 { return float64(l.MaxDead) }),
		queue("mailbox_dedup_keys", "Dedup keys that are remembered.", func(l Level) float64 { return float64(l.Keys) }),
		queue("mailbox_dedup_keys_limit", "How many dedup keys can be remembered; 0 means no bound.", func(l Level) float64 { return float64(l.MaxKeys) }),
		queue("mailbox_unique_keys", "Unique keys that messages hold.", func(l Level) float64 { return float64(l.Unique) }),
		queue("mailbox_unique_keys_limit", "How many unique keys messages can hold; 0 means no bound.", func(l Level) float64 { return float64(l.MaxUnique) }),
		queue("mailbox_oldest_ready_seconds", "Age of the oldest waiting message, as retention counts.", func(l Level) float64 { return l.OldestReady.Seconds() }),
		queue("mailbox_retain_ready_seconds", "How old a waiting message may get; 0 means no bound.", func(l Level) float64 { return l.MaxReadyAge.Seconds() }),
		queue("mailbox_retain_ready_messages", "How many waiting messages are kept; 0 means no bound.", func(l Level) float64 { return float64(l.MaxReady) }),
		queue("mailbox_oldest_dead_seconds", "Age of the oldest dead letter, counted from its death.", func(l Level) float64 { return l.OldestDead.Seconds() }),
		queue("mailbox_retain_dead_seconds", "How long dead letters are kept; 0 means no bound.", func(l Level) float64 { return l.MaxDeadAge.Seconds() }),
		queue("mailbox_retain_dead_messages", "How many dead letters are kept; 0 means no bound.", func(l Level) float64 { return float64(l.RetainDead) }),
	}
}

// orInvalid returns metric, or a metric that shows err to the scraper.
func orInvalid(desc *prometheus.Desc, metric prometheus.Metric, err error) prometheus.Metric {
	if err != nil {
		return prometheus.NewInvalidMetric(desc, err)
	}
	return metric
}

// A Level is how full a queue is, limit by limit. A limit of 0 means that there is
// none.
type Level struct {
	// Shards are the shards of the queue, by label; see ShardLabel. Nil means that
	// the queue was never measured.
	Shards                   []ShardLevel
	MaxInFlight              int // over all shards
	Dead, MaxDead            int
	Keys, MaxKeys            int // dedup keys
	Unique, MaxUnique        int // unique keys
	OldestReady, MaxReadyAge time.Duration
	OldestDead, MaxDeadAge   time.Duration
	MaxReady, RetainDead     int // retention limits, in messages
	Paused                   int // 1 if the queue is paused; of queues that share their series, how many are
	Throttled                int // ready messages of groups at their limit
}

// A ShardLevel is how full a shard of a queue is.
type ShardLevel struct {
	Label                    string
	Ready, Delayed, InFlight int
	Bytes                    int
	// Capacity bounds the sum of Ready, Delayed and InFlight; MaxBytes bounds Bytes.
	Capacity, MaxBytes int
}

const (
	// maxShards is how many shards have a label of their own.
	maxShards = 16
	// allShards is the shard label of queues that share their series.
	allShards = "all"
)

// ShardLabel returns the label of a shard: its number, or other from maxShards on.
func ShardLabel(shard int) string {
	if shard < maxShards {
		return strconv.Itoa(shard)
	}
	return other
}

// Add adds the figures of a shard to those with the same label.
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

// Plus adds the levels of two queues that share their series. Of ages it takes the
// greater one; retention limits are left out.
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
		sum.Unique += level.Unique
		sum.MaxUnique += level.MaxUnique
		sum.Paused += level.Paused
		sum.Throttled += level.Throttled
		sum.OldestReady = max(sum.OldestReady, level.OldestReady)
		sum.OldestDead = max(sum.OldestDead, level.OldestDead)
	}
	return sum
}

// saturation returns how full a shard is, 0 to 1, by the limit that it is nearest to.
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

// orderSeries show how far queues are from first in, first out.
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

// Reordered records by how much the deliveries of a shard were out of order. The
// gauge shows the maximum over all queues.
func (s *Set) Reordered(shard string, depth int) {
	o := &s.order
	o.mu.Lock()
	defer o.mu.Unlock()
	o.deepest[shard] = max(o.deepest[shard], depth)
	o.reorder.WithLabelValues(shard).Set(float64(o.deepest[shard]))
}
