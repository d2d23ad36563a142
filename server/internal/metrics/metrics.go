// Package metrics counts what the daemon does, for Prometheus. The set of series
// is bounded: topics beyond a number share the label "other", and every other
// label has few and fixed values.
package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// MaxTopics is how many topics have a label of their own.
const MaxTopics = 200

// other is the label of the topics beyond MaxTopics.
const other = "other"

// buckets span what an answer takes from memory on the same machine to a disk
// or a server far away: 50 µs to 13 s.
var buckets = prometheus.ExponentialBuckets(50e-6, 2, 19)

// A Set is all series of one daemon. It is safe for concurrent use.
type Set struct {
	Registry *prometheus.Registry

	// Enqueue, Dequeue and Ack are how long the operations took, waiting for
	// messages included.
	Enqueue, Dequeue, Ack prometheus.Histogram
	// InFlightLimit, TopicLimit and the like are bounds; how full they are
	// stands beside them.
	InFlightLimit, TopicLimit, TopicsOpen prometheus.Gauge
	// InFlight is how many messages are out, and CapCacheEntries how many verified
	// tokens are remembered.
	InFlight, CapCacheEntries, CapCacheLimit prometheus.Gauge
	// State is that of the broker, 0 while it serves.
	State prometheus.Gauge

	rejected *prometheus.CounterVec
	refused  *prometheus.CounterVec
	sent     *prometheus.CounterVec
	repeated *prometheus.CounterVec
	handed   *prometheus.CounterVec
	settled  *prometheus.CounterVec
	died     *prometheus.CounterVec
	redriven *prometheus.CounterVec

	levels *levelSeries
	http   httpSeries
	rpc    rpcSeries
	daemon daemonSeries
	sqs    sqsSeries

	mu     sync.Mutex
	topics map[string]*Topic
	others *Topic
}

// New returns a set with a registry of its own.
func New() *Set {
	s := &Set{Registry: prometheus.NewRegistry(), topics: make(map[string]*Topic)}
	histogram := func(name, help string) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
		s.Registry.MustRegister(h)
		return h
	}
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
		s.Registry.MustRegister(g)
		return g
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		s.Registry.MustRegister(c)
		return c
	}
	s.Enqueue = histogram("enqueue_latency_seconds", "How long a send took, from authorised to answered by the backend.")
	s.Dequeue = histogram("dequeue_latency_seconds", "How long a receive took, waiting for messages included.")
	s.Ack = histogram("ack_commit_latency_seconds", "How long an ack took, from authorised to answered by the backend.")
	s.InFlightLimit = gauge("inflight_limit", "How many messages may be out at once over all topics.")
	s.TopicLimit = gauge("topics_limit", "How many topics may be open at once.")
	s.TopicsOpen = gauge("topics_open", "How many topics are open.")
	s.InFlight = gauge("inflight_messages", "How many messages are out over all topics, as far as they were received here.")
	s.CapCacheEntries = gauge("cap_cache_entries", "How many verified tokens are remembered.")
	s.CapCacheLimit = gauge("cap_cache_limit", "How many verified tokens can be remembered.")
	s.State = gauge("mailbox_state", "0 serving, 1 reads only, 2 settling only, 3 stopped.")
	s.rejected = counter("rejected_total", "Requests and messages that were refused, by reason.", "reason")
	s.refused = counter("auth_failures_total", "Capabilities that were refused, by reason.", "reason")
	s.sent = counter("mailbox_enqueued_total", "Messages that were accepted.", "topic")
	s.repeated = counter("mailbox_duplicates_total", "Sends that were repeats of an earlier one.", "topic")
	s.handed = counter("mailbox_delivered_total", "Deliveries.", "topic")
	s.settled = counter("mailbox_settled_total", "Deliveries that were settled or extended, by how.", "topic", "how")
	s.died = counter("dlq_total", "Messages that became dead letters, by reason.", "topic", "reason")
	s.redriven = counter("mailbox_dlq_reprocess_total", "Dead letters that were made ready again.", "topic")
	s.levels = newLevelSeries(s.Registry)
	s.http = newHTTPSeries(s.Registry)
	s.rpc = newRPCSeries(s.Registry)
	s.daemon = newDaemonSeries(s.Registry)
	s.sqs = newSQSSeries(s.Registry)
	s.others = s.newTopic(other)
	return s
}

// Rejected counts a refusal that is not the token's fault, or has to do with its
// quota.
func (s *Set) Rejected(reason string) { s.rejected.WithLabelValues(reason).Inc() }

// Refused counts a token that was refused, and the request with it.
func (s *Set) Refused(reason string) {
	s.refused.WithLabelValues(reason).Inc()
	if reason == "quota" {
		s.Rejected("quota")
	} else {
		s.Rejected("auth")
	}
}

// A Topic is the series of one topic, or of all those that have none.
type Topic struct {
	Label string

	set                              *Set
	sent, repeated, handed, redriven prometheus.Counter
	acked, nacked, extended          prometheus.Counter
}

// Topic returns the series of a topic. Tenants are part of the label.
func (s *Set) Topic(tenant, name string) *Topic {
	label := name
	if tenant != "" {
		label = tenant + "/" + name
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.topics[label]; known != nil {
		return known
	}
	if len(s.topics) >= MaxTopics {
		return s.others
	}
	s.topics[label] = s.newTopic(label)
	return s.topics[label]
}

func (s *Set) newTopic(label string) *Topic {
	return &Topic{
		Label: label, set: s,
		sent: s.sent.WithLabelValues(label), repeated: s.repeated.WithLabelValues(label),
		handed: s.handed.WithLabelValues(label), redriven: s.redriven.WithLabelValues(label),
		acked: s.settled.WithLabelValues(label, "ack"), nacked: s.settled.WithLabelValues(label, "nack"),
		extended: s.settled.WithLabelValues(label, "extend"),
	}
}

// Sent counts messages that were accepted, and repeats.
func (t *Topic) Sent(accepted, repeats int) {
	t.sent.Add(float64(accepted))
	if repeats > 0 {
		t.repeated.Add(float64(repeats))
	}
}

// Delivered counts deliveries.
func (t *Topic) Delivered(n int) { t.handed.Add(float64(n)) }

// Settled counts deliveries that were acked, nacked or extended.
func (t *Topic) Settled(how string, n int) {
	switch how {
	case "ack":
		t.acked.Add(float64(n))
	case "nack":
		t.nacked.Add(float64(n))
	case "extend":
		t.extended.Add(float64(n))
	}
}

// Died counts dead letters.
func (t *Topic) Died(reason string, n int) {
	t.set.died.WithLabelValues(t.Label, reason).Add(float64(n))
}

// Redriven counts dead letters that were made ready again.
func (t *Topic) Redriven(n int) { t.redriven.Add(float64(n)) }
