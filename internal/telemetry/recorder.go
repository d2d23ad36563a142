package telemetry

import (
	"context"
	"errors"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/registry"
)

// A Sink writes to a metrics library. Its methods are called from many goroutines at once
// and must not block. values are the values of the instrument's labels.
type Sink interface {
	// Add adds to a Counter or a Level.
	Add(ctx context.Context, i *Instrument, n float64, values ...string)
	// Record sets a Gauge, or adds an observation to a Histogram.
	Record(ctx context.Context, i *Instrument, value float64, values ...string)
}

// A Recorder turns hook calls into measurements. Make one with NewRecorder. It is safe
// for concurrent use.
type Recorder struct {
	sink    Sink
	base    context.Context // for hooks without a context
	queues  names
	members names // loops and consumers
	reports reports
}

// NewRecorder returns a recorder with at most maxQueues distinct queue labels, and as many
// labels for loops and consumers; 0 means DefaultMaxQueues.
func NewRecorder(sink Sink, maxQueues int) *Recorder {
	if maxQueues <= 0 {
		maxQueues = DefaultMaxQueues
	}
	r := &Recorder{sink: sink, base: context.Background()} // some hooks have no context to pass on
	r.queues.most, r.members.most = int64(maxQueues), int64(maxQueues)
	return r
}

// Queue returns the label for a queue: its name, or Other.
func (r *Recorder) Queue(queue string) string { return r.queues.bound(queue) }

// MailboxHooks returns hooks for mailboxes, which then call next.
func (r *Recorder) MailboxHooks(next ...mailbox.Hooks) mailbox.Hooks {
	return joinMailboxHooks(append([]mailbox.Hooks{{
		Sent: r.sent, Polled: r.polled, Received: r.received, Poisoned: r.poisoned,
		Settled: r.settled, Extended: r.extended, Replied: r.replied,
	}}, next...)...)
}

func (r *Recorder) sent(ctx context.Context, event mailbox.SentEvent) {
	queue := r.Queue(event.Queue)
	r.seconds(ctx, EnqueueLatency, event.Duration, queue)
	sent, repeated := 0, 0
	rejected := make(map[string]int)
	for i := range event.Messages {
		switch err := mailbox.ErrorAt(event.Err, i); {
		case err != nil:
			rejected[reason(err)]++
		case i < len(event.Results) && event.Results[i].Duplicate:
			repeated++
		default:
			sent++
		}
	}
	r.count(ctx, Enqueued, sent, queue)
	r.count(ctx, Deduplicated, repeated, queue)
	for why, n := range rejected {
		r.count(ctx, Rejected, n, queue, why)
	}
}

func (r *Recorder) polled(ctx context.Context, event mailbox.PolledEvent) {
	queue := r.Queue(event.Queue)
	switch {
	case event.Deliveries > 0:
		r.seconds(ctx, DequeueLatency, event.Duration, queue)
		r.count(ctx, Received, 1, queue, "messages")
	case event.Err == nil || ctx.Err() != nil: // a receiver that stops waiting has not failed
		r.count(ctx, Received, 1, queue, "empty")
	default:
		r.count(ctx, Received, 1, queue, "failed")
	}
}

func (r *Recorder) received(ctx context.Context, queue string, delivery *driver.Delivery) {
	queue = r.Queue(queue)
	r.count(ctx, Delivered, 1, queue)
	if delivery.Deliveries > 1 {
		r.count(ctx, Redelivered, 1, queue)
		return
	}
	// The clocks of two machines may differ; the wait is never negative.
	r.seconds(ctx, Waited, max(time.Since(delivery.EnqueuedAt), 0), queue)
}

func (r *Recorder) poisoned(ctx context.Context, event mailbox.PoisonedEvent) {
	queue := r.Queue(event.Queue)
	r.count(ctx, Poisoned, 1, queue)
	if event.Err == nil && event.Disposition.Action == mailbox.PoisonDeadLetter {
		r.count(ctx, DeadLettered, 1, queue, string(mailbox.ReasonParse))
	}
}

func (r *Recorder) settled(ctx context.Context, event mailbox.SettledEvent) {
	queue := r.Queue(event.Queue)
	if event.Err != nil {
		r.count(ctx, SettleFailed, 1, queue, reason(event.Err))
		r.lost(ctx, queue, event.Err)
		return
	}
	outcome := string(event.Outcome)
	r.count(ctx, Settled, 1, queue, outcome)
	r.seconds(ctx, AckLatency, event.Duration, queue, outcome)
	r.seconds(ctx, Held, event.Held, queue)
	if event.Outcome == mailbox.OutcomeAck || event.Outcome == mailbox.OutcomeDeadLetter {
		r.sink.Record(ctx, DeliveriesPer, float64(event.Deliveries), queue)
	}
	if event.Outcome == mailbox.OutcomeDeadLetter {
		r.count(ctx, DeadLettered, 1, queue, string(event.Reason))
	}
}

func (r *Recorder) extended(ctx context.Context, event mailbox.ExtendedEvent) {
	queue := r.Queue(event.Queue)
	if event.Err != nil {
		r.lost(ctx, queue, event.Err)
		return
	}
	r.count(ctx, Extended, 1, queue)
}

// lost counts a delivery whose lease had ended.
func (r *Recorder) lost(ctx context.Context, queue string, err error) {
	if errors.Is(err, mailbox.ErrReceiptExpired) {
		r.count(ctx, VisibilityTimeouts, 1, queue)
	}
}

func (r *Recorder) replied(ctx context.Context, event mailbox.RepliedEvent) {
	queue := r.Queue(event.Queue)
	result := "answer"
	switch {
	case event.Err != nil:
		result = "failed"
	case event.Failure != nil:
		result = "error"
	}
	r.count(ctx, Replied, 1, queue, result)
	r.seconds(ctx, ReplyLatency, event.Duration, queue)
}

// RegistryHooks returns hooks for registries, which then call next. Identifiers are not
// used as labels: their number has no limit.
func (r *Recorder) RegistryHooks(next ...registry.Hooks) registry.Hooks {
	return joinRegistryHooks(append([]registry.Hooks{{
		Resolved: r.resolved, Opened: r.opened, Evicted: r.evicted,
	}}, next...)...)
}

func (r *Recorder) resolved(ctx context.Context, event registry.ResolvedEvent) {
	source := string(event.Source)
	if event.Err != nil || source == "" {
		source = "failed"
	}
	r.count(ctx, Resolved, 1, source)
	r.seconds(ctx, ResolveLatency, event.Duration)
}

func (r *Recorder) opened(ctx context.Context, event registry.OpenedEvent) {
	result := "ok"
	if event.Err != nil {
		result = "failed"
	}
	r.count(ctx, ResolverOpened, 1, result)
}

func (r *Recorder) evicted(event registry.EvictedEvent) {
	r.count(r.base, Evicted, 1, string(event.Reason))
}

// count adds n to a counter unless n is 0.
func (r *Recorder) count(ctx context.Context, i *Instrument, n int, values ...string) {
	if n > 0 {
		r.sink.Add(ctx, i, float64(n), values...)
	}
}

func (r *Recorder) seconds(ctx context.Context, i *Instrument, d time.Duration, values ...string) {
	r.sink.Record(ctx, i, d.Seconds(), values...)
}
