package mailboxotel

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/mailboxmq/mailbox/internal/telemetry"
)

// sink has an OpenTelemetry instrument for each instrument of package telemetry.
type sink struct {
	counters   map[*telemetry.Instrument]metric.Float64Counter
	levels     map[*telemetry.Instrument]metric.Float64UpDownCounter
	gauges     map[*telemetry.Instrument]metric.Float64Gauge
	histograms map[*telemetry.Instrument]metric.Float64Histogram
}

func newSink(meter metric.Meter, watch *telemetry.Watch) (*sink, error) {
	s := &sink{
		counters:   make(map[*telemetry.Instrument]metric.Float64Counter),
		levels:     make(map[*telemetry.Instrument]metric.Float64UpDownCounter),
		gauges:     make(map[*telemetry.Instrument]metric.Float64Gauge),
		histograms: make(map[*telemetry.Instrument]metric.Float64Histogram),
	}
	observed := make(map[*telemetry.Instrument]metric.Float64ObservableGauge)
	var looks []metric.Observable
	for _, i := range telemetry.All() {
		var err error
		name, help, unit := nameOf(i), metric.WithDescription(i.Help), metric.WithUnit(unitOf(i))
		switch i.Kind {
		case telemetry.Counter:
			s.counters[i], err = meter.Float64Counter(name, help, unit)
		case telemetry.Level:
			s.levels[i], err = meter.Float64UpDownCounter(name, help, unit)
		case telemetry.Gauge:
			s.gauges[i], err = meter.Float64Gauge(name, help, unit)
		case telemetry.Histogram:
			s.histograms[i], err = meter.Float64Histogram(name, help, unit, metric.WithExplicitBucketBoundaries(i.Buckets...))
		case telemetry.Observed:
			observed[i], err = meter.Float64ObservableGauge(name, help, unit)
			looks = append(looks, observed[i])
		}
		if err != nil {
			return nil, err
		}
	}
	_, err := meter.RegisterCallback(func(_ context.Context, observer metric.Observer) error {
		for _, f := range watch.Look() { //nolint:contextcheck // each queue is counted with the context given to Watch
			observer.ObserveFloat64(observed[f.Instrument], f.Value, labels(f.Instrument, f.Labels))
		}
		return nil
	}, looks...)
	return s, err
}

// nameOf returns the OpenTelemetry name: without the suffix that an exporter to Prometheus
// adds.
func nameOf(i *telemetry.Instrument) string {
	return "mailbox." + strings.TrimSuffix(strings.TrimSuffix(i.Name, "_total"), "_seconds")
}

// unitOf returns the unit, and none for ratios: an exporter to Prometheus would add it to
// the name.
func unitOf(i *telemetry.Instrument) string {
	if i.Unit == telemetry.Ratio {
		return ""
	}
	return string(i.Unit)
}

func labels(i *telemetry.Instrument, values []string) metric.MeasurementOption {
	pairs := make([]attribute.KeyValue, len(values))
	for n, value := range values {
		pairs[n] = attribute.String(i.Labels[n], value)
	}
	return metric.WithAttributeSet(attribute.NewSet(pairs...))
}

// Add implements telemetry.Sink.
func (s *sink) Add(ctx context.Context, i *telemetry.Instrument, n float64, values ...string) {
	if counter := s.counters[i]; counter != nil {
		counter.Add(ctx, n, labels(i, values))
		return
	}
	s.levels[i].Add(ctx, n, labels(i, values))
}

// Record implements telemetry.Sink.
func (s *sink) Record(ctx context.Context, i *telemetry.Instrument, value float64, values ...string) {
	if histogram := s.histograms[i]; histogram != nil {
		histogram.Record(ctx, value, labels(i, values))
		return
	}
	s.gauges[i].Record(ctx, value, labels(i, values))
}
