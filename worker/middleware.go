package worker

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/mailboxmq/mailbox"
)

// Logging logs each handled message: at level debug on success, and at level warn,
// with the error, on failure. A nil logger logs nothing.
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

// Tracing calls start before the handler, which gets the context that start returns,
// and afterwards the function that start returned, with the handler's error. start
// finds the trace context of the sender in the message's attributes, where
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

// Recovery turns a panic into a *PanicError. Loops do this anyway; this middleware
// is for outer middleware that needs a panic as an error, such as Logging.
func Recovery[T any]() Middleware[T] {
	return func(next Handler[T]) Handler[T] {
		return func(ctx context.Context, message *mailbox.Message[T]) error { return call(ctx, next, message) }
	}
}

// A Limiter limits a rate. *rate.Limiter of golang.org/x/time/rate is one, and so is
// the result of NewLimiter.
type Limiter interface {
	// Wait blocks until the next event may happen. It returns an error when ctx
	// ends.
	Wait(ctx context.Context) error
}

// limitedRetryAfter is the delay of a message that a limiter refused.
const limitedRetryAfter = time.Second

// RateLimit makes handlers wait for limiter. The lease is extended meanwhile, and
// the watchdog ignores the wait. If the handler's context ends before the limiter
// allows it, or its deadline is too early, the message is nacked for a second, or for
// as long as the limiter's error says (see mailbox.RetryAfter). That does not count
// as a failure for the policy; the queue counts the delivery against its own limit.
// Any other error of the limiter is a failure of the message.
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
			return RetryAfter(max(limitedRetryAfter, mailbox.RetryAfter(err)), nil)
		}
	}
}
