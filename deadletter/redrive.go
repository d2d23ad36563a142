package deadletter

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/internal/backoff"
)

// RedriveOptions configure Redrive. The zero value, and nil, are the defaults.
type RedriveOptions struct {
	// Dedup prevents a second redrive of the same work; the second dead letter
	// stays. Nil means that every dead letter that matches is redriven.
	Dedup Dedup
	// Pace limits the rate, so that a repaired handler does not get all messages at
	// once: Wait is called before each dead letter. worker.NewLimiter makes one,
	// and *rate.Limiter of golang.org/x/time/rate is one. Nil means no limit.
	Pace interface {
		Wait(ctx context.Context) error
	}
}

// Redriven is the result of Redrive.
type Redriven struct {
	// Moved counts the messages that are back in the source mailbox.
	Moved int
	// Duplicates counts the dead letters that match and stay, because Dedup had
	// seen their work before.
	Duplicates int
}

// Redrive sends the dead letters that match back to the source mailbox, to be tried
// again as if for the first time. A message that is dead-lettered again during the
// call is left to the next Redrive.
//
// Dead letters that a backend keeps move in one step each and keep their id. Those
// in a mailbox are sent with a new id, everything else unchanged, and then removed
// from their mailbox; if a crash in between sends one twice within the dedup window
// of the source, it is one message all the same. Dead letters in a mailbox are
// received to compare them, and the others are released to where they were.
//
// A dead letter that the source refuses, for example because a limit was lowered,
// stays and does not stop the others.
//
// Repeating it is safe. After an error, Redriven says what was moved.
// Codes: ErrFull when the source is full; ErrInvalid if the queue has no source;
// ErrInvalid, ErrTooLarge, ErrEncoding and ErrUnsupported for refused dead letters,
// which the error names.
func (q *Queue[T]) Redrive(ctx context.Context, f Filter[T], options *RedriveOptions) (Redriven, error) {
	matching, err := q.newFilter(opRedrive, f)
	if err != nil {
		return Redriven{}, err
	}
	if q.source == nil {
		return Redriven{}, q.fail(opRedrive, mailbox.ErrInvalid, "source", "is nil")
	}
	r := &redrive[T]{queue: q, sent: make(map[string]bool)}
	if options != nil {
		r.options = *options
	}
	if q.letters == nil {
		err = r.kept(ctx, matching)
		return r.done, err
	}
	matching.oneByOne = r.options.Pace != nil
	r.done.Moved, err = q.scan(ctx, matching, func(message *mailbox.Message[Message[T]]) (bool, error) {
		return r.moveBack(ctx, message)
	})
	return r.done, errors.Join(err, errors.Join(r.refused...))
}

// A redrive is one call of Queue.Redrive.
type redrive[T any] struct {
	queue   *Queue[T]
	options RedriveOptions
	sent    map[string]bool // redriven by this call, by identity or first id
	done    Redriven
	refused []error // errors of dead letters that the source refused
}

// refusedMax bounds how many refusals the error lists.
const refusedMax = 10

// duplicate reports whether the work of a dead letter was redriven before.
func (r *redrive[T]) duplicate(ctx context.Context, letter *Message[T]) (bool, error) {
	if r.options.Dedup == nil {
		return false, nil
	}
	seen, err := r.options.Dedup.Seen(ctx, letter.identity())
	if err != nil {
		return false, err
	}
	if seen || r.sent[letter.identity()] {
		r.done.Duplicates++
		return true, nil
	}
	return false, nil
}

// pace waits until the next dead letter may go.
func (r *redrive[T]) pace(ctx context.Context) error {
	if r.options.Pace == nil {
		return nil
	}
	return r.options.Pace.Wait(ctx)
}

// paceHolding is pace that extends the lease of message while it waits.
func (r *redrive[T]) paceHolding(ctx context.Context, message *mailbox.Message[Message[T]]) error {
	if r.options.Pace == nil {
		return nil
	}
	waiting, done := context.WithCancel(ctx)
	var holding sync.WaitGroup
	holding.Go(func() {
		for {
			_ = backoff.Pause(waiting, scanVisibility/3)
			if waiting.Err() != nil {
				return
			}
			// If it fails, the next one may succeed. If the lease is lost, the dedup
			// key stops the other receiver.
			_ = message.Extend(waiting, scanVisibility)
		}
	})
	defer holding.Wait()
	defer done()
	return r.pace(ctx)
}

