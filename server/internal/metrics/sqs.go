package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// sqsSeries are those of the SQS surface. Actions are those that there are.
type sqsSeries struct {
	requests *prometheus.CounterVec
	latency  *prometheus.HistogramVec
	unsigned prometheus.Gauge
}

func newSQSSeries(registry *prometheus.Registry) sqsSeries {
	s := sqsSeries{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mailbox_sqs_requests_total", Help: "Requests of clients of SQS, by action and error code; no code for those that worked.",
		}, []string{"action", "code"}),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "mailbox_sqs_request_latency_seconds", Help: "How long requests of clients of SQS took, waiting for messages included.", Buckets: buckets,
		}, []string{"action"}),
		unsigned: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "mailbox_sqs_unsigned", Help: "1 if the SQS listener believes requests that nobody signed.",
		}),
	}
	registry.MustRegister(s.requests, s.latency, s.unsigned)
	return s
}

// SQSRequest counts a request of a client of SQS that was answered.
func (s *Set) SQSRequest(action, code string, took time.Duration) {
	s.sqs.requests.WithLabelValues(action, code).Inc()
	s.sqs.latency.WithLabelValues(action).Observe(took.Seconds())
}

// SQSUnsigned says whether requests that nobody signed are believed.
func (s *Set) SQSUnsigned(believed bool) {
	s.sqs.unsigned.Set(0)
	if believed {
		s.sqs.unsigned.Set(1)
	}
}
