package deadletter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/internal/backoff"
	"github.com/mailboxmq/mailbox/internal/goroutine"
)

const (
	// redriveRetryAfter is how long a dead letter whose redrive failed waits.
	redriveRetryAfter = time.Minute
	// cancelGrace is how long a cancelled handler has to return.
	cancelGrace = time.Second
	// extendTimeout bounds one extension of a lease.
	extendTimeout = 5 * time.Second
)

// A verdict is what a handler returned.
type verdict struct {
	action Action
	err    error
}

var errGoexit = errors.New("the handler ended its goroutine")

// process calls the handler on one dead letter and does what it decides. An error
// ends the consumer.
func (c *Consumer[T]) process(ctx context.Context, claim *claim[T]) error {
	started := time.Now()
	if finished, _ := c.finished.Seen(ctx, claim.id); finished {
		c.report(ctx, claim, c.settle(ctx, claim, verdict{}), started)
		return nil
	}
	// The handler may continue for the drain time after ctx has ended.
	working, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	verdicts := c.show(working, cancel, claim, started)
	v, state := c.await(ctx, cancel, claim, verdicts)
	c.mu.Lock()
	c.current = nil
	c.mu.Unlock()
	switch {
	case state == leaseLost:
		v.err = context.Cause(working)
	case state == handlerStuck, state == handlerCut && v.err != nil:
		c.putBack(ctx, claim)
	default:
		v = c.settle(ctx, claim, v)
	}
	c.report(ctx, claim, v, started)
	if state == handlerStuck {
		return &mailbox.Error{
			Code: mailbox.ErrTimeout, Op: opConsume, Queue: c.Name(), MessageID: claim.letter.MessageID,
			Detail: "the handler did not return after its context was cancelled",
		}
	}
	return nil
}

// show starts the handler and returns the channel for its verdict.
func (c *Consumer[T]) show(ctx context.Context, cancel context.CancelCauseFunc, claim *claim[T], started time.Time) <-chan verdict {
	at := &handling{messageID: claim.letter.MessageID, since: started, cancel: cancel}
	c.mu.Lock()
	c.current = at
	c.mu.Unlock()
	verdicts := make(chan verdict, 1)
	go func() {
		c.mu.Lock()
		at.goroutine = goroutine.ID()
		c.mu.Unlock()
		v := verdict{err: errGoexit}
		defer func() { verdicts <- v }()
		v.action, v.err = c.call(ctx, claim.letter)
	}()
	return verdicts
}

// handlerState is how a call of the handler ended.
type handlerState int

const (
	handlerReturned handlerState = iota
	handlerCut                   // it returned, but only after the drain time
	handlerStuck                 // it did not return
	leaseLost                    // it returned after the lease was lost
)

// await waits for the verdict. It extends the lease meanwhile and, when ctx ends,
// enforces the drain time.
func (c *Consumer[T]) await(ctx context.Context, cancel context.CancelCauseFunc, claim *claim[T], verdicts <-chan verdict) (verdict, handlerState) {
	every := c.options.Visibility / 3
	extend := time.NewTimer(every)
	defer extend.Stop()
	if claim.extend == nil {
		extend.Stop()
	}
	drain := time.NewTimer(0)
	drain.Stop()
	defer drain.Stop()
	heldUntil := time.Now().Add(c.options.Visibility)
	stop, state := ctx.Done(), handlerReturned
	var aborted <-chan struct{}
	for {
		select {
		case v := <-verdicts:
			return v, state
		case <-extend.C:
			begun := time.Now()
			// A slow extension counts as failed: the verdict and the stop wait for it.
			calling, ended := context.WithTimeout(context.WithoutCancel(ctx), extendTimeout)
			err := claim.extend(calling)
			ended()
			switch {
			case err == nil:
				heldUntil = begun.Add(c.options.Visibility)
				extend.Reset(every)
			case errors.Is(err, mailbox.ErrReceiptExpired), !time.Now().Before(heldUntil):
				state = leaseLost
				cancel(err)
			default:
				extend.Reset(min(every, backoff.Longest, max(0, time.Until(heldUntil))))
			}
		case <-stop:
			stop, aborted = nil, c.aborted
			drain.Reset(max(0, c.options.Drain))
		case <-aborted:
			return c.cut(ctx, cancel, verdicts, state)
		case <-drain.C:
			return c.cut(ctx, cancel, verdicts, state)
		}
	}
}

// cut cancels the handler and waits up to cancelGrace for it.
func (c *Consumer[T]) cut(ctx context.Context, cancel context.CancelCauseFunc, verdicts <-chan verdict, state handlerState) (verdict, handlerState) {
	cancel(context.Cause(ctx))
	late := time.NewTimer(cancelGrace)
	defer late.Stop()
	select {
	case v := <-verdicts:
		return v, max(state, handlerCut)
	case <-late.C:
		return verdict{err: context.Cause(ctx)}, handlerStuck
	}
}

// settling returns a context for settling a dead letter: it lasts while the lease
// surely does, but not much longer than ctx.
func (c *Consumer[T]) settling(ctx context.Context) (context.Context, context.CancelFunc) {
	settling, cancel := context.WithTimeout(context.WithoutCancel(ctx), max(c.options.Visibility/2, releaseTimeout))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(releaseTimeout, cancel) })
	return settling, func() {
		stop()
		cancel()
	}
}

