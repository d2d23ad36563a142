package telemetry

import (
	"context"
	"errors"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/driver"
)

// A Sink is a metrics library. Its methods are called from many goroutines at once, and
// must not block. Values are those of the instrument's labels.
type Sink interface {
	// Add adds to a Counter or a Level.
	Add(ctx context.Context, i *Instrument, n float64, values ...string)
	// Record sets a Gauge, or adds an observation to a Histogram.
	Record(ctx context.Context, i *Instrument, value float64, values ...string)
}

// A Recorder makes measurements of what hooks tell. Make one with NewRecorder. It is
// safe for concurrent use.
type Recorder struct {
	sink    Sink
	base    context.Context // for hooks that bring none
	topics  names
	members names // loops and consumers
}

// NewRecorder returns a recorder that tells apart so many topics, and as many loops and
// consumers; 0 means DefaultMaxTopics. Ctx goes with measurements of hooks that have no
// context of their own; that it ends changes nothing.
func NewRecorder(ctx context.Context, sink Sink, maxTopics int) *Recorder {
	if maxTopics <= 0 {
		maxTopics = DefaultMaxTopics
	}
	r := &Recorder{sink: sink, base: context.WithoutCancel(ctx)}
	r.topics.most, r.members.most = int64(maxTopics), int64(maxTopics)
	return r
}

// Topic returns the label for a queue: its name, or Other.
func (r *Recorder) Topic(queue string) string { return r.topics.bound(queue) }

// Trace returns hooks for mailboxes, which then call next.
func (r *Recorder) Trace(next ...*mailbox.Trace) *mailbox.Trace {
	return JoinTraces(append([]*mailbox.Trace{{
		Sent: r.sent, Polled: r.polled, Received: r.received, Poisoned: r.poisoned,
		Settled: r.settled, Extended: r.extended, Replied: r.replied,
	}}, next...)...)
}

func (r *Recorder) sent(ctx context.Context, event mailbox.SentEvent) {
	topic := r.Topic(event.Queue)
	r.seconds(ctx, EnqueueLatency, event.Duration, topic)
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
	r.count(ctx, Enqueued, sent, topic)
	r.count(ctx, Deduplicated, repeated, topic)
	for why, n := range rejected {
		r.count(ctx, Rejected, n, topic, why)
	}
}

func (r *Recorder) polled(ctx context.Context, event mailbox.PolledEvent) {
	topic := r.Topic(event.Queue)
	switch {
	case event.Deliveries > 0:
		r.seconds(ctx, DequeueLatency, event.Duration, topic)
		r.count(ctx, Received, 1, topic, "messages")
	case event.Err == nil || ctx.Err() != nil: // who gives up waiting has not failed
		r.count(ctx, Received, 1, topic, "empty")
	default:
		r.count(ctx, Received, 1, topic, "failed")
	}
}

func (r *Recorder) received(ctx context.Context, queue string, delivery *driver.Delivery) {
	topic := r.Topic(queue)
	r.count(ctx, Delivered, 1, topic)
	if delivery.Deliveries > 1 {
		r.count(ctx, Redelivered, 1, topic)
		return
	}
	// Clocks of two machines may differ, and nothing is delivered before it is sent.
	r.seconds(ctx, Waited, max(time.Since(delivery.EnqueuedAt), 0), topic)
}

func (r *Recorder) poisoned(ctx context.Context, event mailbox.PoisonedEvent) {
	topic := r.Topic(event.Queue)
	r.count(ctx, Poisoned, 1, topic)
	if event.Err == nil && event.Disposition.Action == mailbox.PoisonBury {
		r.count(ctx, DeadLettered, 1, topic, string(mailbox.ReasonParse))
	}
}

func (r *Recorder) settled(ctx context.Context, event mailbox.SettledEvent) {
	topic := r.Topic(event.Queue)
	if event.Err != nil {
		r.count(ctx, SettleFailed, 1, topic, reason(event.Err))
		r.lost(ctx, topic, event.Err)
		return
	}
	outcome := string(event.Outcome)
	r.count(ctx, Settled, 1, topic, outcome)
	r.seconds(ctx, AckLatency, event.Duration, topic, outcome)
	r.seconds(ctx, Held, event.Held, topic)
	if event.Outcome == mailbox.OutcomeAck || event.Outcome == mailbox.OutcomeDeadLetter {
		r.sink.Record(ctx, DeliveriesPer, float64(event.Deliveries), topic)
	}
	if event.Outcome == mailbox.OutcomeDeadLetter {
		r.count(ctx, DeadLettered, 1, topic, string(event.Reason))
	}
}

func (r *Recorder) extended(ctx context.Context, event mailbox.ExtendedEvent) {
	topic := r.Topic(event.Queue)
	if event.Err != nil {
		r.lost(ctx, topic, event.Err)
		return
	}
	r.count(ctx, Extended, 1, topic)
}

// lost counts a delivery that was over when it was used.
func (r *Recorder) lost(ctx context.Context, topic string, err error) {
	if errors.Is(err, mailbox.ErrReceiptExpired) {
		r.count(ctx, VisibilityTimeouts, 1, topic)
	}
}

func (r *Recorder) replied(ctx context.Context, event mailbox.RepliedEvent) {
	topic := r.Topic(event.Queue)
	result := "answer"
	switch {
	case event.Err != nil:
		result = "failed"
	case event.Failure != nil:
		result = "error"
	}
	r.count(ctx, Replied, 1, topic, result)
	r.seconds(ctx, ReplyLatency, event.Duration, topic)
}

// RegistryTrace returns hooks for registries, which then call next. Identifiers are no
// labels: there is no end of them.
func (r *Recorder) RegistryTrace(next ...*mailbox.RegistryTrace) *mailbox.RegistryTrace {
	return joinRegistryTraces(append([]*mailbox.RegistryTrace{{
		Resolved: r.resolved, Opened: r.opened, Evicted: r.evicted,
	}}, next...)...)
}

func (r *Recorder) resolved(ctx context.Context, event mailbox.ResolvedEvent) {
	source := string(event.Source)
	if event.Err != nil || source == "" {
		source = "failed"
	}
	r.count(ctx, Resolved, 1, source)
	r.seconds(ctx, ResolveLatency, event.Duration)
}

func (r *Recorder) opened(ctx context.Context, event mailbox.OpenedEvent) {
	result := "ok"
	if event.Err != nil {
		result = "failed"
	}
	r.count(ctx, ResolverOpened, 1, result)
}

func (r *Recorder) evicted(event mailbox.EvictedEvent) {
	r.count(r.base, Evicted, 1, string(event.Reason))
}

// count adds n, if it is not nothing.
func (r *Recorder) count(ctx context.Context, i *Instrument, n int, values ...string) {
	if n > 0 {
		r.sink.Add(ctx, i, float64(n), values...)
	}
}

func (r *Recorder) seconds(ctx context.Context, i *Instrument, d time.Duration, values ...string) {
	r.sink.Record(ctx, i, d.Seconds(), values...)
}
