package worker

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/deadletter"
)

// answerTimeout bounds the attempts to send an answer. After that the message is
// nacked.
const answerTimeout = time.Minute

// failSafely calls fail and nacks the message if a function of the options panics.
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

// fail settles a message whose handler failed.
func (r *run[T]) fail(settling context.Context, j *job[T], o *outcome) {
	message, policy := j.message, r.loop.options.DeadLetters
	switch {
	case o.kind == outcomeUnanswerable:
		r.unanswerable(settling, j, o.err)
	case o.kind == outcomeOverLimit:
		r.deadLetter(settling, j, mailbox.ReasonMaxDeliveries, o)
	case o.kind == outcomeDiscard:
		r.answer(settling, j, o.cause(), ResultDiscarded)
	case o.kind == outcomeThrottle:
		r.throttle(settling, j, o)
	case o.kind == outcomeRetry && o.err == nil:
		r.putBack(settling, j, o.delay, nil)
	case o.kind == outcomeUnsent && errors.Is(o.err, mailbox.ErrNoReplyTo) && atLimit(policy, message):
		r.deadLetterQuietly(settling, j, mailbox.ReasonMaxDeliveries, o.err)
	case o.kind == outcomeUnsent && (policy == nil || !errors.Is(o.err, mailbox.ErrReplyExpected)):
		// The handler succeeded, so there is no error to reply with.
		r.nack(settling, j, r.delay(j, o), o.cause())
	case policy != nil:
		r.decide(settling, j, o)
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

// longestThrottle is the longest time for which queues throttle a group.
const longestThrottle = 24 * time.Hour

// throttle throttles the group of a message and gives the message back. If the group cannot be
// throttled, the message waits alone.
func (r *run[T]) throttle(ctx context.Context, j *job[T], o *outcome) {
	message, delay := j.message, o.delay
	if message.Group != "" && r.loop.mailbox.Traits().GroupLimits {
		err := r.loop.mailbox.Throttle(ctx, message.Group, min(o.delay, longestThrottle))
		if err == nil {
			delay = 0
		} else {
			r.loop.failed(ctx, slog.LevelWarn, "worker: group could not be throttled", message, err)
		}
	}
	r.putBack(ctx, j, delay, o.err)
}

// delay returns how long a failed message waits for its next delivery.
func (r *run[T]) delay(j *job[T], o *outcome) time.Duration {
	if o.kind == outcomeRetry {
		return o.delay
	}
	return r.loop.options.Backoff(j.message.Deliveries)
}

// decide applies the policy. The client gets the error only if it is final.
func (r *run[T]) decide(settling context.Context, j *job[T], o *outcome) {
	reason, final := mailbox.ReasonFatal, true
	if o.kind != outcomePermanent {
		reason, final = r.loop.options.DeadLetters.Final(settling, j.message, o.cause())
	}
	switch {
	case final:
		r.deadLetter(settling, j, reason, o)
	case r.loop.options.DeadLetters.Forgives(o.cause()):
		r.putBack(settling, j, r.delay(j, o), o.cause())
	default:
		r.nack(settling, j, r.delay(j, o), o.cause())
	}
}

// deadLetter dead-letters a message according to the policy.
func (r *run[T]) deadLetter(ctx context.Context, j *job[T], reason mailbox.Reason, o *outcome) {
	r.deadLetterTo(ctx, r.loop.dead, j, reason, o.cause())
}

// deadLetterTo dead-letters a message to a dead-letter queue.
func (r *run[T]) deadLetterTo(ctx context.Context, to *deadletter.Queue[T], j *job[T], reason mailbox.Reason, cause error) {
	done, err := to.DeadLetter(ctx, j.message, reason, cause)
	failed, isFailed := errors.AsType[*deadletter.StepError](err)
	if isFailed && failed.Step == "write" {
		if errors.Is(err, mailbox.ErrReceiptExpired) || errors.Is(err, mailbox.ErrSettled) {
			r.settle(ctx, j, SettledEvent{Result: ResultLost, Cause: cause})
			return
		}
		r.loop.deadLettersFailing.Store(true)
		r.loop.failed(ctx, slog.LevelError, "worker: dead letter could not be written", j.message, err)
		r.nack(ctx, j, max(r.loop.options.Backoff(j.message.Deliveries), mailbox.RetryAfter(err)), errors.Join(cause, err))
		return
	}
	r.loop.deadLettersFailing.Store(false)
	queue := to.Name()
	if done.Kept {
		queue = r.loop.mailbox.Name()
	}
	attrs := []slog.Attr{
		slog.String("reason", string(reason)), slog.String("dead_letter_queue", queue),
		slog.String("message_id", done.Message.MessageID), slog.String("request_id", done.Message.RequestID),
		slog.String("source_mailbox", done.Message.Source), slog.Int("delivery_count", done.Message.Deliveries),
		slog.String("error_type", done.Message.ErrorType), slog.String("error_message", done.Message.LastError),
	}
	if done.ReplyErr != nil {
		attrs = append(attrs, slog.Any("reply_err", done.ReplyErr))
	}
	r.loop.failed(ctx, slog.LevelWarn, "worker: message dead-lettered", j.message, cause, attrs...)
	if isFailed && !errors.Is(err, mailbox.ErrReceiptExpired) {
		err = r.ackNow(ctx, j, true)
		if err != nil {
			r.loop.failed(ctx, slog.LevelWarn, "worker: message dead-lettered, but it could not be acked", j.message, err)
		}
	}
	r.settle(ctx, j, SettledEvent{Result: ResultDead, Reason: reason, DeadLetterQueue: queue, Cause: cause})
}

// answer sends the error to the sender of a request and acks the message. If the
// reply cannot be sent, it nacks the message instead.
func (r *run[T]) answer(ctx context.Context, j *job[T], cause error, result Result) {
	message := j.message
	if notifier := r.loop.options.Notifier; notifier.Waits(message) {
		answering, cancel := context.WithTimeout(ctx, answerTimeout)
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
	r.loop.failed(ctx, slog.LevelWarn, "worker: message failed and was acked", message, cause, slog.String("result", string(result)))
	r.ackFailedWork(ctx, j, result, cause)
}

// unwanted reports whether a reply was refused because the client does not wait.
func unwanted(err error) bool {
	return errors.Is(err, mailbox.ErrReplyAlreadySent) || errors.Is(err, mailbox.ErrReplyCancelled) || errors.Is(err, mailbox.ErrReplyExpired)
}

// ackFailedWork acks a message whose failure is dealt with.
func (r *run[T]) ackFailedWork(ctx context.Context, j *job[T], result Result, cause error) {
	if err := r.ackNow(ctx, j, true); err != nil {
		r.loop.failed(ctx, slog.LevelWarn, "worker: message could not be acked", j.message, err)
		result, cause = ResultUnsettled, errors.Join(cause, err)
	}
	r.settle(ctx, j, SettledEvent{Result: result, Cause: cause})
}
