package deadletter

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/mailboxmq/mailbox"
)

// Hooks are called for what a consumer does, for metrics. Any of them may be nil.
// They are called one at a time and must not block. A hook that panics is logged
// and has no other effect.
type Hooks struct {
	// Depth is called with the number of dead letters every Poll.
	Depth func(consumer string, depth int)
	// Handled is called when the handler has returned.
	Handled func(event HandledEvent)
	// Duplicate is called for a dead letter that was removed instead of redriven,
	// because Dedup had seen its work before.
	Duplicate func(consumer, messageID string)
}

// HandledEvent is a dead letter that the handler got.
type HandledEvent struct {
	Consumer  string
	MessageID string
	Source    string
	Reason    mailbox.Reason
	// Age is the time since the message was dead-lettered; 0 if unknown.
	Age time.Duration
	// Duration is how long the handler took.
	Duration time.Duration
	// Action is what it decided. If Err is set, the handler failed or the action
	// could not be done.
	Action Action
	Err    error
}

// duplicate and handled call the hook if there is one.

func (c *Consumer[T]) duplicate(ctx context.Context, messageID string) {
	if c.options.Hooks.Duplicate != nil {
		defer c.hookPanicked(ctx)
		c.options.Hooks.Duplicate(c.Name(), messageID)
	}
}

func (c *Consumer[T]) handled(ctx context.Context, event HandledEvent) {
	if c.options.Hooks.Handled != nil {
		defer c.hookPanicked(ctx)
		c.options.Hooks.Handled(event)
	}
}

// hookPanicked recovers a panic of a hook and logs it. Defer it.
func (c *Consumer[T]) hookPanicked(ctx context.Context) {
	if value := recover(); value != nil {
		c.logger.LogAttrs(ctx, slog.LevelError, "deadletter: a hook panicked", slog.String("consumer", c.Name()),
			slog.String("err", fmt.Sprint(value)), slog.String("stack", string(debug.Stack())))
	}
}

// depthMeter measures the depth of the queue every Poll, if there is a hook.
type depthMeter[T any] struct {
	consumer *Consumer[T]
	next     time.Time
}

func (d *depthMeter[T]) measure(ctx context.Context) {
	c := d.consumer
	if now := time.Now(); c.options.Hooks.Depth != nil && !now.Before(d.next) {
		d.next = now.Add(c.options.Poll)
		if depth, err := c.queue.Depth(ctx); err == nil {
			defer c.hookPanicked(ctx)
			c.options.Hooks.Depth(c.Name(), depth)
		}
	}
}
