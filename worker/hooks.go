package worker

import (
	"context"
	"log/slog"
	"time"

	"github.com/mailboxmq/mailbox"
)

// Hooks are called for what a loop does, for metrics. Any of them may be nil and then
// costs nothing. They are called from many goroutines at once and must not block. A
// hook that panics is logged and has no other effect.
type Hooks struct {
	// Received is called with the number of messages of a receive.
	Received func(ctx context.Context, loop string, messages int)
	// Started is called before the handler.
	Started func(ctx context.Context, info Info)
	// Progress is called when the handler calls SetProgress, with the context that it
	// passes.
	Progress func(ctx context.Context, event ProgressEvent)
	// Finished is called when the handler has returned, before the message is
	// settled.
	Finished func(ctx context.Context, event FinishedEvent)
	// Settled is called when the message has been settled, or lost.
	Settled func(ctx context.Context, event SettledEvent)
	// BackendFailed is called for a failed backend call that is retried: op is
	// "receive", "ack", "nack", "extend" or "reply".
	BackendFailed func(ctx context.Context, loop, op string, err error)
}

// Info is what hooks get about a message.
type Info struct {
	Loop          string
	Queue         string
	MessageID     string
	CorrelationID string
	ReplyTo       string
	Deliveries    int
	EnqueuedAt    time.Time
	// Attributes are those of the message, and must not be changed.
	Attributes map[string]string
}

// A ProgressEvent is what a handler reports about its work.
type ProgressEvent struct {
	Info
	Progress Progress
}

// A FinishedEvent is a handler that has returned.
type FinishedEvent struct {
	Info
	// Duration is how long the handler took.
	Duration time.Duration
	// Err is what it returned. A panic is a *PanicError.
	Err error
}

// A SettledEvent is a message that the loop has settled or lost.
type SettledEvent struct {
	Info
	// Result is how it was settled.
	Result Result
	// Delay is how long it waits for its next delivery, if it was nacked.
	Delay time.Duration
	// Reason is that of a dead letter, and DeadLetterQueue the name of the mailbox
	// it was sent to, or Queue if the backend keeps it.
	Reason          mailbox.Reason
	DeadLetterQueue string
	// Cause is why it was not acked, or why that failed.
	Cause error
}

// A Result is how a loop settled a message.
type Result string

// The results.
const (
	// ResultAcked: it was handled and acked.
	ResultAcked Result = "acked"
	// ResultAnswered: it failed; the client got the error, and it was acked.
	ResultAnswered Result = "answered with an error"
	// ResultUnanswered: it was handled and acked, and its result had no reply
	// address.
	ResultUnanswered Result = "unanswered"
	// ResultDiscarded: it failed and was acked because the handler returned Discard.
	ResultDiscarded Result = "discarded"
	// ResultNacked: it failed, and comes back after Delay.
	ResultNacked Result = "nacked"
	// ResultDead: it failed for good, and is a dead letter.
	ResultDead Result = "dead-lettered"
	// ResultReleased: no handler has started it, and it is ready again.
	ResultReleased Result = "released"
	// ResultLost: the lease was lost, and another receiver may have it.
	ResultLost Result = "lost"
	// ResultHandler: the handler has settled it.
	ResultHandler Result = "settled by its handler"
	// ResultUnsettled: settling failed. It comes back when its visibility ends.
	ResultUnsettled Result = "unsettled"
)

// received, started, progressed, finished, settled and backendFailed call the hook
// if there is one.

func (l *Loop[T]) received(ctx context.Context, messages int) {
	if l.options.Hooks.Received != nil && messages > 0 {
		defer l.hookPanicked(ctx)
		l.options.Hooks.Received(ctx, l.options.Name, messages)
	}
}

func (l *Loop[T]) started(ctx context.Context, info Info) {
	if l.options.Hooks.Started != nil {
		defer l.hookPanicked(ctx)
		l.options.Hooks.Started(ctx, info)
	}
}

func (l *Loop[T]) progressed(ctx context.Context, message *mailbox.Message[T], progress Progress) {
	if l.options.Hooks.Progress != nil {
		defer l.hookPanicked(ctx)
		l.options.Hooks.Progress(ctx, ProgressEvent{l.info(message), progress})
	}
}

func (l *Loop[T]) finished(ctx context.Context, event FinishedEvent) {
	if l.options.Hooks.Finished != nil {
		defer l.hookPanicked(ctx)
		l.options.Hooks.Finished(ctx, event)
	}
}

func (l *Loop[T]) settled(ctx context.Context, message *mailbox.Message[T], event SettledEvent) {
	if l.options.Hooks.Settled != nil {
		defer l.hookPanicked(ctx)
		event.Info = l.info(message)
		l.options.Hooks.Settled(ctx, event)
	}
}

func (l *Loop[T]) backendFailed(ctx context.Context, op string, err error) {
	if l.options.Hooks.BackendFailed != nil {
		defer l.hookPanicked(ctx)
		l.options.Hooks.BackendFailed(ctx, l.options.Name, op, err)
	}
}

// hookPanicked recovers a panic of a hook and logs it. Defer it.
func (l *Loop[T]) hookPanicked(ctx context.Context) {
	if value := recover(); value != nil {
		panicked := newPanicError(value)
		l.options.Logger.LogAttrs(ctx, slog.LevelError, "worker: a hook panicked",
			slog.String("loop", l.options.Name), slog.Any("err", panicked), slog.String("stack", string(panicked.Stack)))
	}
}

// info returns what hooks get about a message.
func (l *Loop[T]) info(message *mailbox.Message[T]) Info {
	return Info{
		Loop: l.options.Name, Queue: l.mailbox.Name(), MessageID: message.ID,
		CorrelationID: message.CorrelationID, ReplyTo: message.ReplyTo,
		Deliveries: message.Deliveries, EnqueuedAt: message.EnqueuedAt, Attributes: message.Attributes,
	}
}
