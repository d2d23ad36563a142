package mailboxotel

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/deadletter"
	"github.com/mailboxmq/mailbox/internal/telemetry"
	"github.com/mailboxmq/mailbox/worker"
)

// scope is the name under which spans and metrics are made.
const scope = "github.com/mailboxmq/mailbox/mailboxotel"

// Defaults of Options.
const (
	DefaultMaxTopics = telemetry.DefaultMaxTopics
	DefaultMaxHeld   = 10_000
)

// Options configure Telemetry. The zero value, and nil, are the defaults.
type Options struct {
	// TracerProvider makes spans, and MeterProvider instruments. Nil means those that
	// the program has made global with package otel.
	TracerProvider trace.TracerProvider
	MeterProvider  metric.MeterProvider
	// Propagator writes the context of a span into the attributes of a message, and
	// reads it there. Nil means propagation.TraceContext, which needs two attributes:
	// SQS allows ten in all.
	Propagator propagation.TextMapPropagator
	// MaxTopics bounds how many queues metrics tell apart, and how many loops and
	// consumers. 0 means DefaultMaxTopics.
	MaxTopics int
	// MaxHeld bounds how many deliveries are remembered so that settling them is part of
	// their trace; the oldest is forgotten, and then settling it is a trace of its own. 0
	// means DefaultMaxHeld.
	MaxHeld int
}

// Telemetry makes the spans and metrics of one process. Make it with New. Its methods may
// be called from many goroutines at once, and one Telemetry serves any number of
// mailboxes, loops and consumers.
type Telemetry struct {
	recorder *telemetry.Recorder
	watch    telemetry.Watch
	spans    *spans
}

// New makes instruments and returns what fills the hooks. It does no I/O. Ctx goes with
// measurements of hooks that have no context of their own, and may carry baggage; that
// it ends changes nothing. It fails if the meter provider refuses an instrument.
func New(ctx context.Context, options *Options) (*Telemetry, error) {
	var o Options
	if options != nil {
		o = *options
	}
	if o.TracerProvider == nil {
		o.TracerProvider = otel.GetTracerProvider()
	}
	if o.MeterProvider == nil {
		o.MeterProvider = otel.GetMeterProvider()
	}
	if o.Propagator == nil {
		o.Propagator = propagation.TraceContext{}
	}
	if o.MaxHeld <= 0 {
		o.MaxHeld = DefaultMaxHeld
	}
	t := &Telemetry{spans: &spans{
		tracer: o.TracerProvider.Tracer(scope), propagator: o.Propagator, origins: newOrigins(o.MaxHeld),
	}}
	s, err := newSink(o.MeterProvider.Meter(scope), &t.watch)
	if err != nil {
		return nil, fmt.Errorf("mailboxotel: %w", err)
	}
	t.recorder = telemetry.NewRecorder(ctx, s, o.MaxTopics)
	return t, nil
}

// Trace returns the hooks for mailbox.Options.Trace: metrics and spans. They then call
// those of next.
func (t *Telemetry) Trace(next ...*mailbox.Trace) *mailbox.Trace {
	// Spans end after measurements were made, so that these can refer to them.
	return t.recorder.Trace(append([]*mailbox.Trace{t.spans.trace()}, next...)...)
}

// Hooks returns the hooks for worker.Options.Hooks, for metrics. They then call those of
// next. For spans there is Middleware.
func (t *Telemetry) Hooks(next ...worker.Hooks) worker.Hooks { return t.recorder.Hooks(next...) }

// ConsumerHooks returns the hooks for deadletter.ConsumerOptions.Hooks. They then call
// those of next.
func (t *Telemetry) ConsumerHooks(next ...deadletter.ConsumerHooks) deadletter.ConsumerHooks {
	return t.recorder.ConsumerHooks(next...)
}

// RegistryTrace returns the hooks for mailbox.RegistryOptions.Trace. They then call those
// of next.
func (t *Telemetry) RegistryTrace(next ...*mailbox.RegistryTrace) *mailbox.RegistryTrace {
	return t.recorder.RegistryTrace(next...)
}

// Stuck counts a handler that the watchdog has found. It is for
// worker.GroupOptions.Stuck.
func (t *Telemetry) Stuck(event worker.StuckEvent) { t.recorder.Stuck(event) }

// A Queue is something whose messages can be counted: a *mailbox.Mailbox of any type.
type Queue = telemetry.Queue

// WatchOptions configure Watch. The zero value, and nil, are the defaults.
type WatchOptions struct {
	// Capacity is the bound of the queue's configuration, driver.Config.MaxMessages, for
	// saturation. 0 means that there is none, and then there is no saturation either.
	Capacity int
}

// Watch has the messages of a queue counted whenever metrics are collected, until ctx
// ends: ready, delayed, in flight and dead. That is one call of Stats each time, of five
// seconds at most, with ctx. It returns at once. A queue that is watched already stays as
// it is. One process of a service is enough to watch a queue.
func (t *Telemetry) Watch(ctx context.Context, queue Queue, options *WatchOptions) {
	capacity := 0
	if options != nil {
		capacity = options.Capacity
	}
	t.watch.Add(ctx, queue, t.recorder.Topic(queue.Name()), capacity)
}
