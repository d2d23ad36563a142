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
			Name: "mailbox_connections", Help: "Open connections.",
		}, []string{"listener"}),
		limits: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "mailbox_connections_limit", Help: "How many connections may be open.",
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

// watch registers a gauge whose value is taken at each scrape.
func (s *Set) watch(name, help string, value func() float64) {
	s.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value))
}

// WatchDisk shows the space of the volume that messages are on, which is taken at each
// scrape. It is called once, and only where there is such a volume.
func (s *Set) WatchDisk(take func() (total, free, reserve uint64)) {
	s.watch("mailbox_disk_bytes", "Size of the volume that messages are on.", func() float64 {
		total, _, _ := take()
		return float64(total)
	})
	s.watch("mailbox_disk_free_bytes", "Free bytes of that volume.", func() float64 {
		_, free, _ := take()
		return float64(free)
	})
	s.watch("mailbox_disk_reserve_bytes", "Free bytes below which sends are refused; 0 means no reserve.", func() float64 {
		_, _, reserve := take()
		return float64(reserve)
	})
}

// WatchRevocations shows how many revocations are kept, counted at each scrape, and how
// many can be. It is called once.
func (s *Set) WatchRevocations(count func() int, limit int) {
	s.watch("mailbox_revocations", "Revocations of tokens that are kept.", func() float64 { return float64(count()) })
	s.watch("mailbox_revocations_limit", "How many revocations of tokens can be kept.", func() float64 { return float64(limit) })
}

// WatchAudit shows the fill of the audit log, which is taken at each scrape: bytes of one
// on disk, records of one in memory. It is called once.
func (s *Set) WatchAudit(take func() (used, limit int64, failures uint64)) {
	s.watch("mailbox_audit_used", "Fill of the audit log: bytes on disk, records in memory.", func() float64 {
		used, _, _ := take()
		return float64(used)
	})
	s.watch("mailbox_audit_limit", "Fill at which the oldest half of the audit log is dropped.", func() float64 {
		_, limit, _ := take()
		return float64(limit)
	})
	s.Registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "mailbox_audit_failures_total", Help: "Records that the audit log could not take.",
	}, func() float64 {
		_, _, failures := take()
		return float64(failures)
	}))
}

// Connections says how many are open on a listener.
func (s *Set) Connections(listener string, n int64) {
	s.daemon.connections.WithLabelValues(listener).Set(float64(n))
}

// ConnectionLimit says how many there may be.
func (s *Set) ConnectionLimit(listener string, n int) {
	s.daemon.limits.WithLabelValues(listener).Set(float64(n))
}
