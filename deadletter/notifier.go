package deadletter

import (
	"context"

	"github.com/mailboxmq/mailbox"
)

// A Notifier tells who waits for the answer to a message that there will be none,
// because it has failed for good. It must be safe for concurrent use.
type Notifier[T any] interface {
	// Waits reports whether there is anybody to tell. It does not block.
	Waits(message *mailbox.Message[T]) bool
	// Fail tells them. It may be repeated after an error. The codes that say that
	// nobody waits any more are ErrReplyAlreadySent, ErrReplyCancelled and
	// ErrReplyExpired.
	Fail(ctx context.Context, message *mailbox.Message[T], failure error) error
}

// ErrorReplies is the Notifier that sends an error reply to where the message
// asks for one. It is what boxes and loops use unless they are told otherwise.
type ErrorReplies[T any] struct{}

// Waits reports whether the message has a reply address.
func (ErrorReplies[T]) Waits(message *mailbox.Message[T]) bool { return message.ExpectsReply() }

// Fail sends the error as the reply. Codes: those of mailbox.ReplyChannel.Fail.
func (ErrorReplies[T]) Fail(ctx context.Context, message *mailbox.Message[T], failure error) error {
	return mailbox.NewReplyChannel[struct{}](message, nil).Fail(ctx, failure)
}

// WithNotifier returns a box with the same letters that tells failures through
// notifier; nil means ErrorReplies.
func (b *Box[T]) WithNotifier(notifier Notifier[T]) *Box[T] {
	other := *b
	other.notifier = notifier
	if notifier == nil {
		other.notifier = ErrorReplies[T]{}
	}
	return &other
}
