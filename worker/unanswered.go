package worker

import (
	"context"
	"log/slog"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/deadletter"
)

// unanswered is the error of a successful handler whose answer was not sent. It
// carries the answer to the dead letter.
type unanswered struct {
	err    error
	result []byte
}

// Error returns why the answer was not sent.
func (u *unanswered) Error() string { return u.err.Error() }

// Unwrap returns the same.
func (u *unanswered) Unwrap() error { return u.err }

// DeadLetterResult returns the encoded answer, for deadletter.Message.Result.
func (u *unanswered) DeadLetterResult() []byte { return u.result }

// newUnanswered returns err with the encoded answer, or without it if it cannot be
// encoded.
func newUnanswered[R any](err error, codec mailbox.Codec[R], answer R) error {
	if codec == nil {
		codec = mailbox.JSON[R]()
	}
	result, _ := codec.Encode(answer)
	return &unanswered{err, result}
}

// silent is a Notifier for messages of successful handlers: there is no error to
// send.
type silent[T any] struct{}

func (silent[T]) Waits(*mailbox.Message[T]) bool { return false }

func (silent[T]) Fail(context.Context, *mailbox.Message[T], error) error { return nil }

// unanswerable settles a message whose reply address this worker can never serve,
// according to Options.OnUnanswerable.
func (r *run[T]) unanswerable(ctx context.Context, j *job[T], cause error) {
	if r.loop.options.OnUnanswerable == AckUnanswerable {
		r.loop.failed(ctx, slog.LevelWarn, "worker: the reply address can never be served, the result is dropped",
			j.message, cause, requestAttr(j.message))
		r.ackFailedWork(ctx, j, ResultUnanswered, cause)
		return
	}
	r.deadLetterQuietly(ctx, j, mailbox.ReasonFatal, cause)
}

// dropResult records that the result of the handler with this context has no reply
// address.
func dropResult(ctx context.Context) {
	if job, ok := ctx.Value(heldKey{}).(held); ok {
		job.dropResult(ctx)
	}
}

// dropResult logs that the result of j is dropped. The hooks get it when the
// message is acked.
func (j *job[T]) dropResult(ctx context.Context) {
	o := &j.run.loop.options
	o.Logger.LogAttrs(ctx, slog.LevelWarn, "worker: no reply address, the result is dropped",
		slog.String("loop", o.Name), slog.String("id", j.id), requestAttr(j.message))
	j.run.mu.Lock()
	defer j.run.mu.Unlock()
	j.dropped = true
}

// ackedEvent returns the event of an acked job.
func (j *job[T]) ackedEvent() SettledEvent {
	if j.dropped {
		return SettledEvent{Result: ResultUnanswered}
	}
	return SettledEvent{Result: ResultAcked}
}

// noLettersDelay is the delay of such a message if its backend keeps no dead letters. It is
// that of an undecodable message.
const noLettersDelay = 15 * time.Minute

// deadLetterQuietly dead-letters a message and sends no error reply.
func (r *run[T]) deadLetterQuietly(ctx context.Context, j *job[T], reason mailbox.Reason, cause error) {
	dead := r.loop.dead
	if dead == nil {
		dead = deadletter.NewQueue(r.loop.mailbox, nil)
	}
	dead = dead.WithNotifier(silent[T]{})
	if dead.Check() != nil {
		r.nack(ctx, j, noLettersDelay, cause)
		return
	}
	r.deadLetterTo(ctx, dead, j, reason, cause)
}

// requestAttr returns the id of the request in the message, for the log.
func requestAttr[T any](message *mailbox.Message[T]) slog.Attr {
	return slog.String("request_id", requestID(message))
}

// requestID returns the id of the request in the message: what the RequestID
// method of its body returns, or the message's id.
func requestID[T any](message *mailbox.Message[T]) string {
	if request, ok := any(message.Body).(interface{ RequestID() string }); ok && request.RequestID() != "" {
		return request.RequestID()
	}
	return message.ID
}
