package telemetry

// A Kind is a kind of instrument.
type Kind int

// The kinds.
const (
	// Counter only grows.
	Counter Kind = iota
	// Level goes up and down by what is added to it.
	Level
	// Gauge is set to the latest measurement.
	Gauge
	// Histogram counts observations in buckets.
	Histogram
	// Observed is a gauge whose value is looked up when the metrics are read.
	Observed
)

// A Unit is what an instrument counts in.
type Unit string

// The units.
const (
	Seconds  Unit = "s"
	Messages Unit = "{message}"
	Calls    Unit = "{call}"
	Handlers Unit = "{handler}"
	Ratio    Unit = "1"
	Attempts Unit = "{delivery}"
)

// An Instrument is something that is measured.
type Instrument struct {
	// Name is the Prometheus name without the namespace. Counters end in _total,
	// instruments in seconds in _seconds.
	Name string
	Help string
	Kind Kind
	Unit Unit
	// Labels are the names of the labels, in the order of their values.
	Labels []string
	// Buckets are the upper bounds of a histogram.
	Buckets []float64
}

// The labels.
const (
	LabelQueue    = "queue"
	LabelState    = "state"
	LabelReason   = "reason"
	LabelOutcome  = "outcome"
	LabelResult   = "result"
	LabelLoop     = "loop"
	LabelOp       = "op"
	LabelConsumer = "consumer"
	LabelSource   = "source"
)

var (
	// callBuckets are for backend calls: microseconds in memory, milliseconds on disk,
	// seconds for a backend that is far away or in trouble.
	callBuckets = []float64{0.000_01, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30}
	// workBuckets are for handlers, up to the longest lease.
	workBuckets = []float64{0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600}
	// ageBuckets are for messages that wait for a receiver, and dead letters that wait
	// for a person.
	ageBuckets = []float64{0.001, 0.01, 0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 6 * 3600, 86_400, 7 * 86_400}
	// attemptBuckets are for numbers of deliveries.
	attemptBuckets = []float64{1, 2, 3, 4, 5, 7, 10, 20, 50}
)

// Watched queues. The figures come from the backend and cover all processes.
var (
	QueueDepth = instrument(Observed, Messages, "queue_depth", "Messages that wait in the queue, by state: ready or delayed.", nil, LabelQueue, LabelState)
	InFlight   = instrument(Observed, Messages, "inflight", "Messages that are delivered and not settled.", nil, LabelQueue)
	DeadDepth  = instrument(Observed, Messages, "dlq_depth", "Dead letters that the backend keeps with the queue.", nil, LabelQueue)
	Saturation = instrument(Observed, Ratio, "saturation", "Part of the queue's capacity that is used.", nil, LabelQueue)
	WatchError = instrument(Observed, Ratio, "watch_failed", "1 if the last Stats call for the queue failed and its other figures are missing; else 0.", nil, LabelQueue)
)

// Mailboxes, as this process uses them.
var (
	Enqueued       = instrument(Counter, Messages, "enqueued_total", "Messages that were sent.", nil, LabelQueue)
	Deduplicated   = instrument(Counter, Messages, "deduplicated_total", "Messages that were not sent again because their dedup key is known.", nil, LabelQueue)
	Rejected       = instrument(Counter, Messages, "rejected_total", "Messages that could not be sent, by reason.", nil, LabelQueue, LabelReason)
	EnqueueLatency = instrument(Histogram, Seconds, "enqueue_latency_seconds", "How long the backend took for a send.", callBuckets, LabelQueue)

	Received       = instrument(Counter, Calls, "receives_total", "Answers to receives: messages, empty or failed.", nil, LabelQueue, LabelResult)
	Delivered      = instrument(Counter, Messages, "delivered_total", "Messages that were delivered, for the first time or again.", nil, LabelQueue)
	Redelivered    = instrument(Counter, Messages, "redelivered_total", "Messages that were delivered again.", nil, LabelQueue)
	Poisoned       = instrument(Counter, Messages, "poisoned_total", "Messages whose body could not be decoded.", nil, LabelQueue)
	DequeueLatency = instrument(Histogram, Seconds, "dequeue_latency_seconds", "How long a receive that returned messages took, including the wait for them.", callBuckets, LabelQueue)
	Waited         = instrument(Histogram, Seconds, "wait_seconds", "Time from send to first delivery, by wall clocks.", ageBuckets, LabelQueue)

	Settled            = instrument(Counter, Messages, "settled_total", "Messages that were acked, nacked, released or dead-lettered.", nil, LabelQueue, LabelOutcome)
	SettleFailed       = instrument(Counter, Messages, "settle_failed_total", "Attempts to settle a message that failed, by reason.", nil, LabelQueue, LabelReason)
	AckLatency         = instrument(Histogram, Seconds, "ack_commit_latency_seconds", "How long the backend took to settle.", callBuckets, LabelQueue, LabelOutcome)
	Held               = instrument(Histogram, Seconds, "held_seconds", "Time from delivery until the message was settled.", workBuckets, LabelQueue)
	DeliveriesPer      = instrument(Histogram, Attempts, "attempts", "Deliveries that a message needed until it was acked or dead-lettered.", attemptBuckets, LabelQueue)
	VisibilityTimeouts = instrument(Counter, Messages, "visibility_timeout_total", "Deliveries whose lease had ended when they were settled or extended.", nil, LabelQueue)
	Extended           = instrument(Counter, Messages, "extended_total", "Deliveries that were extended.", nil, LabelQueue)
	DeadLettered       = instrument(Counter, Messages, "dlq_total", "Messages that this process dead-lettered, by reason.", nil, LabelQueue, LabelReason)

	Replied      = instrument(Counter, Messages, "replies_total", "Replies: answer, error or failed.", nil, LabelQueue, LabelResult)
	ReplyLatency = instrument(Histogram, Seconds, "reply_latency_seconds", "How long the backend or the reply store took for a reply.", callBuckets, LabelQueue)
)

