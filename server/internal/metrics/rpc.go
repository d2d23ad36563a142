package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// rpcSeries are those of gRPC and Connect. Methods are those of the service.
type rpcSeries struct {
	calls   *prometheus.CounterVec
	latency *prometheus.HistogramVec
}

func newRPCSeries(registry *prometheus.Registry) rpcSeries {
	s := rpcSeries{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mailbox_rpc_requests_total", Help: "Calls by method and code.",
		}, []string{"method", "code"}),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "mailbox_rpc_request_latency_seconds", Help: "How long calls took, streams and waiting for messages included.", Buckets: buckets,
		}, []string{"method"}),
	}
	registry.MustRegister(s.calls, s.latency)
	return s
}

// RPC counts a call that was answered. code is "ok" or one of the codes of gRPC.
func (s *Set) RPC(method, code string, took time.Duration) {
	s.rpc.calls.WithLabelValues(method, code).Inc()
	s.rpc.latency.WithLabelValues(method).Observe(took.Seconds())
}
