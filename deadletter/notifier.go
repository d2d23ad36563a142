package deadletter

import (
	"context"

	"github.com/mailboxmq/mailbox"
)

// A Notifier tells the sender of a request that the request has failed for good. It
// must be safe for concurrent use.
type Notifier[T any] interface {
	// Waits reports whether the sender expects an answer. It does not block.
	Waits(message *mailbox.Message[T]) bool
	// Fail sends the failure. It may be repeated after an error. The codes
	// ErrReplyAlreadySent, ErrReplyCancelled and ErrReplyExpired say that the sender
	// does not wait any more.
	Fail(ctx context.Context, message *mailbox.Message[T], failure error) error
}

// ErrorReplies is the default Notifier of queues and loops: it sends an error reply
// to the reply address of the message.
type ErrorReplies[T any] struct{}

// Waits reports whether the message has a reply address.
func (ErrorReplies[T]) Waits(message *mailbox.Message[T]) bool { return message.ExpectsReply() }

// Fail sends the error as the reply. Codes: those of mailbox.ReplyChannel.Fail.
func (ErrorReplies[T]) Fail(ctx context.Context, message *mailbox.Message[T], failure error) error {
	return mailbox.NewReplyChannel[struct{}](message, nil).Fail(ctx, failure)
}

// WithNotifier returns the same queue with another notifier; nil means
// ErrorReplies.
func (q *Queue[T]) WithNotifier(notifier Notifier[T]) *Queue[T] {
	other := *q
	other.notifier = notifier
	if notifier == nil {
		other.notifier = ErrorReplies[T]{}
	}
	return &other
}