// mark records that the work of a dead letter was redriven.
func (r *redrive[T]) mark(ctx context.Context, identity string) error {
	if r.options.Dedup == nil {
		return nil
	}
	return r.options.Dedup.Mark(ctx, identity)
}

// moveBack redrives one dead letter of a mailbox and removes it.
func (r *redrive[T]) moveBack(ctx context.Context, message *mailbox.Message[Message[T]]) (bool, error) {
	letter := &message.Body
	if r.sent[letter.firstID()] {
		return false, nil // it was dead-lettered again meanwhile
	}
	if duplicate, err := r.duplicate(ctx, letter); err != nil || duplicate {
		return false, err
	}
	if err := r.paceHolding(ctx, message); err != nil {
		return false, err
	}
	if err := r.queue.resend(ctx, letter); refused(err) {
		if len(r.refused) < refusedMax {
			r.refused = append(r.refused, fmt.Errorf("dead letter %s: %w", letter.MessageID, err))
		}
		return false, nil
	} else if err != nil {
		return false, err
	}
	r.sent[letter.firstID()] = true
	if err := r.mark(ctx, letter.identity()); err != nil {
		return false, err
	}
	err := message.Ack(ctx)
	if errors.Is(err, mailbox.ErrReceiptExpired) {
		err = nil // it is sent; the dedup key stops the other receiver
	}
	return err == nil, err
}

// kept redrives dead letters that a backend keeps.
func (r *redrive[T]) kept(ctx context.Context, c *filter[T]) error {
	source, perCall := r.queue.source, idsPerCall
	if r.options.Pace != nil {
		perCall = 1
	} else if c.all() && r.options.Dedup == nil {
		moved, err := source.RedriveAll(ctx, c.Limit)
		r.done.Moved = moved
		return err
	}
	letters, err := r.queue.match(ctx, c, func(letter *Message[T]) (bool, error) {
		duplicate, err := r.duplicate(ctx, letter)
		r.sent[letter.identity()] = true
		return duplicate, err
	})
	if err != nil {
		return err
	}
	for step := range slices.Chunk(letters, perCall) {
		if err := r.pace(ctx); err != nil {
			return err
		}
		moved, err := source.Redrive(ctx, messageIDs(step))
		r.done.Moved += moved
		if err != nil {
			return err
		}
		for i := range step {
			if err := r.mark(ctx, step[i].identity); err != nil {
				return err
			}
		}
	}
	return nil
}

// refused reports whether the source refuses the dead letter itself, as opposed to
// being unable to take any.
func refused(err error) bool {
	return errors.Is(err, mailbox.ErrInvalid) || errors.Is(err, mailbox.ErrTooLarge) ||
		errors.Is(err, mailbox.ErrEncoding) || errors.Is(err, mailbox.ErrUnsupported)
}

// resend sends the message of a dead letter to the source again. The dedup key
// makes a repeat harmless where the source has a dedup window; a conflict means
// that it was sent before, by an encoder whose output varies.
func (q *Queue[T]) resend(ctx context.Context, letter *Message[T]) error {
	marked := maps.Clone(letter.Attributes)
	if marked == nil {
		marked = make(map[string]string)
	}
	marked[attributeRedrives] = strconv.Itoa(letter.Redrives + 1)
	if marked[attributeOriginalID] == "" {
		marked[attributeOriginalID] = letter.MessageID
	}
	err := q.resendWith(ctx, letter, marked)
	if e, ok := errors.AsType[*mailbox.Error](err); ok && e.Code == mailbox.ErrInvalid && e.Field == "Attributes" {
		// There is no room for more attributes. Redriving matters more than counting.
		err = q.resendWith(ctx, letter, letter.Attributes)
	}
	if errors.Is(err, mailbox.ErrConflict) {
		return nil
	}
	return err
}

func (q *Queue[T]) resendWith(ctx context.Context, letter *Message[T], attributes map[string]string) error {
	options := []mailbox.SendOption{
		mailbox.WithAttributes(attributes), mailbox.WithGroup(letter.Group),
		mailbox.WithReplyTo(letter.ReplyTo), mailbox.WithCorrelationID(letter.CorrelationID),
	}
	if letter.ReplyTo != "" && letter.CorrelationID == "" {
		// Replies refer to the message id, which changes now.
		options = append(options, mailbox.WithCorrelationID(letter.MessageID))
	}
	if q.source.Traits().DedupWindow > 0 {
		options = append(options, mailbox.WithDedupKey(dedupKey("redrive", q.source.Name(), letter.MessageID)))
	}
	_, err := q.source.Send(ctx, letter.Body, options...)
	return err
}