// settle carries out the verdict.
func (c *Consumer[T]) settle(ctx context.Context, claim *claim[T], v verdict) verdict {
	ctx, cancel := c.settling(ctx)
	defer cancel()
	delay := c.options.RetryAfter
	if v.err == nil && !v.action.valid() {
		v.err = c.queue.fail(opConsume, mailbox.ErrInvalid, "Action",
			fmt.Sprintf("invalid value %q; want %q, %q, %q or %q", v.action, Done, Redrive, Drop, Keep))
	}
	if v.err == nil && v.action == Redrive {
		v = c.redrive(ctx, claim)
		delay = redriveRetryAfter
	} else if v.err == nil && v.action != Keep {
		v.err = c.remove(ctx, claim)
		return v
	}
	if v.err == nil && v.action != Keep || lost(v.err) {
		return v
	}
	if err := c.persist(ctx, func() error { return claim.putOff(ctx, delay, v.err) }); err != nil {
		v.err = errors.Join(v.err, err)
	}
	return v
}

// remove removes a handled dead letter. If that fails, the handler does not get it
// again.
func (c *Consumer[T]) remove(ctx context.Context, claim *claim[T]) error {
	err := c.persist(ctx, func() error { return claim.remove(ctx) })
	if err != nil {
		_ = c.finished.Mark(ctx, claim.id)
	}
	return err
}

// redrive sends the message back, unless its work was redriven before.
func (c *Consumer[T]) redrive(ctx context.Context, claim *claim[T]) verdict {
	dedup, key := c.options.Dedup, claim.letter.identity()
	if c.queue.source == nil {
		return verdict{Redrive, c.queue.fail(opRedrive, mailbox.ErrInvalid, "source", "is nil")}
	}
	if dedup == nil {
		return verdict{Redrive, c.persist(ctx, func() error {
			return claim.redrive(ctx, func() error { return nil })
		})}
	}
	seen, err := dedup.Seen(ctx, key)
	if err != nil {
		return verdict{Redrive, err}
	}
	if !seen {
		return verdict{Redrive, c.persist(ctx, func() error {
			return claim.redrive(ctx, func() error { return dedup.Mark(ctx, key) })
		})}
	}
	c.duplicate(ctx, claim.letter.MessageID)
	return verdict{Drop, c.remove(ctx, claim)}
}

// putBack releases a dead letter whose handler was cancelled, so that the next
// consumer gets it at once.
func (c *Consumer[T]) putBack(ctx context.Context, claim *claim[T]) {
	ctx, cancel := c.settling(ctx)
	defer cancel()
	if err := c.persist(ctx, func() error { return claim.release(ctx) }); err != nil {
		c.logger.LogAttrs(ctx, slog.LevelWarn, "deadletter: could not release a dead letter; it comes back when its visibility ends",
			slog.String("consumer", c.Name()), slog.String("id", claim.letter.MessageID), slog.Any("err", err))
	}
}

// persist repeats do while the backend is unavailable, so that a handler does not
// run again because a later step failed.
func (c *Consumer[T]) persist(ctx context.Context, do func() error) error {
	for failures := 1; ; failures++ {
		err := do()
		if err == nil || !errors.Is(err, mailbox.ErrUnavailable) || ctx.Err() != nil {
			return err
		}
		_ = backoff.Pause(ctx, backoff.AfterError(failures, err))
	}
}

// lost reports whether another consumer may have the dead letter.
func lost(err error) bool {
	return errors.Is(err, mailbox.ErrReceiptExpired) || errors.Is(err, mailbox.ErrSettled)
}

// report logs a handled dead letter and calls the hooks.
func (c *Consumer[T]) report(ctx context.Context, claim *claim[T], v verdict, started time.Time) {
	letter := &claim.letter
	event := HandledEvent{
		Consumer: c.Name(), MessageID: letter.MessageID, Source: letter.Source, Reason: letter.Reason,
		Duration: time.Since(started), Action: v.action, Err: v.err,
	}
	if !letter.DeadAt.IsZero() {
		event.Age = started.Sub(letter.DeadAt)
	}
	level, text := slog.LevelInfo, "deadletter: handled"
	if v.err != nil {
		level, text = slog.LevelError, "deadletter: handler failed"
	}
	if c.logger.Enabled(ctx, level) {
		attrs := []slog.Attr{
			slog.String("consumer", c.Name()), slog.String("message_id", letter.MessageID),
			slog.String("source_mailbox", letter.Source), slog.String("request_id", letter.RequestID),
			slog.Float64("age_seconds", event.Age.Seconds()),
		}
		switch {
		case v.err != nil:
			attrs = append(attrs, slog.String("error_message", v.err.Error()))
		case v.action == Done:
			attrs = append(attrs, slog.String("action", "done"))
		default:
			attrs = append(attrs, slog.String("action", string(v.action)))
		}
		c.logger.LogAttrs(ctx, level, text, attrs...)
	}
	c.handled(ctx, event)
}
