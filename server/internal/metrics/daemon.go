package metrics

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// daemonSeries are those of the process around the broker.
type daemonSeries struct {
	info        *prometheus.GaugeVec
	connections *prometheus.GaugeVec
	limits      *prometheus.GaugeVec
}

func newDaemonSeries(registry *prometheus.Registry) daemonSeries {
	s := daemonSeries{
		info: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "mailbox_info", Help: "1, with what the daemon is as labels.",
		}, []string{"profile", "dlq_profile", "amnesia", "plaintext"}),
		connections: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "connections", Help: "Open connections.",
		}, []string{"listener"}),
		limits: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "connections_limit", Help: "How many connections may be open.",
		}, []string{"listener"}),
	}
	registry.MustRegister(s.info, s.connections, s.limits, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return s
}

// Info says what the daemon is. plaintext means that it is reachable from other
// machines without TLS.
func (s *Set) Info(profile, deadLetters string, amnesia, plaintext bool) {
	s.daemon.info.WithLabelValues(profile, deadLetters, strconv.FormatBool(amnesia), strconv.FormatBool(plaintext)).Set(1)
}

// Connections says how many are open on a listener.
func (s *Set) Connections(listener string, n int64) {
	s.daemon.connections.WithLabelValues(listener).Set(float64(n))
}

// ConnectionLimit says how many there may be.
func (s *Set) ConnectionLimit(listener string, n int) {
	s.daemon.limits.WithLabelValues(listener).Set(float64(n))
}
