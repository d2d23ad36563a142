package worker

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/internal/backoff"
)

// settleAcks acks the messages of successful handlers, until the run is flushed or
// ctx ends. It takes all that wait and never waits for more, so batches grow with
// the load. It repeats an ack that fails, because the work is done.
func (r *run[T]) settleAcks(ctx context.Context) {
	var batch []*job[T]
	var messages []*mailbox.Message[T]
	quick := false
	for failures := 0; ; {
		batch = r.takeAcks(batch, quick)
		if len(batch) == 0 {
			return
		}
		messages = messages[:0]
		for _, j := range batch {
			messages = append(messages, j.message)
		}
		began := r.now()
		err := mailbox.AckAll(ctx, messages...)
		quick = err == nil && r.now()-began < ackQuick
		clear(messages)
		if err == nil {
			failures = 0
			r.acked(ctx, batch)
			continue
		}
		again := r.ackFailed(ctx, batch, err)
		if len(again) == 0 {
			continue
		}
		if ctx.Err() != nil {
			r.giveUp(ctx, again, err)
			continue
		}
		failures++
		r.loop.backendFailed(ctx, "ack", err)
		_ = backoff.Pause(ctx, backoff.AfterError(failures, err))
		r.mu.Lock()
		r.acks = append(r.acks, again...)
		r.mu.Unlock()
	}
}

// ackQuick is how long an ack, and the handler before it, may take for a worker to
// ack itself. Passing the ack to the settler costs some microseconds but runs beside
// the next receive, which pays off as soon as a backend does I/O.
const ackQuick = 10 * time.Microsecond

// ackAlone acks a message on the goroutine of its worker, if that is the quickest
// way: no other ack waits, and the last one was quick. If it fails, the settler
// continues.
func (r *run[T]) ackAlone(settling context.Context, j *job[T]) {
	r.mu.Lock()
	alone := r.running == 1 && len(r.waiting) == 0 && len(r.acks) == 0 && j.phase == jobRunning
	if alone {
		j.phase = jobSettling
	}
	r.mu.Unlock()
	if !alone {
		return
	}
	if err := j.message.Ack(settling); err != nil {
		if again := r.ackFailed(settling, []*job[T]{j}, err); len(again) > 0 {
			r.loop.backendFailed(settling, "ack", err)
		}
		r.mu.Lock()
		r.quick = false
		r.mu.Unlock()
		return
	}
	j.acked = true
	r.loop.completed.forget(j.id)
	r.loop.settled(settling, j.message, j.ackedEvent())
}

// takeAcks waits for jobs to ack and returns all of them; none when there will be no
// more. It may use the memory of spare, and records whether the acks before were
// quick.
func (r *run[T]) takeAcks(spare []*job[T], quick bool) []*job[T] {
	clear(spare)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.quick = quick
	for len(r.acks) == 0 && !r.flushing {
		r.toSettle.Wait()
	}
	batch := r.acks
	r.acks = spare[:0]
	return batch
}

// acked removes acked jobs from the run.
func (r *run[T]) acked(ctx context.Context, batch []*job[T]) {
	r.mu.Lock()
	for _, j := range batch {
		r.settledLocked(j)
	}
	r.mu.Unlock()
	for _, j := range batch {
		r.loop.completed.forget(j.id)
		r.loop.settled(ctx, j.message, j.ackedEvent())
	}
}

// ackFailed handles a batch of which some acks failed, and returns the jobs to try
// again.
func (r *run[T]) ackFailed(ctx context.Context, batch []*job[T], err error) (again []*job[T]) {
	for i, j := range batch {
		e := mailbox.ErrorAt(err, i)
		switch {
		case e == nil:
			r.acked(ctx, []*job[T]{j})
		case repeatable(e):
			// If the lease ends before an ack succeeds, the message comes back.
			r.loop.completed.put(j.id, struct{}{})
			j.unsure = true
			again = append(again, j)
		default:
			r.ackRefused(ctx, j, e)
		}
	}
	return again
}

