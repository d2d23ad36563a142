package mailboxprom

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mailboxmq/mailbox/internal/telemetry"
)

// sink has a Prometheus metric for each instrument.
type sink struct {
	counters   map[*telemetry.Instrument]*prometheus.CounterVec
	gauges     map[*telemetry.Instrument]*prometheus.GaugeVec
	histograms map[*telemetry.Instrument]*prometheus.HistogramVec
}

func newSink(namespace string, labels prometheus.Labels) *sink {
	s := &sink{
		counters:   make(map[*telemetry.Instrument]*prometheus.CounterVec),
		gauges:     make(map[*telemetry.Instrument]*prometheus.GaugeVec),
		histograms: make(map[*telemetry.Instrument]*prometheus.HistogramVec),
	}
	for _, i := range telemetry.All() {
		switch i.Kind {
		case telemetry.Counter:
			s.counters[i] = prometheus.NewCounterVec(prometheus.CounterOpts{
				Namespace: namespace, Name: i.Name, Help: i.Help, ConstLabels: labels,
			}, i.Labels)
		case telemetry.Level, telemetry.Gauge:
			s.gauges[i] = prometheus.NewGaugeVec(prometheus.GaugeOpts{
				Namespace: namespace, Name: i.Name, Help: i.Help, ConstLabels: labels,
			}, i.Labels)
		case telemetry.Histogram:
			s.histograms[i] = prometheus.NewHistogramVec(prometheus.HistogramOpts{
				Namespace: namespace, Name: i.Name, Help: i.Help, ConstLabels: labels, Buckets: i.Buckets,
			}, i.Labels)
		case telemetry.Observed: // see watchCollector
		}
	}
	return s
}

func (s *sink) collectors() []prometheus.Collector {
	var all []prometheus.Collector
	for _, c := range s.counters {
		all = append(all, c)
	}
	for _, g := range s.gauges {
		all = append(all, g)
	}
	for _, h := range s.histograms {
		all = append(all, h)
	}
	return all
}

// Add implements telemetry.Sink.
func (s *sink) Add(_ context.Context, i *telemetry.Instrument, n float64, values ...string) {
	if counter := s.counters[i]; counter != nil {
		counter.WithLabelValues(values...).Add(n)
		return
	}
	s.gauges[i].WithLabelValues(values...).Add(n)
}

// Record implements telemetry.Sink.
func (s *sink) Record(_ context.Context, i *telemetry.Instrument, value float64, values ...string) {
	if histogram := s.histograms[i]; histogram != nil {
		histogram.WithLabelValues(values...).Observe(value)
		return
	}
	s.gauges[i].WithLabelValues(values...).Set(value)
}

// watchCollector counts the messages of watched queues at each scrape.
type watchCollector struct {
	watch        *telemetry.Watch
	descriptions map[*telemetry.Instrument]*prometheus.Desc
}

func newWatchCollector(namespace string, labels prometheus.Labels, watch *telemetry.Watch) *watchCollector {
	c := &watchCollector{watch: watch, descriptions: make(map[*telemetry.Instrument]*prometheus.Desc)}
	for _, i := range telemetry.All() {
		if i.Kind == telemetry.Observed {
			c.descriptions[i] = prometheus.NewDesc(prometheus.BuildFQName(namespace, "", i.Name), i.Help, i.Labels, labels)
		}
	}
	return c
}

// Describe implements prometheus.Collector.
func (c *watchCollector) Describe(descriptions chan<- *prometheus.Desc) {
	for _, d := range c.descriptions {
		descriptions <- d
	}
}

// Collect implements prometheus.Collector.
func (c *watchCollector) Collect(metrics chan<- prometheus.Metric) {
	for _, f := range c.watch.Look() {
		metrics <- prometheus.MustNewConstMetric(c.descriptions[f.Instrument], prometheus.GaugeValue, f.Value, f.Labels...)
	}
}
