package metrics

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mailboxmq/mailbox/internal/share"
)

// shareSeries show what is divided among tenants, tokens and addresses.
type shareSeries struct {
	take                          []func() []share.Stats
	used, limit, owners, refusals *prometheus.Desc
}

// WatchShares shows the figures of shares, which are taken at each scrape. It is
// called once.
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