// ackRefused removes a job that cannot be acked. Its work is done: if the message
// comes back to this loop, it is acked then.
func (r *run[T]) ackRefused(ctx context.Context, j *job[T], err error) {
	switch {
	case errors.Is(err, mailbox.ErrSettled):
		r.settle(ctx, j, SettledEvent{Result: ResultHandler})
		return
	case errors.Is(err, mailbox.ErrReceiptExpired) && j.unsure:
		// The ack whose answer was lost probably succeeded. If not, the message
		// comes back and is acked then.
		r.loop.completed.put(j.id, struct{}{})
		r.settle(ctx, j, j.ackedEvent())
		return
	}
	r.loop.completed.put(j.id, struct{}{})
	result := ResultUnsettled
	if errors.Is(err, mailbox.ErrReceiptExpired) {
		result = ResultLost
	}
	r.loop.failed(ctx, slog.LevelWarn, "worker: message handled, but it could not be acked", j.message, err)
	r.settle(ctx, j, SettledEvent{Result: result, Cause: err})
}

// giveUp ends the attempts to ack jobs.
func (r *run[T]) giveUp(ctx context.Context, jobs []*job[T], err error) {
	for _, j := range jobs {
		r.ackRefused(ctx, j, err)
	}
}

// repeatable reports whether a call that failed with err may succeed later.
func repeatable(err error) bool {
	for _, code := range []error{
		mailbox.ErrReceiptExpired, mailbox.ErrSettled, mailbox.ErrClosed, mailbox.ErrNotFound, mailbox.ErrInvalid,
		mailbox.ErrUnsupported, mailbox.ErrReplyExpected, mailbox.ErrEncoding, mailbox.ErrTooLarge,
		mailbox.ErrNoReplyTo, mailbox.ErrReplyAlreadySent, mailbox.ErrReplyCancelled, mailbox.ErrReplyExpired,
	} {
		if errors.Is(err, code) {
			return false
		}
	}
	return true
}

// persist repeats do, with pauses, until it succeeds, cannot succeed, or ctx ends.
// Each attempt counts as progress: the handler has returned, and the watchdog must
// not blame it for the backend.
func (r *run[T]) persist(ctx context.Context, j *job[T], op string, do func() error) error {
	for failures := 1; ; failures++ {
		err := do()
		if err == nil || !repeatable(err) || ctx.Err() != nil {
			return err
		}
		j.beat()
		r.loop.backendFailed(ctx, op, err)
		_ = backoff.Pause(ctx, backoff.AfterError(failures, err))
	}
}

// ackNow acks one message and repeats that while it may succeed. If unanswered is
// set, it acks also a message whose reply slot has no answer. The lease is extended
// meanwhile.
func (r *run[T]) ackNow(ctx context.Context, j *job[T], unanswered bool) error {
	tried := false
	return r.persist(ctx, j, "ack", func() error {
		var err error
		if unanswered {
			err = j.message.AckUnanswered(ctx)
		} else {
			err = j.message.Ack(ctx)
		}
		if tried && errors.Is(err, mailbox.ErrReceiptExpired) {
			return nil // the attempt whose answer was lost succeeded
		}
		tried = true
		return err
	})
}

// ackRequest acks a message with a reply slot whose handler succeeded. If the slot
// has no answer, that is a failure of the handler.
func (r *run[T]) ackRequest(settling context.Context, j *job[T]) {
	err := r.ackNow(settling, j, false)
	switch {
	case err == nil:
		r.loop.completed.forget(j.id)
		r.settle(settling, j, SettledEvent{Result: ResultAcked})
	case errors.Is(err, mailbox.ErrReplyExpected):
		r.loop.completed.forget(j.id)
		r.failSafely(settling, j, &outcome{kind: outcomeUnsent, err: err})
	default:
		r.ackRefused(settling, j, err)
	}
}

// nack nacks a message.
func (r *run[T]) nack(ctx context.Context, j *job[T], delay time.Duration, cause error) {
	r.giveBackLater(ctx, j, delay, cause, j.message.Nack)
}

// putBack gives a message back uncounted.
func (r *run[T]) putBack(ctx context.Context, j *job[T], delay time.Duration, cause error) {
	r.giveBackLater(ctx, j, delay, cause, j.message.PutBack)
}

