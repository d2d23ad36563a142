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

// replyTimeout bounds the error reply: it is best effort, and the message is held
// until it ends.
const replyTimeout = 5 * time.Second

// The steps of dead-lettering a message.
const (
	stepWrite = "write" // the dead letter
	stepAck   = "ack"   // the message; where the backend keeps dead letters, writing does both
)

// A StepError says at which step dead-lettering failed. After "write" there is
// no dead letter and no reply: nack the message. After "ack" everything but the
// ack is done: repeat mailbox.Message.AckUnanswered, or let the message come back
// and dead-letter it again.
type StepError struct {
	Step string
	Err  error
}

// Error returns the step and the error of the step.
func (e *StepError) Error() string { return fmt.Sprintf("dead-letter: %s: %v", e.Step, e.Err) }

// Unwrap returns the error of the step.
func (e *StepError) Unwrap() error { return e.Err }

// DeadLettered is the result of DeadLetter.
type DeadLettered[T any] struct {
	Message Message[T]
	// ReplyErr says why the error reply to the sender of a request failed. It is
	// nil if that worked, and if the message expects no reply.
	ReplyErr error
	// Kept says that the backend keeps the dead letter: it keeps all of this queue,
	// or this one is too large for the mailbox of dead letters.
	Kept bool
}

// DeadLetter dead-letters a message that failed with cause, always in this order:
// it writes the dead letter, sends the error reply if the message expects one, and
// acks the message. Where the backend keeps dead letters, writing and acking are
// one step, and the reply follows; a message that is too large for the mailbox of
// dead letters is treated in the same way. The reply is best effort: it may take a
// few seconds, and the message is acked even if the reply fails.
//
// No failure loses the message. If writing fails, nothing has happened. A message
// whose ack failed comes back, and dead-lettering it again within the dedup window
// of the mailbox of dead letters, if it has one, writes no second dead letter. The
// error is a *StepError. Codes: ErrFull when the dead-letter queue is full;
// ErrReceiptExpired when the lease was lost.
func (q *Queue[T]) DeadLetter(ctx context.Context, message *mailbox.Message[T], reason mailbox.Reason, cause error) (DeadLettered[T], error) {
	if err := q.Check(); err != nil {
		return DeadLettered[T]{}, &StepError{stepWrite, err}
	}
	if q.source == nil {
		return DeadLettered[T]{}, &StepError{stepWrite, q.fail(opDeadLetter, mailbox.ErrInvalid, "source", "is nil")}
	}
	done := DeadLettered[T]{Message: q.newLetter(message, cause, reason)}
	if err := q.write(ctx, message, &done, cause); err != nil {
		return done, &StepError{stepWrite, err}
	}
	done.ReplyErr = q.notify(ctx, message, cause)
	if done.Kept {
		return done, nil
	}
	if err := message.AckUnanswered(ctx); err != nil {
		return done, &StepError{stepAck, err}
	}
	return done, nil
}

// shortError bounds the error text in a dead letter whose message leaves little
// room for it.
const shortError = 256

// write writes the dead letter. If it is too large, it drops the stack and the
// result and shortens the error. If that is not enough, the backend of the source
// keeps it, because otherwise the message could never be dead-lettered.
func (q *Queue[T]) write(ctx context.Context, message *mailbox.Message[T], done *DeadLettered[T], cause error) error {
	letter := &done.Message
	if q.letters != nil {
		err := q.send(ctx, letter)
		if errors.Is(err, mailbox.ErrTooLarge) {
			letter.Stack, letter.Result = "", nil
			letter.LastError = strings.ToValidUTF8(letter.LastError[:min(len(letter.LastError), shortError)], "")
			err = q.send(ctx, letter)
		}
		if !errors.Is(err, mailbox.ErrTooLarge) || !q.source.Traits().DeadLetters {
			return err
		}
	}
	done.Kept = true
	if result := resultOf(cause); result != nil {
		cause = fmt.Errorf("%w%s%s", cause, resultMark, result)
	}
	return message.DeadLetter(ctx, letter.Reason, cause)
}

// send sends the dead letter to its mailbox. Within the dedup window of the
// mailbox, a conflict means that a dead letter of this message is there: only its
// times or its error differ.
func (q *Queue[T]) send(ctx context.Context, letter *Message[T]) error {
	var options []mailbox.SendOption
	if q.letters.Traits().DedupWindow > 0 {
		options = append(options, mailbox.WithDedupKey(dedupKey("dead", letter.Source, letter.MessageID)))
	}
	_, err := q.letters.Send(ctx, *letter, options...)
	if errors.Is(err, mailbox.ErrConflict) {
		return nil
	}
	return err
}

// notify sends the error reply to the sender of a request.
func (q *Queue[T]) notify(ctx context.Context, message *mailbox.Message[T], cause error) error {
	if !q.notifier.Waits(message) {
		return nil
	}
	text := fmt.Sprintf("dead-lettered after %d deliveries", message.Deliveries)
	failure := errors.New(text)
	if cause != nil {
		failure = fmt.Errorf("%s: %w", text, cause)
	}
	ctx, cancel := context.WithTimeout(ctx, replyTimeout)
	defer cancel()
	err := q.notifier.Fail(ctx, message, failure)
	switch {
	case errors.Is(err, mailbox.ErrReplyAlreadySent), errors.Is(err, mailbox.ErrReplyCancelled), errors.Is(err, mailbox.ErrReplyExpired):
		return nil // the sender does not wait any more
	}
	return err
}

// dedupKey returns the dedup key of an operation on one message of one mailbox.
func dedupKey(what, source, id string) string {
	key := what + "/" + source + "/" + id
	if len(key) <= driver.MaxDedupKeyBytes {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return what + "/" + hex.EncodeToString(sum[:])
}
