package metrics

import "github.com/prometheus/client_golang/prometheus"

// OAP are figures of the surface that speaks OAP/1 frames.
type OAP struct {
	// Connections have shown a capability or have time to do so, and Refused were
	// closed because there were too many.
	Connections, MaxConnections int
	Refused                     int64
	// Sessions are those of producers that are remembered.
	Sessions, MaxSessions int
}

// WatchOAP shows figures, which are taken at each scrape. It is called once.
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
