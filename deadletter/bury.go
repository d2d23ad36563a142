package deadletter

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
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
	// Kept says that the backend keeps the letter: it keeps all of this box, or
	// this one is too large for the mailbox of letters.
	Kept bool
}

// Bury makes a dead letter of a message that failed with cause, always in this
// order: it writes the letter, tells who waits for an answer, if somebody does,
// and acks the message. Where the backend keeps the letters, writing and
// acking are one step, and the reply follows; so it is with a message that is too
// large for the mailbox of letters. The reply is best effort: nothing
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
	if err := b.write(ctx, message, &burial, cause); err != nil {
		return burial, &BuryError{StepWrite, err}
	}
	burial.ReplyErr = b.notify(ctx, message, cause)
	if burial.Kept {
		return burial, nil
	}
	if err := message.AckUnanswered(ctx); err != nil {
		return burial, &BuryError{StepAck, err}
	}
	return burial, nil
}

// shortError is how much of the error is told of a message that hardly leaves room
// for it.
const shortError = 256

// write puts the letter into the box. What is told about the death gives way to
// the message; one that is too large all the same is left to its backend, because
// otherwise it could never die.
func (b *Box[T]) write(ctx context.Context, message *mailbox.Message[T], burial *Burial[T], cause error) error {
	letter := &burial.Letter
	if b.letters != nil {
		err := b.send(ctx, letter)
		if errors.Is(err, mailbox.ErrTooLarge) {
			letter.Stack, letter.Result = "", nil
			letter.LastError = strings.ToValidUTF8(letter.LastError[:min(len(letter.LastError), shortError)], "")
			err = b.send(ctx, letter)
		}
		if !errors.Is(err, mailbox.ErrTooLarge) || !b.source.Traits().DeadLetters {
			return err
		}
	}
	burial.Kept = true
	if result := resultOf(cause); result != nil {
		cause = fmt.Errorf("%w%s%s", cause, resultMark, result)
	}
	return message.DeadLetter(ctx, letter.Reason, cause)
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
