package metrics

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// httpSeries are the series of the HTTP surface. Routes are patterns, not paths.
type httpSeries struct {
	requests *prometheus.CounterVec
	latency  *prometheus.HistogramVec
}

func newHTTPSeries(registry *prometheus.Registry) httpSeries {
	s := httpSeries{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mailbox_http_requests_total", Help: "Requests by route and status.",
		}, []string{"route", "status"}),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "mailbox_http_request_latency_seconds", Help: "How long requests took, waiting for messages included.", Buckets: buckets,
		}, []string{"route"}),
	}
	registry.MustRegister(s.requests, s.latency)
	return s
}

// HTTPRequest counts an answered request.
func (s *Set) HTTPRequest(route string, status int, took time.Duration) {
	s.http.requests.WithLabelValues(route, strconv.Itoa(status)).Inc()
	s.http.latency.WithLabelValues(route).Observe(took.Seconds())
}

// rpcSeries are the series of gRPC and Connect. Methods are those of the service.
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

// RPC counts an answered call. code is "ok" or a gRPC code.
func (s *Set) RPC(method, code string, took time.Duration) {
	s.rpc.calls.WithLabelValues(method, code).Inc()
	s.rpc.latency.WithLabelValues(method).Observe(took.Seconds())
}

// sqsSeries are the series of the SQS surface. Only known actions are labels.
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
			Name: "mailbox_sqs_unsigned", Help: "1 if the SQS listener accepts unsigned requests.",
		}),
	}
	registry.MustRegister(s.requests, s.latency, s.unsigned)
	return s
}

// SQSRequest counts an answered SQS request.
func (s *Set) SQSRequest(action, code string, took time.Duration) {
	s.sqs.requests.WithLabelValues(action, code).Inc()
	s.sqs.latency.WithLabelValues(action).Observe(took.Seconds())
}

// SQSUnsigned sets whether unsigned requests are accepted.
func (s *Set) SQSUnsigned(accepted bool) {
	s.sqs.unsigned.Set(0)
	if accepted {
		s.sqs.unsigned.Set(1)
	}
}

// OAP holds the figures of the surface that speaks OAP/1 frames.
type OAP struct {
	// Connections are open and authenticated, or may still authenticate. Refused were
	// closed because of MaxConnections.
	Connections, MaxConnections int
	Refused                     int64
	// Sessions are the producer sessions that are remembered.
	Sessions, MaxSessions int
}

// WatchOAP exports the figures of OAP/1. It calls take at each scrape. Call it once.
func (s *Set) WatchOAP(take func() OAP) {
	gauge := func(name, help string, value func(OAP) float64) {
		s.watch(name, help, func() float64 { return value(take()) })
	}
	gauge("mailbox_oap_connections", "Connections of OAP/1.", func(o OAP) float64 { return float64(o.Connections) })
	gauge("mailbox_oap_connections_limit", "How many connections of OAP/1 there may be.", func(o OAP) float64 { return float64(o.MaxConnections) })
	gauge("mailbox_oap_sessions", "Producer sessions that are remembered.", func(o OAP) float64 { return float64(o.Sessions) })
	gauge("mailbox_oap_sessions_limit", "How many producer sessions can be remembered.", func(o OAP) float64 { return float64(o.MaxSessions) })
	s.Registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "mailbox_oap_refused_total", Help: "Connections of OAP/1 that were closed because there were too many.",
	}, func() float64 { return float64(take().Refused) }))
}
