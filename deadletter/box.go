package deadletter

import (
	"context"
	"errors"
	"iter"
	"slices"

	"github.com/mailboxmq/mailbox"
)

// The names that operations have in errors.
const (
	opBury    = "bury"
	opRedrive = "redrive"
	opDiscard = "discard"
	opList    = "list dead letters"
	opConsume = "consume dead letters"
)

// A Box is where the dead letters of one mailbox are: with the mailbox itself, if
// its backend keeps dead letters, or in a mailbox of their own. Make one with
// NewBox or Policy.Box. Its methods may be called from many goroutines at once.
//
// Every method that takes a context can block for as long as the backend takes
// and returns early when the context ends. Beside the codes named at each
// method, all of them return what the mailboxes do: ErrUnavailable, ErrClosed,
// and ErrUnsupported where a backend cannot do what is needed.
type Box[T any] struct {
	source  *mailbox.Mailbox[T]
	letters *mailbox.Mailbox[Letter[T]] // nil if the backend of source keeps them

	notifier  Notifier[T]
	requestID func(body T) string
	traceID   func(attributes map[string]string) string
}

// NewBox returns the box of the dead letters of source, which are in letters or,
// if that is nil, kept by the backend of source. It does no I/O. Source may be
// nil if letters is not; then nothing can be buried in the box and nothing sent
// back from it.
func NewBox[T any](source *mailbox.Mailbox[T], letters *mailbox.Mailbox[Letter[T]]) *Box[T] {
	return &Box[T]{source: source, letters: letters, notifier: ErrorReplies[T]{}}
}

// Name returns the name of the mailbox that the letters are in, which is that of
// the source if its backend keeps them.
func (b *Box[T]) Name() string {
	switch {
	case b.letters != nil:
		return b.letters.Name()
	case b.source != nil:
		return b.source.Name()
	}
	return ""
}

// Check returns nil if the box can be used, and otherwise why not: ErrInvalid if
// it has no mailbox, and ErrUnsupported if the backend keeps no dead letters and
// there is no mailbox for them. It does not block.
func (b *Box[T]) Check() error {
	switch {
	case b.letters != nil:
		return nil
	case b.source == nil:
		return b.fail(opList, mailbox.ErrInvalid, "", "the box has neither a source nor a mailbox of letters")
	case !b.source.Traits().DeadLetters:
		return b.fail(opList, mailbox.ErrUnsupported, "", "the backend keeps no dead letters: name a mailbox for them")
	}
	return nil
}

// Depth counts the letters in the box.
func (b *Box[T]) Depth(ctx context.Context) (int, error) {
	if err := b.Check(); err != nil {
		return 0, err
	}
	if b.letters != nil {
		stats, err := b.letters.Stats(ctx)
		return stats.Waiting(), err
	}
	stats, err := b.source.Stats(ctx)
	return stats.Dead, err
}

// Letters yields the letters in the box without taking or changing any, those
// that a backend keeps oldest death first, those in a mailbox in the order of
// that. An error is yielded last and ends the sequence. Codes: ErrUnsupported
// where the letters are in a mailbox that cannot be looked into.
func (b *Box[T]) Letters(ctx context.Context) iter.Seq2[Letter[T], error] {
	return func(yield func(Letter[T], error) bool) {
		if err := b.Check(); err != nil {
			yield(Letter[T]{}, err)
			return
		}
		if b.letters == nil {
			b.kept(ctx, yield)
			return
		}
		waiting := mailbox.Query{States: []mailbox.State{mailbox.StateReady, mailbox.StateDelayed, mailbox.StateInFlight}}
		for peeked, err := range b.letters.Peek(ctx, waiting) {
			letter := peeked.Body
			if err == nil && peeked.DecodeErr != nil {
				letter = Letter[T]{MessageID: peeked.ID, DecodeErr: peeked.DecodeErr, Raw: peeked.Peeked.Body}
			}
			if !yield(letter, err) || err != nil {
				return
			}
		}
	}
}

// kept yields the letters that the backend keeps.
func (b *Box[T]) kept(ctx context.Context, yield func(Letter[T], error) bool) {
	for kept, err := range b.source.DeadLetters(ctx) {
		if err != nil {
			yield(Letter[T]{}, err)
			return
		}
		if !yield(b.keptLetter(&kept), nil) {
			return
		}
	}
}

// Discard removes the letters that are chosen for ever and returns how many
// there were. So that nobody removes everything by leaving something out, a
// selection without IDs and Match is ErrInvalid; see Mailbox.PurgeDead and
// Mailbox.Purge for that. Letters in a mailbox are taken to be looked at, and
// those not chosen are put back where they were.
func (b *Box[T]) Discard(ctx context.Context, selection Selection[T]) (removed int, err error) {
	chooser, err := b.chooser(opDiscard, selection)
	if err != nil {
		return 0, err
	}
	if chooser.all() {
		return 0, b.fail(opDiscard, mailbox.ErrInvalid, "selection", "chooses everything: purge instead")
	}
	if b.letters != nil {
		return b.scan(ctx, chooser, func(message *mailbox.Message[Letter[T]]) (bool, error) {
			err := message.Ack(ctx)
			if errors.Is(err, mailbox.ErrReceiptExpired) {
				return false, nil // somebody else has it
			}
			return err == nil, err
		})
	}
	chosen, err := b.choose(ctx, chooser, nil)
	if err != nil {
		return 0, err
	}
	for step := range slices.Chunk(chosen, idsAtOnce) {
		n, err := b.source.Discard(ctx, messageIDs(step))
		removed += n
		if err != nil {
			return removed, err
		}
	}
	return removed, nil
}

func (b *Box[T]) fail(op string, code mailbox.Code, field, detail string) error {
	return &mailbox.Error{Code: code, Op: op, Queue: b.Name(), Field: field, Detail: detail}
}
