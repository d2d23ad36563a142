package mailboxprom

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/deadletter"
	"github.com/mailboxmq/mailbox/internal/telemetry"
	"github.com/mailboxmq/mailbox/worker"
)

// Defaults of Options.
const (
	DefaultNamespace = "mailbox"
	DefaultMaxTopics = telemetry.DefaultMaxTopics
)

// Options configure Metrics. The zero value, and nil, are the defaults.
type Options struct {
	// Namespace is what all names begin with. Empty means DefaultNamespace.
	Namespace string
	// Labels are added to all metrics. Their values never change.
	Labels map[string]string
	// MaxTopics bounds how many queues are told apart, and how many loops and
	// consumers. 0 means DefaultMaxTopics.
	MaxTopics int
}

// Metrics are the metrics of one process. Make them with New. Their methods may be
// called from many goroutines at once, and one Metrics serves any number of mailboxes,
// loops and consumers.
type Metrics struct {
	recorder *telemetry.Recorder
	watch    telemetry.Watch
}

// New makes metrics and registers them. It does no I/O. Ctx is for nothing but what a
// context may carry; that it ends changes nothing.
//
// It fails if the registerer refuses one of them, because the name of a namespace or a
// label is not allowed, or because there are metrics of this name already. What it had
// registered is then taken back.
func New(ctx context.Context, registerer prometheus.Registerer, options *Options) (*Metrics, error) {
	var o Options
	if options != nil {
		o = *options
	}
	if o.Namespace == "" {
		o.Namespace = DefaultNamespace
	}
	m := &Metrics{}
	s := newSink(o.Namespace, o.Labels)
	m.recorder = telemetry.NewRecorder(ctx, s, o.MaxTopics)
	collectors := append(s.collectors(), newWatchCollector(o.Namespace, o.Labels, &m.watch))
	for i, c := range collectors {
		if err := registerer.Register(c); err != nil {
			for _, registered := range collectors[:i] {
				registerer.Unregister(registered)
			}
			return nil, fmt.Errorf("mailboxprom: %w", err)
		}
	}
	return m, nil
}

// Trace returns the hooks for mailbox.Options.Trace. They then call those of next, such
// as the spans of another library.
func (m *Metrics) Trace(next ...*mailbox.Trace) *mailbox.Trace { return m.recorder.Trace(next...) }

// Hooks returns the hooks for worker.Options.Hooks. They then call those of next.
func (m *Metrics) Hooks(next ...worker.Hooks) worker.Hooks { return m.recorder.Hooks(next...) }

// ConsumerHooks returns the hooks for deadletter.ConsumerOptions.Hooks. They then call
// those of next.
func (m *Metrics) ConsumerHooks(next ...deadletter.ConsumerHooks) deadletter.ConsumerHooks {
	return m.recorder.ConsumerHooks(next...)
}

// RegistryTrace returns the hooks for mailbox.RegistryOptions.Trace. They then call those
// of next.
func (m *Metrics) RegistryTrace(next ...*mailbox.RegistryTrace) *mailbox.RegistryTrace {
	return m.recorder.RegistryTrace(next...)
}

// Stuck counts a handler that the watchdog has found. It is for
// worker.GroupOptions.Stuck.
func (m *Metrics) Stuck(event worker.StuckEvent) { m.recorder.Stuck(event) }

// A Queue is something whose messages can be counted: a *mailbox.Mailbox of any type.
type Queue = telemetry.Queue

// WatchOptions configure Watch. The zero value, and nil, are the defaults.
type WatchOptions struct {
	// Capacity is the bound of the queue's configuration, driver.Config.MaxMessages, for
	// saturation. 0 means that there is none, and then there is no saturation either.
	Capacity int
}

// Watch has the messages of a queue counted whenever metrics are gathered, until ctx
// ends: ready, delayed, in flight and dead. That is one call of Stats each time, of five
// seconds at most, with ctx. It returns at once. A queue that is watched already stays
// as it is. One process of a service is enough to watch a queue; if several do, take the
// maximum and not the sum of their figures.
func (m *Metrics) Watch(ctx context.Context, queue Queue, options *WatchOptions) {
	capacity := 0
	if options != nil {
		capacity = options.Capacity
	}
	m.watch.Add(ctx, queue, m.recorder.Topic(queue.Name()), capacity)
}
