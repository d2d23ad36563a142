// Package metrics exports the figures of the daemon to Prometheus. The number of
// series is bounded: queues beyond MaxQueues share the label "other", and every other
// label has few and fixed values. Names begin with mailbox_. Series that
// package mailboxprom has too have the same name and labels there. docs/metrics.md
// lists all series.
package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
)

// buckets span 50 µs to 13 s: from a reply out of memory on the same machine to one
// from a disk or a distant server.
var buckets = prometheus.ExponentialBuckets(50e-6, 2, 19)

// A Set holds all series of one daemon. It is safe for concurrent use.
type Set struct {
	Registry *prometheus.Registry

	// Enqueue, Dequeue and Ack are how long the operations took, waiting for
	// messages included.
	Enqueue, Dequeue, Ack prometheus.Histogram
	// InFlightLimit and QueueLimit are limits; QueuesOpen and InFlight are their use.
	InFlightLimit, QueueLimit, QueuesOpen prometheus.Gauge
	// InFlight is how many messages are in flight, and CapCacheEntries how many
	// verified tokens are cached.
	InFlight, CapCacheEntries, CapCacheLimit prometheus.Gauge
	// Watches is how many clients watch queues.
	Watches prometheus.Gauge
	// State is the state of the broker; 0 while it serves.
	State prometheus.Gauge

	rejected *prometheus.CounterVec
	refused  *prometheus.CounterVec
	replies  *prometheus.CounterVec

	queues queueSeries
	order  orderSeries
	http   httpSeries
	rpc    rpcSeries
	daemon daemonSeries
	sqs    sqsSeries
}

// New returns a set with a registry of its own.
func New() *Set {
	s := &Set{Registry: prometheus.NewRegistry()}
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
	reasons := func(name, help string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"reason"})
		s.Registry.MustRegister(c)
		return c
	}
	s.Enqueue = histogram("mailbox_enqueue_latency_seconds", "How long a send took, from authorised to answered by the backend.")
	s.Dequeue = histogram("mailbox_dequeue_latency_seconds", "How long a receive took, waiting for messages included.")
	s.Ack = histogram("mailbox_ack_commit_latency_seconds", "How long an ack took, from authorised to answered by the backend.")
	s.InFlightLimit = gauge("mailbox_inflight_messages_limit", "How many messages may be in flight at once, over all queues.")
	s.QueueLimit = gauge("mailbox_queues_open_limit", "How many queues may be open at once.")
	s.QueuesOpen = gauge("mailbox_queues_open", "Queues that are open.")
	s.InFlight = gauge("mailbox_inflight_messages", "Messages in flight over all queues, as far as they were received from this daemon.")
	s.CapCacheEntries = gauge("mailbox_token_cache_entries", "Verified tokens that are remembered.")
	s.CapCacheLimit = gauge("mailbox_token_cache_entries_limit", "How many verified tokens can be remembered.")
	s.Watches = gauge("mailbox_watches", "Streams of figures that clients watch queues with.")
	s.State = gauge("mailbox_state", "0 serving, 1 serving and about to drain, 2 reads only, 3 settling only, 4 stopped.")
	s.rejected = reasons("mailbox_rejected_total", "Requests and messages that were refused, by reason.")
	for _, reason := range []string{"saturated", "degraded"} { // a rate sees the first only after a 0
		s.rejected.WithLabelValues(reason)
	}
	s.refused = reasons("mailbox_auth_failures_total", "Tokens that were refused, by reason.")
	s.replies = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "mailbox_replies_total", Help: "Reply slots that were created, answered and cancelled, by event.",
	}, []string{"event"})
	s.Registry.MustRegister(s.replies)
	for _, event := range []string{"created", "answered", "cancelled"} { // a rate sees the first only after a 0
		s.replies.WithLabelValues(event)
	}
	s.queues.init(s.Registry)
	s.order.init(s.Registry)
	s.http = newHTTPSeries(s.Registry)
	s.rpc = newRPCSeries(s.Registry)
	s.daemon = newDaemonSeries(s.Registry)
	s.sqs = newSQSSeries(s.Registry)
	return s
}

// Rejected counts a refused request or message. Refused tokens are counted with
// Refused.
func (s *Set) Rejected(reason string) { s.rejected.WithLabelValues(reason).Inc() }

// Refused counts a refused token, and its request as rejected.
func (s *Set) Refused(reason string) {
	s.refused.WithLabelValues(reason).Inc()
	if reason == "quota" {
		s.Rejected("quota")
	} else {
		s.Rejected("auth")
	}
}

// Reply counts what became of a reply slot.
func (s *Set) Reply(event string) { s.replies.WithLabelValues(event).Inc() }
