package mailbox

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

const (
	// pollWait is how long one receive of Messages waits by default. It only bounds
	// single calls of the backend; 20 s is the limit of SQS.
	pollWait = 20 * time.Second
	// pollWaitMin is the shortest wait: with a wait of zero an iterator on an empty
	// queue would spin.
	pollWaitMin = time.Second
	// errorPauseMin and errorPauseMax bound the pause after an error, which doubles
	// with each consecutive error.
	errorPauseMin = 50 * time.Millisecond
	errorPauseMax = 5 * time.Second
	// hintMax bounds the RetryAfter hint of a backend.
	hintMax = 30 * time.Second
	// giveBackWithin bounds how long releasing messages at the end of an iteration can
	// take.
	giveBackWithin = 5 * time.Second
)

// Messages receives messages until ctx ends and yields them one by one:
//
//	for message, err := range orders.Messages(ctx) {
//		if err != nil {
//			log.Warn("receive", "err", err)
//			continue // tries again after a pause
//		}
//		…
//		err = message.Ack(ctx)
//	}
//
// When ctx ends, it ends without an error. It yields a last error when the mailbox is
// closed (ErrClosed) or an option is invalid (ErrInvalid). It yields any other error,
// including ErrNotFound for a queue that does not exist, with a nil message; if the loop
// continues, it tries again after a pause that grows with each consecutive error.
//
// The options are those of Receive, except that WithWait, which applies to single calls
// of the backend, is at least a second. With WithMax it receives several messages at
// once. When the loop ends, by break, return or panic or because ctx has ended, messages
// that were not yielded are released: they are ready again at once, at their places.
// Messages whose visibility ended while the loop processed earlier ones are not yielded,
// because another receiver may have them.
//
// The loop settles the messages that it gets. The sequence may be used several times,
// also concurrently.
func (m *Mailbox[T]) Messages(ctx context.Context, options ...ReceiveOption) iter.Seq2[*Message[T], error] {
	return func(yield func(*Message[T], error) bool) {
		defaults := driver.ReceiveRequest{Visibility: min(DefaultVisibility, m.Traits().MaxVisibility)}
		visibility := applyReceive(defaults, options).Visibility
		for failures := 0; ctx == nil || ctx.Err() == nil; {
			messages, err := m.receive(ctx, pollWait, pollWaitMin, options)
			if err == nil {
				failures = 0
				if !m.yieldAll(ctx, messages, visibility, yield) {
					return
				}
				continue
			}
			if ctx != nil && ctx.Err() != nil {
				return
			}
			if !yield(nil, err) || endsIteration(err) {
				return
			}
			failures++
			// The next turn finds out what ended the pause early.
			_ = m.pause(ctx, errorPause(failures, err))
		}
	}
}

// yieldAll yields messages and reports whether to continue. When it returns or panics it
// releases the messages that it has not yielded and whose lease has not ended.
func (m *Mailbox[T]) yieldAll(ctx context.Context, messages []*Message[T], visibility time.Duration, yield func(*Message[T], error) bool) bool {
	receivedAt := time.Now()
	lost := func() bool { return time.Since(receivedAt) >= visibility }
	next := 0
	defer func() {
		if next < len(messages) && !lost() {
			m.giveBack(ctx, messages[next:])
		}
	}()
	for next < len(messages) {
		if ctx.Err() != nil {
			return false
		}
		// With a visibility of zero there never was a lease.
		if next > 0 && visibility > 0 && lost() {
			break
		}
		message := messages[next]
		next++
		if !yield(message, nil) {
			return false
		}
	}
	return true
}

// giveBack releases messages that were not yielded, also when ctx has ended.
func (m *Mailbox[T]) giveBack(ctx context.Context, messages []*Message[T]) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackWithin)
	defer cancel()
	if err := ReleaseAll(ctx, messages...); err != nil {
		m.logger.LogAttrs(ctx, slog.LevelWarn, "mailbox: cannot release messages; they are delivered again when their visibility ends",
			slog.String("queue", m.name), slog.Int("messages", len(messages)), slog.Any("err", err))
	}
}

// endsIteration reports whether a retry cannot succeed.
func endsIteration(err error) bool {
	return errors.Is(err, ErrClosed) || errors.Is(err, ErrInvalid)
}

// errorPause returns the pause after the n-th consecutive error. Half of it is random,
// so that consumers that lose a backend at the same time do not return at the same time.
func errorPause(n int, err error) time.Duration {
	full := errorPauseMax
	if doublings := n - 1; doublings < 10 {
		full = min(errorPauseMin<<doublings, errorPauseMax)
	}
	pause := full/2 + rand.N(full/2+1)
	return max(pause, min(RetryAfter(err), hintMax))
}
