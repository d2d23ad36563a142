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
	// Dedup keeps a second letter of the same work from being sent back; it
	// stays in the box. Nil means that every letter that is chosen is sent.
	Dedup Dedup
	// Pace is waited for before each letter, so that what broke under a few
	// messages is not given all of them at once. worker.NewLimiter makes one, and
	// *rate.Limiter of golang.org/x/time/rate is one. Nil means no limit.
	Pace interface {
		Wait(ctx context.Context) error
	}
}

// Redriven says what a Redrive has done.
type Redriven struct {
	// Moved letters are back in the source mailbox.
	Moved int
	// Duplicates were chosen and left where they are, because Dedup had seen
	// their work before.
	Duplicates int
}

// Redrive sends the letters that are chosen back to the source mailbox, to be
// tried again as if for the first time. One that dies again meanwhile is left to
// the next Redrive.
//
// Letters that a backend keeps move in one step each and stay the same message,
// with the same id. Those in a mailbox are sent with a new id, with everything
// else as it was, and then removed from their mailbox; where the source has a
// dedup window, one that is sent twice within it, because of a crash in between,
// is one message all the same. Letters in a mailbox are taken to be looked at,
// and those not chosen are put back where they were.
//
// A letter that the source refuses, because a limit was lowered for example,
// stays in the box and does not keep the others from going back.
//
// Repeating it is safe. After an error, Redriven says what was moved.
// Codes: ErrFull when the source is full; ErrInvalid if the box has no source;
// ErrInvalid, ErrTooLarge, ErrEncoding and ErrUnsupported for letters that were
// refused, which the error names.
func (b *Box[T]) Redrive(ctx context.Context, selection Selection[T], options *RedriveOptions) (Redriven, error) {
	chooser, err := b.chooser(opRedrive, selection)
	if err != nil {
		return Redriven{}, err
	}
	if b.source == nil {
		return Redriven{}, b.fail(opRedrive, mailbox.ErrInvalid, "source", "is nil")
	}
	r := &redrive[T]{box: b, sent: make(map[string]bool)}
	if options != nil {
		r.options = *options
	}
	if b.letters == nil {
		err = r.kept(ctx, chooser)
		return r.done, err
	}
	chooser.oneByOne = r.options.Pace != nil
	r.done.Moved, err = b.scan(ctx, chooser, func(message *mailbox.Message[Letter[T]]) (bool, error) {
		return r.moveBack(ctx, message)
	})
	return r.done, errors.Join(err, errors.Join(r.refused...))
}

// redrive is one call of Box.Redrive.
type redrive[T any] struct {
	box     *Box[T]
	options RedriveOptions
	sent    map[string]bool // what this call has sent back, by identity or first id
	done    Redriven
	refused []error // what was wrong with letters that the source did not take
}

// refusedMax bounds how many of them are told: there may be as many as letters.
const refusedMax = 10

