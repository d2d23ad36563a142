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
	opDeadLetter = "dead-letter"
	opRedrive    = "redrive"
	opDiscard    = "discard"
	opList       = "list dead letters"
	opConsume    = "consume dead letters"
)

// A Queue is the dead-letter queue of one mailbox: kept with the mailbox, if its
// backend keeps dead letters, or a mailbox of its own. Make one with NewQueue or
// Policy.Queue. Its methods may be called from many goroutines at once.
//
// Every method that takes a context can block for as long as the backend takes
// and returns early when the context ends. Beside the codes named at each
// method, all of them return those of the mailboxes: ErrUnavailable, ErrClosed,
// and ErrUnsupported where a backend lacks an ability.
type Queue[T any] struct {
	source  *mailbox.Mailbox[T]
	letters *mailbox.Mailbox[Message[T]] // nil if the backend of source keeps dead letters

	notifier  Notifier[T]
	requestID func(body T) string
	traceID   func(attributes map[string]string) string
}

// NewQueue returns the dead-letter queue of source. Its dead letters are in letters
// or, if that is nil, kept by the backend of source. It does no I/O. Source may be
// nil if letters is not; then DeadLetter and Redrive return ErrInvalid.
func NewQueue[T any](source *mailbox.Mailbox[T], letters *mailbox.Mailbox[Message[T]]) *Queue[T] {
	return &Queue[T]{source: source, letters: letters, notifier: errorReplies[T]{}}
}

// Name returns the name of the mailbox that the dead letters are in: the source,
// if its backend keeps them.
func (q *Queue[T]) Name() string {
	switch {
	case q.letters != nil:
		return q.letters.Name()
	case q.source != nil:
		return q.source.Name()
	}
	return ""
}

// Check returns nil if the queue can be used: ErrInvalid if it has no mailbox, and
// ErrUnsupported if the backend keeps no dead letters and there is no mailbox for
// them. It does not block.
func (q *Queue[T]) Check() error {
	switch {
	case q.letters != nil:
		return nil
	case q.source == nil:
		return q.fail(opList, mailbox.ErrInvalid, "", "the queue has neither a source nor a mailbox for dead letters")
	case !q.source.Traits().DeadLetters:
		return q.fail(opList, mailbox.ErrUnsupported, "", "the backend keeps no dead letters: name a mailbox for them")
	}
	return nil
}

// Depth counts the dead letters.
func (q *Queue[T]) Depth(ctx context.Context) (int, error) {
	if err := q.Check(); err != nil {
		return 0, err
	}
	if q.letters != nil {
		stats, err := q.letters.Stats(ctx)
		return stats.Waiting(), err
	}
	stats, err := q.source.Stats(ctx)
	return stats.Dead, err
}

// List yields the dead letters without taking or changing them. Those that a
// backend keeps come oldest dead-lettering first, those in a mailbox in the order
// of the mailbox. An error is yielded last and ends the sequence. Codes:
// ErrUnsupported where the backend of the mailbox does not support peek.
func (q *Queue[T]) List(ctx context.Context) iter.Seq2[Message[T], error] {
	return func(yield func(Message[T], error) bool) {
		if err := q.Check(); err != nil {
			yield(Message[T]{}, err)
			return
		}
		if q.letters == nil {
			q.kept(ctx, yield)
			return
		}
		waiting := mailbox.Query{States: []mailbox.State{mailbox.StateReady, mailbox.StateDelayed, mailbox.StateInFlight}}
		for peeked, err := range q.letters.Peek(ctx, waiting) {
			letter := peeked.Body
			if err == nil && peeked.DecodeErr != nil {
				letter = Message[T]{MessageID: peeked.ID, DecodeErr: peeked.DecodeErr, Raw: peeked.Peeked.Body}
			}
			if !yield(letter, err) || err != nil {
				return
			}
		}
	}
}

// kept yields the dead letters that the backend keeps.
func (q *Queue[T]) kept(ctx context.Context, yield func(Message[T], error) bool) {
	for kept, err := range q.source.DeadLetters(ctx) {
		if err != nil {
			yield(Message[T]{}, err)
			return
		}
		if !yield(q.keptLetter(&kept), nil) {
			return
		}
	}
}

// Discard removes the dead letters that match and returns how many it removed. A
// filter without IDs and Match is ErrInvalid, so that a forgotten condition does
// not remove everything; see Mailbox.PurgeDead and Mailbox.Purge for that. Dead
// letters in a mailbox are received to compare them, and the others are released
// to where they were.
func (q *Queue[T]) Discard(ctx context.Context, f Filter[T]) (removed int, err error) {
	matching, err := q.newFilter(opDiscard, f)
	if err != nil {
		return 0, err
	}
	if matching.all() {
		return 0, q.fail(opDiscard, mailbox.ErrInvalid, "filter", "matches everything; use Purge or PurgeDead instead")
	}
	if q.letters != nil {
		return q.scan(ctx, matching, func(message *mailbox.Message[Message[T]]) (bool, error) {
			err := message.Ack(ctx)
			if errors.Is(err, mailbox.ErrReceiptExpired) {
				return false, nil // another receiver has it
			}
			return err == nil, err
		})
	}
	found, err := q.match(ctx, matching, nil)
	if err != nil {
		return 0, err
	}
	for step := range slices.Chunk(found, idsPerCall) {
		n, err := q.source.Discard(ctx, messageIDs(step))
		removed += n
		if err != nil {
			return removed, err
		}
	}
	return removed, nil
}

func (q *Queue[T]) fail(op string, code mailbox.Code, field, detail string) error {
	return &mailbox.Error{Code: code, Op: op, Queue: q.Name(), Field: field, Detail: detail}
}

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

// ErrorReplies returns the default Notifier of queues and loops: it sends an error reply
// to the reply address of the message.
func ErrorReplies[T any]() Notifier[T] { return errorReplies[T]{} }

type errorReplies[T any] struct{}

// Waits reports whether the message has a reply address.
func (errorReplies[T]) Waits(message *mailbox.Message[T]) bool { return message.ExpectsReply() }

// Fail sends the error as the reply. Codes: those of mailbox.ReplyChannel.Fail.
func (errorReplies[T]) Fail(ctx context.Context, message *mailbox.Message[T], failure error) error {
	return mailbox.NewReplyChannel[struct{}](message, nil).Fail(ctx, failure)
}

// WithNotifier returns the same queue with another notifier; nil means
// ErrorReplies.
func (q *Queue[T]) WithNotifier(notifier Notifier[T]) *Queue[T] {
	other := *q
	other.notifier = notifier
	if notifier == nil {
		other.notifier = errorReplies[T]{}
	}
	return &other
}
