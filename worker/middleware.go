package worker

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/mailboxmq/mailbox"
)

// Logging logs each message that a handler is done with: at level debug if it
// went well, and at level warn, with the error, if it did not. A nil logger logs
// nothing.
func Logging[T any](logger *slog.Logger) Middleware[T] {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	return func(next Handler[T]) Handler[T] {
		return func(ctx context.Context, message *mailbox.Message[T]) error {
			began := time.Now()
			err := next(ctx, message)
			level, text := slog.LevelDebug, "message handled"
			if err != nil {
				level, text = slog.LevelWarn, "message failed"
			}
			if !logger.Enabled(ctx, level) {
				return err
			}
			attrs := []slog.Attr{
				slog.String("id", message.ID), slog.Int("deliveries", message.Deliveries),
				slog.Duration("duration", time.Since(began)),
			}
			if message.CorrelationID != "" {
				attrs = append(attrs, slog.String("correlation", message.CorrelationID))
			}
			if err != nil {
				attrs = append(attrs, slog.Any("err", err))
			}
			logger.LogAttrs(ctx, level, text, attrs...)
			return err
		}
	}
}

// Tracing calls start before the handler, which gets the context that start
// returns, and then the function that start returned, with the handler's error.
// Start finds the trace context of the sender in the message's attributes, where
// mailbox.Hooks.Sending has put it.
func Tracing[T any](start func(ctx context.Context, message *mailbox.Message[T]) (context.Context, func(err error))) Middleware[T] {
	return func(next Handler[T]) Handler[T] {
		return func(ctx context.Context, message *mailbox.Message[T]) (err error) {
			traced, end := start(ctx, message)
			if traced == nil {
				traced = ctx
			}
			if end != nil {
				defer func() {
					if value := recover(); value != nil {
						err = newPanicError(value)
					}
					end(err)
				}()
			}
			return next(traced, message)
		}
	}
}

// Recovery makes a *PanicError of a panic. Loops do this by themselves; the
// middleware is for those further out that want to see a panic as an error, such
// as Logging.
func Recovery[T any]() Middleware[T] {
	return func(next Handler[T]) Handler[T] {
		return func(ctx context.Context, message *mailbox.Message[T]) error { return call(ctx, next, message) }
	}
}

// A Limiter lets things happen no faster than it allows. *rate.Limiter of
// golang.org/x/time/rate is one, and so is what NewLimiter returns.
type Limiter interface {
	// Wait blocks until the next thing may happen, or ctx ends, and then returns
	// an error.
	Wait(ctx context.Context) error
}

// limitedPause is when a message comes back that a limiter did not let pass.
const limitedPause = time.Second

// RateLimit makes handlers wait for limiter. The message is held, and its lease
// extended, meanwhile, and no watchdog minds. One that cannot wait that long,
// because its time is over or will be, is given back for a second, or for as long
// as the limiter's error asks for (see mailbox.RetryAfter), and that is no failure
// of it for the policy; the queue counts the delivery against its own limit. A
// limiter that refuses for no such reason is one.
func RateLimit[T any](limiter Limiter) Middleware[T] {
	return func(next Handler[T]) Handler[T] {
		return func(ctx context.Context, message *mailbox.Message[T]) error {
			resume := rest(ctx)
			err := limiter.Wait(ctx)
			resume()
			if err == nil {
				return next(ctx, message)
			}
			_, limited := ctx.Deadline()
			if errors.Is(err, mailbox.ErrInvalid) || ctx.Err() == nil && !limited {
				return err
			}
			return RetryAfter(max(limitedPause, mailbox.RetryAfter(err)), nil)
		}
	}
}
