package worker

import (
	"context"
	"log/slog"
	"time"

	"github.com/mailboxmq/mailbox"
)

// Hooks are told what a loop does, for metrics. Any of them may be nil and then
// costs nothing. They are called from many goroutines at once and must not
// block. One that panics is logged, and changes nothing else.
type Hooks struct {
	// Received is called when messages have come, with how many.
	Received func(ctx context.Context, loop string, messages int)
	// Started is called before the handler is.
	Started func(ctx context.Context, info Info)
	// Finished is called when the handler has returned, before the message is
	// settled.
	Finished func(ctx context.Context, event FinishedEvent)
	// Settled is called when it is known what became of the message.
	Settled func(ctx context.Context, event SettledEvent)
	// BackendFailed is called when a call of the backend fails that will be
	// repeated: op is "receive", "ack", "nack", "extend" or "reply".
	BackendFailed func(ctx context.Context, loop, op string, err error)
}

// Info is what hooks are told about a message.
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

// FinishedEvent is a handler that has returned.
type FinishedEvent struct {
	Info
	// Duration is how long the handler took.
	Duration time.Duration
	// Err is what it returned. A panic is a *PanicError.
	Err error
}

// SettledEvent is the end of a message's stay in the loop.
type SettledEvent struct {
	Info
	// Result is what became of the message.
	Result Result
	// Delay is how long it waits for its next delivery, if it was given back.
	Delay time.Duration
	// Reason is that of a dead letter, and Box the mailbox that it is in: the one it
	// was sent to, or Queue if the backend keeps it.
	Reason mailbox.Reason
	Box    string
	// Cause is why it was not acked, or why that failed.
	Cause error
}

// A Result is what became of a message.
type Result string

// The results.
const (
	// ResultAcked: it is done, and gone.
	ResultAcked Result = "acked"
	// ResultAnswered: it failed; who sent it was told, and it is gone.
	ResultAnswered Result = "answered with an error"
	// ResultUnanswered: the work is done, its result had no address to go to, and
	// it is gone.
	ResultUnanswered Result = "unanswered"
	// ResultDiscarded: it failed, and is gone because the handler said so.
	ResultDiscarded Result = "discarded"
	// ResultNacked: it failed, and comes back after Delay.
	ResultNacked Result = "nacked"
	// ResultDead: it failed for good, and is a dead letter.
	ResultDead Result = "dead-lettered"
	// ResultReleased: no handler has begun with it, and it is ready again.
	ResultReleased Result = "released"
	// ResultLost: the lease was lost, and somebody else may have it.
	ResultLost Result = "lost"
	// ResultHandler: the handler has settled it.
	ResultHandler Result = "settled by its handler"
	// ResultUnsettled: settling failed. It comes back when its visibility ends.
	ResultUnsettled Result = "unsettled"
)

// received, started, finished, settled and backendFailed call the hook if there
// is one.

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

// hookPanicked keeps a panic in a hook from ending the program, when deferred.
func (l *Loop[T]) hookPanicked(ctx context.Context) {
	if value := recover(); value != nil {
		panicked := newPanicError(value)
		l.options.Logger.LogAttrs(ctx, slog.LevelError, "worker: a hook panicked",
			slog.String("loop", l.options.Name), slog.Any("err", panicked), slog.String("stack", string(panicked.Stack)))
	}
}

// info is what hooks are told about a message.
func (l *Loop[T]) info(message *mailbox.Message[T]) Info {
	return Info{
		Loop: l.options.Name, Queue: l.mailbox.Name(), MessageID: message.ID,
		CorrelationID: message.CorrelationID, ReplyTo: message.ReplyTo,
		Deliveries: message.Deliveries, EnqueuedAt: message.EnqueuedAt, Attributes: message.Attributes,
	}
}
