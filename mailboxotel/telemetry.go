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
	"github.com/mailboxmq/mailbox/registry"
	"github.com/mailboxmq/mailbox/worker"
)

// scope is the instrumentation scope of spans and metrics.
const scope = "github.com/mailboxmq/mailbox/mailboxotel"

// defaultMaxHeld is the default of Options.MaxHeld.
const defaultMaxHeld = 10_000

// Options configure Telemetry. The zero value, and nil, are the defaults.
type Options struct {
	// TracerProvider makes spans, and MeterProvider instruments. Nil means the global
	// ones of package otel.
	TracerProvider trace.TracerProvider
	MeterProvider  metric.MeterProvider
	// Propagator writes the context of a span into the attributes of a message, and
	// reads it there. Nil means propagation.TraceContext, which needs two attributes:
	// SQS allows ten in all.
	Propagator propagation.TextMapPropagator
	// MaxQueues bounds how many queues have a label of their own, and how many loops
	// and consumers do. 0 means 200.
	MaxQueues int
	// MaxHeld bounds how many deliveries are remembered, so that settling them belongs to
	// their trace. Beyond it the oldest is forgotten, and settling that one starts a trace
	// of its own. 0 means 10,000.
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

// New makes the instruments. It does no I/O. It fails if the meter provider refuses an
// instrument.
func New(options *Options) (*Telemetry, error) {
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
		o.MaxHeld = defaultMaxHeld
	}
	t := &Telemetry{spans: &spans{
		tracer: o.TracerProvider.Tracer(scope), propagator: o.Propagator, origins: newOrigins(o.MaxHeld),
	}}
	s, err := newSink(o.MeterProvider.Meter(scope), &t.watch)
	if err != nil {
		return nil, fmt.Errorf("mailboxotel: %w", err)
	}
	t.recorder = telemetry.NewRecorder(s, o.MaxQueues)
	t.watch.AddHandlers(t.recorder)
	return t, nil
}

// MailboxHooks returns the hooks for mailbox.Options.Hooks: metrics and spans. They then call
// those of next.
func (t *Telemetry) MailboxHooks(next ...mailbox.Hooks) mailbox.Hooks {
	// Spans end after the measurements, so that a measurement can refer to its span.
	return t.recorder.MailboxHooks(append([]mailbox.Hooks{t.spans.hooks()}, next...)...)
}

// WorkerHooks returns the hooks for worker.Options.Hooks: metrics, and the progress of
// handlers as events of their spans, which Middleware makes. They then call those of next.
func (t *Telemetry) WorkerHooks(next ...worker.Hooks) worker.Hooks {
	return t.recorder.WorkerHooks(append([]worker.Hooks{{Progress: progress}}, next...)...)
}

// DeadLetterHooks returns the hooks for deadletter.ConsumerOptions.Hooks. They then call
// those of next.
func (t *Telemetry) DeadLetterHooks(next ...deadletter.Hooks) deadletter.Hooks {
	return t.recorder.DeadLetterHooks(next...)
}

// RegistryHooks returns the hooks for registry.Options.Hooks. They then call those
// of next.
func (t *Telemetry) RegistryHooks(next ...registry.Hooks) registry.Hooks {
	return t.recorder.RegistryHooks(next...)
}

// Stuck counts a stuck handler that the watchdog found. It is for
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

// Watch counts the messages of a queue whenever metrics are collected, until ctx ends:
// ready, delayed, in flight and dead. Each collection makes one Stats call with ctx, of at
// most five seconds. Watch returns at once. Watching a queue again changes nothing. One
// process of a service is enough to watch a queue.
func (t *Telemetry) Watch(ctx context.Context, queue Queue, options *WatchOptions) {
	capacity := 0
	if options != nil {
		capacity = options.Capacity
	}
	t.watch.Add(ctx, queue, t.recorder.Queue(queue.Name()), capacity)
}
