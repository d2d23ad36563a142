package metrics

import (
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/mailboxmq/mailbox/internal/share"
)

// daemonSeries are the series of the process around the broker.
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

// Info sets the labels that describe the daemon. plaintext means that other machines
// can reach it without TLS.
func (s *Set) Info(profile, deadLetters string, amnesia, plaintext bool) {
	s.daemon.info.WithLabelValues(profile, deadLetters, strconv.FormatBool(amnesia), strconv.FormatBool(plaintext)).Set(1)
}

// watch registers a gauge that calls value at each scrape.
func (s *Set) watch(name, help string, value func() float64) {
	s.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value))
}

// WatchDisk exports the space of the volume that holds the messages. It calls take at
// each scrape. Call it once, and only if there is such a volume.
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

// WatchRevocations exports how many revocations are kept, counted at each scrape, and
// their limit. Call it once.
func (s *Set) WatchRevocations(count func() int, limit int) {
	s.watch("mailbox_revocations", "Revocations of tokens that are kept.", func() float64 { return float64(count()) })
	s.watch("mailbox_revocations_limit", "How many revocations of tokens can be kept.", func() float64 { return float64(limit) })
}

// WatchAudit exports the size of the audit log: bytes of a log on disk, records of a log
// in memory. It calls take at each scrape. Call it once.
func (s *Set) WatchAudit(take func() (used, limit int64, failures uint64)) {
	s.watch("mailbox_audit_used", "Fill of the audit log: bytes on disk or in the shared backend, records in memory.", func() float64 {
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

// Connections sets how many connections are open on a listener.
func (s *Set) Connections(listener string, n int64) {
	s.daemon.connections.WithLabelValues(listener).Set(float64(n))
}

// ConnectionLimit sets how many connections a listener may have.
func (s *Set) ConnectionLimit(listener string, n int) {
	s.daemon.limits.WithLabelValues(listener).Set(float64(n))
}

// shareSeries collects the figures of resources that tenants, tokens and addresses
// share.
type shareSeries struct {
	take                          []func() []share.Stats
	used, limit, owners, refusals *prometheus.Desc
}

// WatchShares exports the figures of shared resources. It calls take at each scrape.
// Call it once.
func (s *Set) WatchShares(take ...func() []share.Stats) {
	series := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("mailbox_share_"+name, help, []string{"share"}, nil)
	}
	s.Registry.MustRegister(&shareSeries{
		take:     take,
		used:     series("used", "Units in use of what is divided among tenants, tokens and addresses."),
		limit:    series("limit", "Units that there are."),
		owners:   series("owners", "Tenants, or addresses, that use some."),
		refusals: series("refusals_total", "Requests that were refused because a share was used up."),
	})
}

// Describe implements prometheus.Collector.
func (s *shareSeries) Describe(descs chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{s.used, s.limit, s.owners, s.refusals} {
		descs <- desc
	}
}

// Collect implements prometheus.Collector.
func (s *shareSeries) Collect(metrics chan<- prometheus.Metric) {
	var all []share.Stats
	for _, take := range s.take {
		all = append(all, take()...)
	}
	for _, stats := range all {
		label := strings.NewReplacer(" ", "_", "-", "_").Replace(stats.Resource)
		gauge := func(desc *prometheus.Desc, value float64) {
			metrics <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, label)
		}
		gauge(s.used, float64(stats.Used))
		gauge(s.limit, float64(stats.Limit))
		gauge(s.owners, float64(stats.Owners))
		metrics <- prometheus.MustNewConstMetric(s.refusals, prometheus.CounterValue, float64(stats.Refusals), label)
	}
}
