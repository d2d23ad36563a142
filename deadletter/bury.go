package deadletter

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/driver"
)

// replyWithin bounds how long the error reply may take: it is a courtesy, and
// the message is held meanwhile.
const replyWithin = 5 * time.Second

// A Step is a part of burying a message that can fail.
type Step string

// The steps.
const (
	// StepWrite puts the letter into the box.
	StepWrite Step = "write"
	// StepAck removes the message from its mailbox. Where the backend keeps the
	// letters, writing does that.
	StepAck Step = "ack"
)

// A BuryError is a message that could not be buried, and how far it came. If
// Step is StepWrite, there is no letter and nobody was told: nack the message.
// If it is StepAck, everything but the ack is done: repeat
// Message.AckUnanswered, or let the message come back and be buried again.
type BuryError struct {
	Step Step
	Err  error
}

// Error says which step failed, and why.
func (e *BuryError) Error() string { return fmt.Sprintf("bury: %s: %v", e.Step, e.Err) }

// Unwrap returns the error of the step.
func (e *BuryError) Unwrap() error { return e.Err }

// Burial is a message that was buried.
type Burial[T any] struct {
	Letter Letter[T]
	// ReplyErr says why the sender of a request could not be told. It is nil if
	// that worked, and if there was nobody to tell.
	ReplyErr error
}

// Bury makes a dead letter of a message that failed with cause, always in this
// order: it writes the letter, tells who waits for an answer, if somebody does,
// and acks the message. Where the backend keeps the letters, writing and
// acking are one step, and the reply follows. The reply is best effort: nothing
// waits for it for longer than a few seconds, and the message is acked even if
// nobody could be told.
//
// Whatever fails, nothing is lost. If writing fails nothing has happened. A
// message whose ack failed comes back, and burying it again within the dedup
// window of the mailbox of letters, if that has one, makes no second letter. The
// error is a *BuryError. Codes: ErrFull when the box is full; ErrReceiptExpired
// when the message was lost to somebody else.
func (b *Box[T]) Bury(ctx context.Context, message *mailbox.Message[T], reason mailbox.Reason, cause error) (Burial[T], error) {
	if err := b.Check(); err != nil {
		return Burial[T]{}, &BuryError{StepWrite, err}
	}
	if b.source == nil {
		return Burial[T]{}, &BuryError{StepWrite, b.fail(opBury, mailbox.ErrInvalid, "source", "is nil")}
	}
	burial := Burial[T]{Letter: b.newLetter(message, cause, reason)}
	if b.letters == nil {
		if err := b.keep(ctx, message, &burial.Letter, cause); err != nil {
			return burial, &BuryError{StepWrite, err}
		}
		burial.ReplyErr = b.notify(ctx, message, cause)
		return burial, nil
	}
	if err := b.send(ctx, &burial.Letter); err != nil {
		return burial, &BuryError{StepWrite, err}
	}
	burial.ReplyErr = b.notify(ctx, message, cause)
	if err := message.AckUnanswered(ctx); err != nil {
		return burial, &BuryError{StepAck, err}
	}
	return burial, nil
}

// keep makes a dead letter of the message with its backend. A message that is
// settled takes no reply, so one that wants a reply is buried behind the back of
// the Message value, which then knows nothing of it.
func (b *Box[T]) keep(ctx context.Context, message *mailbox.Message[T], letter *Letter[T], cause error) error {
	if !message.ExpectsReply() {
		return message.DeadLetter(ctx, letter.Reason, cause)
	}
	keeper, ok := b.source.Queue().(driver.DeadLetterer)
	if !ok {
		return b.fail(opBury, mailbox.ErrUnsupported, "", "the backend keeps no dead letters")
	}
	err := keeper.DeadLetter(ctx, []driver.Burial{{
		Receipt: message.Receipt, Reason: letter.Reason, Error: letter.LastError, ErrorType: letter.ErrorType,
	}})
	return mailbox.ErrorAt(err, 0)
}

// send puts the letter into its mailbox. Within the dedup window of that, a
// conflict says that a letter of this message is there: only the times on it,
// or the error, were others.
func (b *Box[T]) send(ctx context.Context, letter *Letter[T]) error {
	var options []mailbox.SendOption
	if b.letters.Traits().DedupWindow > 0 {
		options = append(options, mailbox.WithDedupKey(dedupKey("dead", letter.Source, letter.MessageID)))
	}
	_, err := b.letters.Send(ctx, *letter, options...)
	if errors.Is(err, mailbox.ErrConflict) {
		return nil
	}
	return err
}

// notify tells who waits for an answer that there will be none.
func (b *Box[T]) notify(ctx context.Context, message *mailbox.Message[T], cause error) error {
	if !b.notifier.Waits(message) {
		return nil
	}
	text := fmt.Sprintf("dead-lettered after %d deliveries", message.Deliveries)
	failure := errors.New(text)
	if cause != nil {
		failure = fmt.Errorf("%s: %w", text, cause)
	}
	ctx, cancel := context.WithTimeout(ctx, replyWithin)
	defer cancel()
	err := b.notifier.Fail(ctx, message, failure)
	switch {
	case errors.Is(err, mailbox.ErrReplyAlreadySent), errors.Is(err, mailbox.ErrReplyCancelled), errors.Is(err, mailbox.ErrReplyExpired):
		return nil // nobody waits any more
	}
	return err
}

// dedupKey is a key for what is done to one message of one mailbox.
func dedupKey(what, source, id string) string {
	key := what + "/" + source + "/" + id
	if len(key) <= driver.MaxDedupKeyBytes {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return what + "/" + hex.EncodeToString(sum[:])
}
