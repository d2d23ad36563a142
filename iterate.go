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
	// pollWait is how long one receive of Messages waits unless the caller
	// says otherwise. It only bounds a single call of the backend; 20 s is
	// what SQS allows.
	pollWait = 20 * time.Second
	// pollWaitMin is the shortest: an iterator on an empty queue has nothing
	// to do but wait, and with a wait of zero it would spin.
	pollWaitMin = time.Second
	// errorPauseMin and errorPauseMax bound the pause after an error, which
	// doubles from one error to the next.
	errorPauseMin = 50 * time.Millisecond
	errorPauseMax = 5 * time.Second
	// hintMax bounds how far a backend's RetryAfter is followed.
	hintMax = 30 * time.Second
	// giveBackWithin bounds how long the end of an iteration can take, whose
	// context may have ended.
	giveBackWithin = 5 * time.Second
)

// Messages receives messages for ever and yields them one by one:
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
// It ends, silently, when ctx ends, and with a last error when the mailbox is
// closed (ErrClosed) or an option is wrong (ErrInvalid). Any other
// error, ErrNotFound for a queue that does not exist included, is yielded, with a nil message, and the iteration goes on if the loop
// does, after a short pause that grows with each error in a row.
//
// The options are those of Receive, except that WithWait, which says how long
// one call of the backend waits, is at least a second. With WithMax several
// messages are taken at once. Those not yet yielded when the loop is left, by
// break, return or panic or by the end of ctx, are released, to be ready again
// at once at their own place. Those whose visibility ended while the loop was
// busy with earlier ones are not yielded: another receiver may have them.
//
// A message that was yielded is the loop's to settle. The sequence may be
// ranged over several times, also at once.
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
			// Whatever ends the pause early is seen by the next turn.
			_ = m.pause(ctx, errorPause(failures, err))
		}
	}
}

// yieldAll yields messages and reports whether to go on. However it is left,
// it gives back what it did not yield and still holds.
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
		// With a visibility of zero the receiver never had them to itself, and
		// does not expect to.
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
		m.logger.LogAttrs(ctx, slog.LevelWarn, "mailbox: messages come back only when their visibility ends",
			slog.String("queue", m.name), slog.Int("messages", len(messages)), slog.Any("err", err))
	}
}

// endsIteration reports whether trying again cannot help.
func endsIteration(err error) bool {
	return errors.Is(err, ErrClosed) || errors.Is(err, ErrInvalid)
}

// errorPause is how long to wait after the n-th error in a row. Half of it is
// random, so that consumers that lost a backend together do not come back to
// it together.
func errorPause(n int, err error) time.Duration {
	full := errorPauseMax
	if doublings := n - 1; doublings < 10 {
		full = min(errorPauseMin<<doublings, errorPauseMax)
	}
	pause := full/2 + rand.N(full/2+1)
	return max(pause, min(RetryAfter(err), hintMax))
}
