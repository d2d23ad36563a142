package reply

import (
	"context"

	"github.com/mailboxmq/mailbox"
)

// HandleOptions configure Handle and HandleStream. The zero value, and nil, are
// the defaults.
type HandleOptions[R any] struct {
	// Codec encodes answers, and must be that of the clients. Nil means JSON.
	Codec mailbox.Codec[R]
	// Final decides whether a failure is the last word on a request, after it
	// was delivered so many times. If it is, the client gets the error and the
	// request is acked; if not, the handler returns the error, and its caller
	// gives the message back to be tried again, or dead-letters it and answers
	// then. Nil means that every failure is final.
	Final func(deliveries int, err error) bool
}

// Handle makes a handler of serve, a function from request to answer. For each
// message it serves, sends the answer to where the message asks for it, and
// then acks, always in this order:
//
//	handle := reply.Handle(serve, nil)
//	for message, err := range requests.Messages(ctx) {
//		if err == nil {
//			err = handle(ctx, message)
//		}
//		…
//	}
//
// A message whose reply slot wants no answer any more, because a worker has
// answered it before, or it was cancelled, or its time is over, is acked and
// not served. One without a reply address is served and acked.
//
// The handler returns nil when the message is settled. An error leaves it held,
// to be nacked by the caller or to come back when its visibility ends: one of
// serve that is not Final, or that has nobody to be told to, or that came with
// the end of ctx; and one of the reply store, of the resolver or of the mailbox,
// after which good work may have to be done again. No error is made up for a
// reply that could not be sent.
func Handle[T, R any](serve func(context.Context, *mailbox.Message[T]) (R, error), options *HandleOptions[R]) func(context.Context, *mailbox.Message[T]) error {
	var o HandleOptions[R]
	if options != nil {
		o = *options
	}
	return func(ctx context.Context, message *mailbox.Message[T]) error {
		if done, err := answered[R](ctx, message); done || err != nil {
			return err
		}
		value, err := serve(ctx, message)
		switch {
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

// HandleStream is Handle for requests that are answered in parts: serve sends
// them through the stream it is given, and returns when there are no more. Then
// the end of the stream is sent, or the error if that is final, and the message
// is acked. The address has to be that of a mailbox; a reply slot takes one
// answer, and sending a part to it is ErrUnsupported.
//
// A message that is delivered again is served again from the start. Parts that
// were sent before are sent twice then, and the reader drops them by their
// number: so serve has to make the same parts of the same request.
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

// answered acks a message whose slot wants no answer any more, and reports
// whether it did.
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

// final reports whether a failure of serve is to be answered.
func (o *HandleOptions[R]) final(ctx context.Context, deliveries int, err error) bool {
	return ctx.Err() == nil && (o.Final == nil || o.Final(deliveries, err))
}

// settled acks a message that was replied to, with this result, unless replying
// has. A slot that wanted no answer any more is as good as answered.
func settled[T any](ctx context.Context, message *mailbox.Message[T], replied error) error {
	switch {
	case message.Settled():
		return nil
	case replied != nil:
		return replied
	}
	return message.Ack(ctx)
}
