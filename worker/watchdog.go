package worker

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/internal/activity"
	"github.com/mailboxmq/mailbox/internal/goroutine"
)

// An Activity is what a member is doing at one moment, for the watchdog and the
// health report of a Group.
type Activity = activity.Activity

// A watchedMember tells what it is doing, without blocking, so that the watchdog can watch it.
type watchedMember interface{ Activity() Activity }

// Activity returns what the loop is doing: the handler that has made no progress for
// the longest, or a receive that the backend has not answered for longer than
// Options.Wait.
func (l *Loop[T]) Activity() Activity {
	now := Activity{DeadLettersFailing: l.deadLettersFailing.Load()}
	l.mu.Lock()
	r, running := l.latest, l.current != nil
	l.mu.Unlock()
	if r == nil {
		return now
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now.LastBeat = r.began.Add(r.answered)
	if !running {
		return now
	}
	oldest, found := r.asked+l.options.Wait, r.receiving // waiting for messages is not a lack of progress
	for slot, j := range r.at {
		if j != nil && !j.resting && (!found || j.since < oldest) {
			now.MessageID, now.Goroutine, now.Interrupt = j.id, r.numbers[slot], j.cancel
			if j.batch != nil {
				now.Interrupt = j.batch.cancel // the context of j itself may have ended with its lease
			}
			oldest, found = j.since, true
		}
	}
	if found {
		now.Since = r.began.Add(oldest)
	}
	now.Progress = r.progressLocked()
	return now
}

// A StuckEvent is a handler that made no progress for too long.
type StuckEvent struct {
	// Member is the name of the loop.
	Member string
	// MessageID is the message of the handler. It is empty if the backend does not
	// answer a receive.
	MessageID string
	// Age is the time since the last progress.
	Age time.Duration
	// Stack is the stack of the handler.
	Stack string
}

// watchdogPause bounds the time between two looks of the watchdog.
const watchdogPause = time.Minute

// A suspect is a stuck handler that the watchdog has reported.
type suspect struct {
	messageID string
	since     time.Time // of the last progress
	noticed   time.Time
}

// watch watches the members until ctx ends. It sends to failed, once, if a stuck
// handler does not return after its context was cancelled.
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
			watched, ok := member.(watchedMember)
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

// inspect checks one member. It reports a stuck handler once. With CancelStuck it
// also cancels the handler, and returns an error if that does not help.
func (g *Group) inspect(ctx context.Context, name string, watched watchedMember, suspected **suspect) error {
	now := time.Now()
	doing := watched.Activity()
	messageID, since := doing.MessageID, doing.Since
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
			Detail: fmt.Sprintf("no progress for %v, and the handler did not return after its context was cancelled", age),
		}
		g.logger.LogAttrs(ctx, slog.LevelError, "worker: watchdog ends the group", slog.String("loop", name),
			slog.String("id", messageID), slog.Duration("age", age))
		return err
	}
	*suspected = &suspect{messageID, since, now}
	event := StuckEvent{Member: name, MessageID: messageID, Age: age, Stack: goroutine.Stack(doing.Goroutine)}
	g.logger.LogAttrs(ctx, slog.LevelError, "worker: handler is stuck", slog.String("loop", event.Member),
		slog.String("id", messageID), slog.Duration("age", age), slog.Duration("threshold", g.options.Watchdog),
		slog.String("stack", event.Stack))
	g.tellStuck(ctx, event)
	if g.options.CancelStuck && doing.Interrupt != nil {
		doing.Interrupt(&mailbox.Error{
			Code: ErrStuck, Op: "handle", Queue: name, MessageID: messageID,
			Detail: fmt.Sprintf("no progress for %v", age),
		})
	}
	return nil
}

// tellStuck calls GroupOptions.Stuck, if it is set.
func (g *Group) tellStuck(ctx context.Context, event StuckEvent) {
	if g.options.Stuck != nil {
		defer g.panicked(ctx, "Stuck")
		g.options.Stuck(event)
	}
}

// panicked recovers a panic of a function of the options and logs it. Defer it.
func (g *Group) panicked(ctx context.Context, option string) {
	if value := recover(); value != nil {
		panicked := newPanicError(value)
		g.logger.LogAttrs(ctx, slog.LevelError, "worker: an option of the group panicked", slog.String("option", option),
			slog.Any("err", panicked), slog.String("stack", string(panicked.Stack)))
	}
}
