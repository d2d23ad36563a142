package mailboxprom

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/deadletter"
	"github.com/mailboxmq/mailbox/internal/telemetry"
	"github.com/mailboxmq/mailbox/registry"
	"github.com/mailboxmq/mailbox/worker"
)

// defaultNamespace is the default of Options.Namespace.
const defaultNamespace = "mailbox"

// Options configure Metrics. The zero value, and nil, are the defaults.
type Options struct {
	// Namespace is what all names begin with. Empty means "mailbox".
	Namespace string
	// Labels are added to all metrics. Their values never change.
	Labels map[string]string
	// MaxQueues bounds how many queues have a label of their own, and how many loops
	// and consumers do. 0 means 200.
	MaxQueues int
}

// Metrics are the metrics of one process. Make them with New. Their methods may be
// called from many goroutines at once, and one Metrics serves any number of mailboxes,
// loops and consumers.
type Metrics struct {
	recorder *telemetry.Recorder
	watch    telemetry.Watch
}

// New makes metrics and registers them. It does no I/O. It fails if the registerer refuses
// a metric because the namespace or a label is not allowed, or because the name is taken;
// it then unregisters the metrics it has registered.
func New(registerer prometheus.Registerer, options *Options) (*Metrics, error) {
	var o Options
	if options != nil {
		o = *options
	}
	if o.Namespace == "" {
		o.Namespace = defaultNamespace
	}
	m := &Metrics{}
	s := newSink(o.Namespace, o.Labels)
	m.recorder = telemetry.NewRecorder(s, o.MaxQueues)
	m.watch.AddHandlers(m.recorder)
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

// MailboxHooks returns the hooks for mailbox.Options.Hooks. They then call those of next,
// such as the spans of another library.
func (m *Metrics) MailboxHooks(next ...mailbox.Hooks) mailbox.Hooks {
	return m.recorder.MailboxHooks(next...)
}

// WorkerHooks returns the hooks for worker.Options.Hooks. They then call those of next.
func (m *Metrics) WorkerHooks(next ...worker.Hooks) worker.Hooks {
	return m.recorder.WorkerHooks(next...)
}

// DeadLetterHooks returns the hooks for deadletter.ConsumerOptions.Hooks. They then call
// those of next.
func (m *Metrics) DeadLetterHooks(next ...deadletter.Hooks) deadletter.Hooks {
	return m.recorder.DeadLetterHooks(next...)
}

// RegistryHooks returns the hooks for registry.Options.Hooks. They then call those
// of next.
func (m *Metrics) RegistryHooks(next ...registry.Hooks) registry.Hooks {
	return m.recorder.RegistryHooks(next...)
}

// Stuck counts a stuck handler that the watchdog found. It is for
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

// Watch counts the messages of a queue whenever Prometheus scrapes, until ctx ends: ready,
// delayed, in flight and dead. Each scrape makes one Stats call with ctx, of at most five
// seconds. Watch returns at once. Watching a queue again changes nothing. One process of a
// service is enough to watch a queue; if several do, take the maximum and not the sum of
// their figures.
func (m *Metrics) Watch(ctx context.Context, queue Queue, options *WatchOptions) {
	capacity := 0
	if options != nil {
		capacity = options.Capacity
	}
	m.watch.Add(ctx, queue, m.recorder.Queue(queue.Name()), capacity)
}