// giveBackLater gives a message back with do, and repeats that while it may succeed and the
// lease lasts.
func (r *run[T]) giveBackLater(
	ctx context.Context, j *job[T], delay time.Duration, cause error,
	do func(context.Context, time.Duration, error) error,
) {
	r.letGo(j)
	r.mu.Lock()
	until := r.began.Add(j.lease.until)
	r.mu.Unlock()
	traits := r.loop.mailbox.Traits()
	delay = max(0, min(delay, traits.MaxVisibility))
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	noted := nackCause(r.loop.options.DeadLetters, j.message, cause)
	err := r.persist(ctx, j, "nack", func() error { return do(ctx, delay, noted) })
	event := SettledEvent{Result: ResultNacked, Delay: delay, Cause: cause}
	switch {
	case err == nil:
		if cause != nil {
			r.loop.failed(ctx, slog.LevelWarn, "worker: message failed, retrying later", j.message, cause, slog.Duration("delay", delay))
		}
	case errors.Is(err, mailbox.ErrSettled):
		event = SettledEvent{Result: ResultHandler, Cause: cause}
	case errors.Is(err, mailbox.ErrReceiptExpired):
		event = SettledEvent{Result: ResultLost, Cause: cause}
	default:
		event = SettledEvent{Result: ResultUnsettled, Cause: errors.Join(cause, err)}
		r.loop.failed(ctx, slog.LevelWarn, "worker: message failed and could not be nacked; it comes back when its visibility ends", j.message, errors.Join(cause, err))
	}
	r.settle(ctx, j, event)
}

// release releases messages that no handler has started. They are ready at once, at
// their own places.
func (r *run[T]) release(ctx context.Context, jobs []*job[T]) {
	r.returnAll(ctx, jobs, ResultReleased, func(ctx context.Context, messages []*mailbox.Message[T]) error {
		return mailbox.ReleaseAll(ctx, messages...)
	})
}

// returnAll nacks or releases messages together and removes their jobs. It repeats
// what fails for a short time; after that the messages come back when their
// visibility ends.
func (r *run[T]) returnAll(ctx context.Context, jobs []*job[T], result Result, do func(context.Context, []*mailbox.Message[T]) error) {
	for _, j := range jobs {
		r.letGo(j)
	}
	calling, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	for failures := 1; len(jobs) > 0; failures++ {
		messages := make([]*mailbox.Message[T], len(jobs))
		for i, j := range jobs {
			messages[i] = j.message
		}
		err := do(calling, messages)
		jobs = r.givenBack(ctx, jobs, result, err, calling.Err() == nil)
		if len(jobs) > 0 {
			_ = backoff.Pause(calling, backoff.AfterError(failures, err))
		}
	}
}

// givenBack removes the jobs that returnAll returned, with err, and returns those to
// try again, if there is time.
func (r *run[T]) givenBack(ctx context.Context, jobs []*job[T], result Result, err error, inTime bool) (again []*job[T]) {
	for i, j := range jobs {
		event := SettledEvent{Result: result}
		switch e := mailbox.ErrorAt(err, i); {
		case e == nil:
		case errors.Is(e, mailbox.ErrSettled):
			event = SettledEvent{Result: ResultHandler}
		case errors.Is(e, mailbox.ErrReceiptExpired) && j.unsure:
			// The attempt whose answer was lost succeeded.
		case errors.Is(e, mailbox.ErrReceiptExpired):
			event = SettledEvent{Result: ResultLost, Cause: e}
		case inTime && repeatable(e):
			j.unsure = true
			again = append(again, j)
			continue
		default:
			event = SettledEvent{Result: ResultUnsettled, Cause: e}
			r.loop.failed(ctx, slog.LevelWarn, "worker: message could not be returned; it comes back when its visibility ends", j.message, e)
		}
		r.settle(ctx, j, event)
	}
	return again
}

// releaseGroup releases the messages that wait behind a message of a strict group
// that was not acked: that one must be handled first, when it comes back.
func (r *run[T]) releaseGroup(ctx context.Context, group string) {
	var behind []*job[T]
	r.mu.Lock()
	kept := r.waiting[:0:0]
	for _, j := range r.waiting {
		if j.group == group {
			behind = append(behind, j)
		} else {
			kept = append(kept, j)
		}
	}
	r.waiting = kept
	r.mu.Unlock()
	r.release(ctx, behind)
}
