package worker

import (
	"context"
	"errors"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/internal/backoff"
)

// unsentMax bounds how many unsent answers a Serve handler remembers.
const unsentMax = 1000

// ServeOptions configure Serve. The zero value, and nil, are the defaults.
type ServeOptions[R any] struct {
	// Codec encodes answers, and must be that of the clients. Nil means JSON.
	Codec mailbox.Codec[R]
	// To is where answers to messages without a reply address go. Nil means that
	// they are dropped, which is logged and counted as ResultUnanswered. Their
	// correlation id is the first that exists of: that of the message, the result of
	// the RequestID method of its body, the message's id. The caller closes To.
	To *mailbox.Mailbox[R]
}

// Serve makes a handler from a function that returns the answer to a request. The
// handler sends the answer to the reply address of the message, and then the loop
// acks the message, always in this order:
//
//	loop := worker.New(questions, worker.Serve(answer, nil), nil)
//
// An error of serve is treated like any error of a handler: without a policy the
// client gets it and the request is acked; with one the request is retried, and the
// client gets the error when it is dead-lettered.
//
// If an answer cannot be sent, serve does not run again for it. The handler retries
// the answer for a minute. Then the message is nacked with the usual backoff, and the
// answer is kept and sent when the message comes to this handler again.
//
// A request whose reply slot needs no answer any more is acked and not served. If the
// client cancels the request while serve runs, its context ends, as that of every
// handler does, with ErrReplyCancelled as its cause. A
// reply address that names no mailbox now is a temporary failure, up to the delivery
// limit of the policy or the queue. A reply address that this worker can never serve
// (see mailbox.Unanswerable) is settled according to Options.OnUnanswerable. An
// answer that cannot be encoded, or is too large, is a permanent failure.
func Serve[T, R any](serve func(context.Context, *mailbox.Message[T]) (R, error), options *ServeOptions[R]) Handler[T] {
	var o ServeOptions[R]
	if options != nil {
		o = *options
	}
	unsent := newRecent[R](unsentMax)
	return func(ctx context.Context, message *mailbox.Message[T]) error {
		to := addressee(message, &o)
		if to == nil {
			if _, err := serve(ctx, message); err != nil {
				return err
			}
			dropResult(ctx)
			return nil
		}
		answer, done := unsent.get(message.ID)
		if !done {
			var err error
			if answer, err = serve(ctx, message); err != nil {
				return err
			}
		}
		failed := sendAnswer(ctx, to, answer)
		if failed == nil {
			unsent.forget(message.ID)
			return nil
		}
		failed.err = newUnanswered(failed.err, o.Codec, answer)
		if failed.kind == outcomeUnsent {
			unsent.put(message.ID, answer)
		} else {
			unsent.forget(message.ID)
		}
		return failed
	}
}

// Answer sends an answer to the address that Serve with these options would use,
// once, and does not settle the message. It blocks as a send does, and may be
// repeated. Codes: those of mailbox.ReplyChannel.Send and of Mailbox.Send;
// ErrNoReplyTo if there is no address.
func Answer[T, R any](ctx context.Context, message *mailbox.Message[T], answer R, options *ServeOptions[R]) error {
	var o ServeOptions[R]
	if options != nil {
		o = *options
	}
	to := addressee(message, &o)
	if to == nil {
		return &mailbox.Error{Code: mailbox.ErrNoReplyTo, Op: "reply", MessageID: message.ID}
	}
	return to.Send(ctx, answer)
}

// answers is where the answer to one message goes.
type answers[R any] interface {
	// Send may be repeated.
	Send(ctx context.Context, answer R) error
}

// addressee returns where the answer to a message goes; nil if it has no address.
func addressee[T, R any](message *mailbox.Message[T], o *ServeOptions[R]) answers[R] {
	switch {
	case message.ExpectsReply():
		return mailbox.NewReplyChannel(message, o.Codec)
	case o.To != nil:
		return answersTo[R]{o.To, message.ID, correlationID(message)}
	}
	return nil
}

// correlationID returns the correlation id of the answer to a message.
func correlationID[T any](message *mailbox.Message[T]) string {
	if message.CorrelationID != "" {
		return message.CorrelationID
	}
	return requestID(message)
}

// answersTo sends the answer to one message to a mailbox.
type answersTo[R any] struct {
	mailbox       *mailbox.Mailbox[R]
	messageID     string
	correlationID string
}

// Send sends the answer. Where the mailbox has a dedup window, a repeat has no
// effect, even with another answer.
func (a answersTo[R]) Send(ctx context.Context, answer R) error {
	options := []mailbox.SendOption{mailbox.WithCorrelationID(a.correlationID)}
	if a.mailbox.Traits().DedupWindow > 0 {
		options = append(options, mailbox.WithDedupKey("answer/"+a.messageID))
	}
	_, err := a.mailbox.Send(ctx, answer, options...)
	if errors.Is(err, mailbox.ErrConflict) {
		return nil
	}
	return err
}

// sendAnswer sends an answer and retries for up to answerTimeout. It returns nil if
// the answer was sent or the client does not wait any more.
func sendAnswer[R any](ctx context.Context, to answers[R], answer R) *outcome {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	var before error // of the attempt before, which says more than a timeout
	for failures := 1; ; failures++ {
		err := to.Send(ctx, answer)
		switch {
		case err == nil, unwanted(err):
			return nil
		case mailbox.Unanswerable(err):
			return &outcome{kind: outcomeUnanswerable, err: err}
		case ctx.Err() != nil, errors.Is(err, mailbox.ErrClosed):
			return &outcome{kind: outcomeUnsent, err: errors.Join(before, err)}
		case errors.Is(err, mailbox.ErrNoReplyTo), errors.Is(err, mailbox.ErrNotFound):
			// The mailbox may be created at any time.
		case !repeatable(err):
			return &outcome{kind: outcomePermanent, err: err} // the answer itself is at fault
		}
		before = err
		_ = backoff.Pause(ctx, backoff.AfterError(failures, err))
	}
}
