package deadletter

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/mailboxmq/mailbox"
)

// Hooks are told what a consumer does, for metrics. Any of them may be
// nil. They are called one at a time, and must not block. One that panics is
// logged, and changes nothing else.
type Hooks struct {
	// Depth is the number of letters in the box, measured now and then.
	Depth func(consumer string, depth int)
	// Handled is called when the handler has returned.
	Handled func(event HandledEvent)
	// Duplicate is called for a letter that was to be replayed and was not,
	// because Dedup had seen its work before.
	Duplicate func(consumer, messageID string)
}

// HandledEvent is a letter that was shown to the handler.
type HandledEvent struct {
	Consumer  string
	MessageID string
	Source    string
	Reason    mailbox.Reason
	// Age is the time since the message died; 0 if that is not known.
	Age time.Duration
	// Duration is how long the handler took.
	Duration time.Duration
	// Action is what it decided, unless Err says that it failed, or that what it
	// decided could not be done.
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

// hookPanicked keeps a panic in a hook from ending the program, when deferred.
func (c *Consumer[T]) hookPanicked(ctx context.Context) {
	if value := recover(); value != nil {
		c.logger.LogAttrs(ctx, slog.LevelError, "deadletter: a hook panicked", slog.String("consumer", c.Name()),
			slog.String("err", fmt.Sprint(value)), slog.String("stack", string(debug.Stack())))
	}
}

// depthMeter measures the depth of the box now and then, if somebody wants to
// know.
type depthMeter[T any] struct {
	consumer *Consumer[T]
	next     time.Time
}

func (d *depthMeter[T]) measure(ctx context.Context) {
	c := d.consumer
	if now := time.Now(); c.options.Hooks.Depth != nil && !now.Before(d.next) {
		d.next = now.Add(c.options.Poll)
		if depth, err := c.box.Depth(ctx); err == nil {
			defer c.hookPanicked(ctx)
			c.options.Hooks.Depth(c.Name(), depth)
		}
	}
}
