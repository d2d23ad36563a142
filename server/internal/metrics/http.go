package metrics

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// httpSeries are those of the HTTP surface. Routes are patterns, not paths.
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

// HTTPRequest counts a request that was answered.
func (s *Set) HTTPRequest(route string, status int, took time.Duration) {
	s.http.requests.WithLabelValues(route, strconv.Itoa(status)).Inc()
	s.http.latency.WithLabelValues(route).Observe(took.Seconds())
}
