package worker

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/deadletter"
)

// answerWithin bounds how long an answer is being sent that the reply address
// does not take. After that the message is given back.
const answerWithin = time.Minute

// failSafely is fail for a world in which the functions that users give us panic.
func (r *run[T]) failSafely(settling context.Context, j *job[T], err error) {
	defer func() {
		if value := recover(); value != nil {
			panicked := newPanicError(value)
			r.loop.failed(settling, slog.LevelError, "worker: the policy or the backoff panicked", j.message, panicked)
			r.nack(settling, j, DefaultBackoff(j.message.Deliveries), errors.Join(err, panicked))
		}
	}()
	r.fail(settling, j, outcomeOf(err))
}

// fail decides what becomes of a message that was not handled well.
func (r *run[T]) fail(settling context.Context, j *job[T], o *outcome) {
	message, policy := j.message, r.loop.options.DeadLetters
	switch {
	case o.kind == outcomeUnanswerable:
		r.unanswerable(settling, j, o.err)
	case o.kind == outcomeOverLimit:
		r.bury(settling, j, mailbox.ReasonMaxDeliveries, o)
	case o.kind == outcomeDiscard:
		r.answer(settling, j, o.cause(), ResultDiscarded)
	case o.kind == outcomeRetry && o.err == nil:
		r.nack(settling, j, o.delay, nil)
	case o.kind == outcomeUnsent && errors.Is(o.err, mailbox.ErrNoReplyTo) && atLimit(policy, message):
		r.deadLetterQuietly(settling, j, mailbox.ReasonMaxDeliveries, o.err)
	case o.kind == outcomeUnsent && (policy == nil || !errors.Is(o.err, mailbox.ErrReplyExpected)):
		// Good work has no error to answer with, and none is made up.
		r.nack(settling, j, r.delay(j, o), o.cause())
	case policy != nil:
		r.judge(settling, j, o)
	case o.kind == outcomeRetry:
		r.nack(settling, j, o.delay, o.err)
	case r.loop.options.Notifier.Waits(message):
		r.answer(settling, j, o.cause(), ResultAnswered)
	case o.kind == outcomePermanent:
		r.deadLetterQuietly(settling, j, mailbox.ReasonFatal, o.cause())
	default:
		r.nack(settling, j, r.delay(j, o), o.cause())
	}
}

// delay is how long a message that failed waits for its next delivery.
func (r *run[T]) delay(j *job[T], o *outcome) time.Duration {
	if o.kind == outcomeRetry {
		return o.delay
	}
	return r.loop.options.Backoff(j.message.Deliveries)
}

// judge asks the policy. Who waits for an answer is told only if this is the end.
func (r *run[T]) judge(settling context.Context, j *job[T], o *outcome) {
	reason, final := mailbox.ReasonFatal, true
	if o.kind != outcomePermanent {
		reason, final = r.loop.options.DeadLetters.Final(settling, j.message, o.cause())
	}
	if !final {
		r.nack(settling, j, r.delay(j, o), o.cause())
		return
	}
	r.bury(settling, j, reason, o)
}

// bury makes a dead letter of the message.
func (r *run[T]) bury(ctx context.Context, j *job[T], reason mailbox.Reason, o *outcome) {
	r.buryIn(ctx, r.loop.box, j, reason, o.cause())
}

// buryIn makes a dead letter of the message in into.
func (r *run[T]) buryIn(ctx context.Context, into *deadletter.Box[T], j *job[T], reason mailbox.Reason, cause error) {
	burial, err := into.Bury(ctx, j.message, reason, cause)
	failed, isFailed := errors.AsType[*deadletter.BuryError](err)
	if isFailed && failed.Step == deadletter.StepWrite {
		if errors.Is(err, mailbox.ErrReceiptExpired) || errors.Is(err, mailbox.ErrSettled) {
			r.settle(ctx, j, SettledEvent{Result: ResultLost, Cause: cause})
			return
		}
		r.loop.boxFailing.Store(true)
		r.loop.failed(ctx, slog.LevelError, "worker: dead letter could not be written", j.message, err)
		r.nack(ctx, j, max(r.loop.options.Backoff(j.message.Deliveries), mailbox.RetryAfter(err)), errors.Join(cause, err))
		return
	}
	r.loop.boxFailing.Store(false)
	box := into.Name()
	if burial.Kept {
		box = r.loop.mailbox.Name()
	}
	attrs := []slog.Attr{
		slog.String("reason", string(reason)), slog.String("box", box),
		slog.String("message_id", burial.Letter.MessageID), slog.String("request_id", burial.Letter.RequestID),
		slog.String("source_mailbox", burial.Letter.Source), slog.Int("delivery_count", burial.Letter.Deliveries),
		slog.String("error_type", burial.Letter.ErrorType), slog.String("error_message", burial.Letter.LastError),
	}
	if burial.ReplyErr != nil {
		attrs = append(attrs, slog.Any("reply_err", burial.ReplyErr))
	}
	r.loop.failed(ctx, slog.LevelWarn, "worker: message dead-lettered", j.message, cause, attrs...)
	if isFailed && !errors.Is(err, mailbox.ErrReceiptExpired) {
		err = r.ackNow(ctx, j, true)
		if err != nil {
			r.loop.failed(ctx, slog.LevelWarn, "worker: message is dead-lettered, and could not be acked", j.message, err)
		}
	}
	r.settle(ctx, j, SettledEvent{Result: ResultDead, Reason: reason, Box: box, Cause: cause})
}

// answer tells who sent a request that it has failed, and acks it. If that cannot
// be told, the message is given back: it is tried again rather than lost.
func (r *run[T]) answer(ctx context.Context, j *job[T], cause error, result Result) {
	message := j.message
	if notifier := r.loop.options.Notifier; notifier.Waits(message) {
		answering, cancel := context.WithTimeout(ctx, answerWithin)
		err := r.persist(answering, j, "reply", func() error { return notifier.Fail(answering, message, cause) })
		cancel()
		unheard := errors.Is(err, mailbox.ErrNoReplyTo) && result == ResultDiscarded
		if mailbox.Unanswerable(err) && !unheard {
			r.unanswerable(ctx, j, errors.Join(cause, err))
			return
		}
		if err != nil && !unwanted(err) && !unheard {
			r.loop.failed(ctx, slog.LevelWarn, "worker: error reply could not be sent", message, err)
			r.nack(ctx, j, r.loop.options.Backoff(message.Deliveries), errors.Join(cause, err))
			return
		}
	}
	r.loop.failed(ctx, slog.LevelWarn, "worker: message failed and is gone", message, cause, slog.String("result", string(result)))
	r.ackFailedWork(ctx, j, result, cause)
}

// unwanted reports whether a reply was refused because nobody waits for it.
func unwanted(err error) bool {
	return errors.Is(err, mailbox.ErrReplyAlreadySent) || errors.Is(err, mailbox.ErrReplyCancelled) || errors.Is(err, mailbox.ErrReplyExpired)
}

// ackFailedWork acks a message that nothing more is to be done about.
func (r *run[T]) ackFailedWork(ctx context.Context, j *job[T], result Result, cause error) {
	if err := r.ackNow(ctx, j, true); err != nil {
		r.loop.failed(ctx, slog.LevelWarn, "worker: message could not be acked", j.message, err)
		result, cause = ResultUnsettled, errors.Join(cause, err)
	}
	r.settle(ctx, j, SettledEvent{Result: result, Cause: cause})
}