// Workers.
var (
	HandlersRunning = instrument(Level, Handlers, "handlers_running", "Handlers at work.", nil, LabelLoop)
	// These two are of handlers that have called worker.SetProgress.
	HandlersReporting = instrument(Observed, Handlers, "handlers_reporting", "Handlers at work that have reported progress.", nil, LabelLoop)
	ProgressAge       = instrument(Observed, Seconds, "handler_progress_age_seconds", "Time since the latest report of the handler that has not reported for longest, of those that have.", nil, LabelLoop)
	HandlerTime       = instrument(Histogram, Seconds, "handler_seconds", "How long handlers took, by result: ok, error or panic.", workBuckets, LabelLoop, LabelResult)
	WorkerSettled     = instrument(Counter, Messages, "worker_settled_total", "What became of the messages of a loop.", nil, LabelLoop, LabelResult)
	BackendFailed     = instrument(Counter, Calls, "worker_backend_failures_total", "Backend calls that failed and are retried.", nil, LabelLoop, LabelOp)
	Stuck             = instrument(Counter, Handlers, "stuck_handlers_total", "Handlers that the watchdog found stuck.", nil, LabelLoop)
)

// Consumers of dead letters.
var (
	ConsumerDepth        = instrument(Gauge, Messages, "dlq_consumer_depth", "Dead letters in the queue of the consumer.", nil, LabelConsumer)
	DeadLetterAge        = instrument(Histogram, Seconds, "dlq_letter_age_seconds", "Time from dead-lettering until the handler got the dead letter.", ageBuckets, LabelConsumer)
	DeadLetterTime       = instrument(Histogram, Seconds, "dlq_handler_seconds", "How long the handler of dead letters took.", workBuckets, LabelConsumer)
	DeadLettersHandled   = instrument(Counter, Messages, "dlq_handled_total", "Dead letters that the handler got: done, redrive, drop, keep or failed.", nil, LabelConsumer, LabelResult)
	Redriven             = instrument(Counter, Messages, "dlq_redriven_total", "Dead letters that a consumer sent back to the queue they came from.", nil, LabelQueue)
	DeadLetterDuplicates = instrument(Counter, Messages, "dlq_duplicates_total", "Dead letters that were not sent back a second time.", nil, LabelConsumer)
)

// Registries of mailboxes.
var (
	Resolved       = instrument(Counter, Calls, "resolved_total", "Identifiers that were resolved, by where they led: registered, cached, opened, slot or failed.", nil, LabelSource)
	ResolveLatency = instrument(Histogram, Seconds, "resolve_latency_seconds", "How long resolving an identifier took.", callBuckets)
	ResolverOpened = instrument(Counter, Calls, "resolver_opened_total", "Queues that a registry opened: ok or failed.", nil, LabelResult)
	Evicted        = instrument(Counter, Calls, "resolver_evicted_total", "Queues that left a registry's cache, by reason.", nil, LabelReason)
)

// all is filled by instrument, in the order of this file.
var all []*Instrument

func instrument(kind Kind, unit Unit, name, help string, buckets []float64, labels ...string) *Instrument {
	i := &Instrument{Name: name, Help: help, Kind: kind, Unit: unit, Labels: labels, Buckets: buckets}
	all = append(all, i)
	return i
}

// All returns every instrument. Callers must not change them.
func All() []*Instrument { return all }
