package reply

import (
	"context"

	"github.com/mailboxmq/mailbox"
)

// HandleOptions configure Handle and HandleStream. The zero value, and nil, are
// the defaults.
type HandleOptions[R any] struct {
	// Codec encodes answers. It must match that of the clients. Nil means JSON.
	Codec mailbox.Codec[R]
	// Final decides whether a failure of a request is final, given its number of
	// deliveries. If so, the client gets the error and the request is acked; if not,
	// the handler returns the error, and its caller nacks the message, or
	// dead-letters it and then answers. Nil means that every failure is final.
	Final func(deliveries int, err error) bool
}

// Handle makes a handler from serve, a function that returns the answer to a
// request. For each message the handler calls serve, sends the answer to the reply
// address, and then acks, always in this order:
//
//	handle := reply.Handle(serve, nil)
//	for message, err := range requests.Messages(ctx) {
//		if err == nil {
//			err = handle(ctx, message)
//		}
//		…
//	}
//
// A message whose reply slot needs no answer any more, because it was answered,
// cancelled or has expired, is acked and not served. A message without a reply
// address is served and acked.
//
// If the client cancels the request while serve runs, the context of serve ends within
// five seconds, and context.Cause returns ErrReplyCancelled. If serve returns an error
// then, the message is acked.
//
// The handler returns nil when the message is settled. After an error the message is
// still in flight, for the caller to nack or to come back when its visibility ends.
// It returns an error of serve that is not final, that has no reply address, or that
// came with the end of ctx; and an error of the reply store, the resolver or the
// mailbox, after which serve may run again. It never sends an error reply because an
// answer could not be sent.
func Handle[T, R any](serve func(context.Context, *mailbox.Message[T]) (R, error), options *HandleOptions[R]) func(context.Context, *mailbox.Message[T]) error {
	var o HandleOptions[R]
	if options != nil {
		o = *options
	}
	return func(ctx context.Context, message *mailbox.Message[T]) error {
		if done, err := answered[R](ctx, message); done || err != nil {
			return err
		}
		value, cancelled, err := untilCancelled(ctx, message, serve)
		switch {
		case err != nil && cancelled:
			return message.Ack(ctx)
		case err != nil && (!message.ExpectsReply() || !o.final(ctx, message.Deliveries, err)):
			return err
		case err != nil:
			err = mailbox.ReplyError(ctx, message, err)
		case message.ExpectsReply():
			err = mailbox.ReplyWith(ctx, message, o.Codec, value)
		}
		return settled(ctx, message, err)
	}
}

// HandleStream is Handle for requests that are answered in parts: serve sends them
// through the stream, and returns when there are no more. Then the handler sends the
// end of the stream, or the error if it is final, and acks the message. The reply
// address must be a mailbox; a reply slot takes one answer, and sending a part to it
// is ErrUnsupported.
//
// A message that is delivered again is served again from the start. Parts are then
// sent twice, and the reader drops repeats by their number: so serve must make the
// same parts from the same request.
func HandleStream[T, R any](serve func(context.Context, *mailbox.Message[T], *Stream[R]) error, options *HandleOptions[R]) func(context.Context, *mailbox.Message[T]) error {
	var o HandleOptions[R]
	if options != nil {
		o = *options
	}
	return func(ctx context.Context, message *mailbox.Message[T]) error {
		if done, err := answered[R](ctx, message); done || err != nil {
			return err
		}
		stream := NewStream(message, o.Codec)
		err := serve(ctx, message, stream)
		switch {
		case err != nil && (!message.ExpectsReply() || !o.final(ctx, message.Deliveries, err)):
			return err
		case err != nil:
			err = stream.Fail(ctx, err)
		case message.ExpectsReply():
			err = stream.End(ctx)
		}
		return settled(ctx, message, err)
	}
}

// answered acks a message whose slot needs no answer any more, and reports whether
// it did.
func answered[R, T any](ctx context.Context, message *mailbox.Message[T]) (bool, error) {
	if !message.ExpectsReply() {
		return false, nil
	}
	open, err := mailbox.NewReplyChannel[R](message, nil).Open(ctx)
	if open || err != nil {
		return false, err
	}
	return true, message.Ack(ctx)
}

// final reports whether a failure of serve must be answered.
func (o *HandleOptions[R]) final(ctx context.Context, deliveries int, err error) bool {
	return ctx.Err() == nil && (o.Final == nil || o.Final(deliveries, err))
}

// settled acks a message after a reply with this result, unless the reply has
// settled it.
func settled[T any](ctx context.Context, message *mailbox.Message[T], replied error) error {
	switch {
	case message.Settled():
		return nil
	case replied != nil:
		return replied
	}
	return message.Ack(ctx)
}