// duplicate reports whether the work of a letter was sent back before.
func (r *redrive[T]) duplicate(ctx context.Context, letter *Letter[T]) (bool, error) {
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

// pace waits until the next letter may go.
func (r *redrive[T]) pace(ctx context.Context) error {
	if r.options.Pace == nil {
		return nil
	}
	return r.options.Pace.Wait(ctx)
}

// paceHolding is pace with a letter in hand, which must not be lost meanwhile.
func (r *redrive[T]) paceHolding(ctx context.Context, message *mailbox.Message[Letter[T]]) error {
	if r.options.Pace == nil {
		return nil
	}
	waiting, done := context.WithCancel(ctx)
	var holding sync.WaitGroup
	holding.Go(func() {
		for {
			backoff.Pause(waiting, scanVisibility/3)
			if waiting.Err() != nil {
				return
			}
			// If it fails, the next one may work. If the letter is lost, whoever
			// has it meets the dedup key.
			_ = message.Extend(waiting, scanVisibility)
		}
	})
	defer holding.Wait()
	defer done()
	return r.pace(ctx)
}

// mark remembers that the work of a letter was sent back.
func (r *redrive[T]) mark(ctx context.Context, identity string) error {
	if r.options.Dedup == nil {
		return nil
	}
	return r.options.Dedup.Mark(ctx, identity)
}

// moveBack sends one letter of a mailbox back and removes it.
func (r *redrive[T]) moveBack(ctx context.Context, message *mailbox.Message[Letter[T]]) (bool, error) {
	letter := &message.Body
	if r.sent[letter.firstID()] {
		return false, nil // it has died again meanwhile
	}
	if duplicate, err := r.duplicate(ctx, letter); err != nil || duplicate {
		return false, err
	}
	if err := r.paceHolding(ctx, message); err != nil {
		return false, err
	}
	if err := r.box.resend(ctx, letter); refused(err) {
		if len(r.refused) < refusedMax {
			r.refused = append(r.refused, fmt.Errorf("letter of %s: %w", letter.MessageID, err))
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
		err = nil // it is sent; whoever has the letter now meets the dedup key
	}
	return err == nil, err
}

// kept is Redrive for letters that a backend keeps.
func (r *redrive[T]) kept(ctx context.Context, c *chooser[T]) error {
	source, atOnce := r.box.source, idsAtOnce
	if r.options.Pace != nil {
		atOnce = 1
	} else if c.all() && r.options.Dedup == nil {
		moved, err := source.RedriveAll(ctx, c.Limit)
		r.done.Moved = moved
		return err
	}
	letters, err := r.box.choose(ctx, c, func(letter *Letter[T]) (bool, error) {
		duplicate, err := r.duplicate(ctx, letter)
		r.sent[letter.identity()] = true
		return duplicate, err
	})
	if err != nil {
		return err
	}
	for step := range slices.Chunk(letters, atOnce) {
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

// refused reports whether a letter could not be sent back for what it is, and not
// for what is the matter with its mailbox.
func refused(err error) bool {
	return errors.Is(err, mailbox.ErrInvalid) || errors.Is(err, mailbox.ErrTooLarge) ||
		errors.Is(err, mailbox.ErrEncoding) || errors.Is(err, mailbox.ErrUnsupported)
}

// resend sends the message that a letter is of to the source again. The dedup
// key makes a repeat harmless where the source remembers keys; a conflict says
// that it was sent before, by an encoder that does not encode twice the same.
func (b *Box[T]) resend(ctx context.Context, letter *Letter[T]) error {
	marked := maps.Clone(letter.Attributes)
	if marked == nil {
		marked = make(map[string]string)
	}
	marked[AttributeRedrives] = strconv.Itoa(letter.Redrives + 1)
	if marked[AttributeOriginalID] == "" {
		marked[AttributeOriginalID] = letter.MessageID
	}
	err := b.resendWith(ctx, letter, marked)
	if e, ok := errors.AsType[*mailbox.Error](err); ok && e.Code == mailbox.ErrInvalid && e.Field == "Attributes" {
		// It had as many as there may be. To be counted matters less than to go.
		err = b.resendWith(ctx, letter, letter.Attributes)
	}
	if errors.Is(err, mailbox.ErrConflict) {
		return nil
	}
	return err
}

func (b *Box[T]) resendWith(ctx context.Context, letter *Letter[T], attributes map[string]string) error {
	options := []mailbox.SendOption{
		mailbox.WithAttributes(attributes), mailbox.WithGroup(letter.Group),
		mailbox.WithReplyTo(letter.ReplyTo), mailbox.WithCorrelationID(letter.CorrelationID),
	}
	if letter.ReplyTo != "" && letter.CorrelationID == "" {
		// Replies are tied to requests by the id, which changes now.
		options = append(options, mailbox.WithCorrelationID(letter.MessageID))
	}
	if b.source.Traits().DedupWindow > 0 {
		options = append(options, mailbox.WithDedupKey(dedupKey("redrive", b.source.Name(), letter.MessageID)))
	}
	_, err := b.source.Send(ctx, letter.Body, options...)
	return err
}
