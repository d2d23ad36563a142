package worker

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/internal/goroutine"
)

// Watched is a member that the watchdog can watch.
type Watched interface {
	// Oldest returns what the member has been doing for the longest without a
	// sign of life: the message it is about, if it is about one, since when, and
	// the number of the goroutine that does it. Since is zero if nothing is going
	// on.
	Oldest() (messageID string, since time.Time, goroutine int64)
	// Interrupt cancels what the member does with this message, with this cause.
	Interrupt(messageID string, cause error)
}

// StuckEvent is a handler that gave no sign of life for too long.
type StuckEvent struct {
	// Member is the name of the loop.
	Member string
	// MessageID is the message that the handler has. It is empty if the backend
	// does not answer a receive.
	MessageID string
	// Age is the time since the last sign of life.
	Age time.Duration
	// Stack is where the handler is.
	Stack string
}

// watchdogPause bounds how long the watchdog sleeps.
const watchdogPause = time.Minute

// suspect is something stuck that the watchdog has reported.
type suspect struct {
	messageID string
	since     time.Time // of the last sign of life
	noticed   time.Time
}

// watch looks after the members until ctx ends. It sends to failed, once, if
// something is stuck that cannot be helped.
func (g *Group) watch(ctx context.Context, failed chan<- error) {
	suspects := make([]*suspect, len(g.members))
	ticker := time.NewTicker(max(min(g.options.Watchdog/4, g.options.WatchdogGrace/2, watchdogPause), time.Millisecond))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		for i, member := range g.members {
			watched, ok := member.(Watched)
			if !ok {
				continue
			}
			if err := g.inspect(ctx, member.Name(), watched, &suspects[i]); err != nil {
				g.tripped.Store(true)
				failed <- err
				return
			}
		}
	}
}

// inspect looks at one member. The first time that something of it is stuck it
// reports that. With CancelStuck it also interrupts it, and when that has not
// helped it returns an error.
func (g *Group) inspect(ctx context.Context, name string, watched Watched, suspected **suspect) error {
	now := time.Now()
	messageID, since, at := watched.Oldest()
	age := now.Sub(since)
	if since.IsZero() || age <= g.options.Watchdog {
		*suspected = nil
		return nil
	}
	if known := *suspected; known != nil && known.messageID == messageID && known.since.Equal(since) {
		if !g.options.CancelStuck || now.Sub(known.noticed) < g.options.WatchdogGrace {
			return nil
		}
		err := &mailbox.Error{
			Code: ErrStuck, Op: "watch", Queue: name, MessageID: messageID,
			Detail: fmt.Sprintf("no sign of life for %v, and it did not return when it was told to", age),
		}
		g.logger.LogAttrs(ctx, slog.LevelError, "worker: watchdog ends the group", slog.String("loop", name),
			slog.String("id", messageID), slog.Duration("age", age))
		return err
	}
	*suspected = &suspect{messageID, since, now}
	event := StuckEvent{Member: name, MessageID: messageID, Age: age, Stack: goroutine.Stack(at)}
	g.logger.LogAttrs(ctx, slog.LevelError, "worker: handler is stuck", slog.String("loop", event.Member),
		slog.String("id", messageID), slog.Duration("age", age), slog.Duration("threshold", g.options.Watchdog),
		slog.String("stack", event.Stack))
	g.tellStuck(ctx, event)
	if !g.options.CancelStuck {
		return nil
	}
	watched.Interrupt(messageID, &mailbox.Error{
		Code: ErrStuck, Op: "handle", Queue: name, MessageID: messageID,
		Detail: fmt.Sprintf("no sign of life for %v", age),
	})
	return nil
}

// tellStuck calls the function that wants to know, if there is one.
func (g *Group) tellStuck(ctx context.Context, event StuckEvent) {
	if g.options.Stuck != nil {
		defer g.panicked(ctx, "Stuck")
		g.options.Stuck(event)
	}
}

// panicked keeps a panic in a function of the options from ending the program,
// when deferred.
func (g *Group) panicked(ctx context.Context, option string) {
	if value := recover(); value != nil {
		panicked := newPanicError(value)
		g.logger.LogAttrs(ctx, slog.LevelError, "worker: an option of the group panicked", slog.String("option", option),
			slog.Any("err", panicked), slog.String("stack", string(panicked.Stack)))
	}
}
