package mailbox

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/identifier"
)

// The names of operations in errors.
const (
	opOpen        = "open"
	opSend        = "send"
	opReceive     = "receive"
	opExtend      = "extend"
	opPurge       = "purge"
	opStats       = "stats"
	opPeek        = "peek"
	opRedrive     = "redrive"
	opDiscard     = "discard"
	opPurgeDead   = "purge dead letters"
	opListDead    = "dead-letters"
	opMove        = "move"
	opForgetDedup = "forget dedup keys"
	opThrottle    = "throttle"
	opPause       = "pause"
	opResume      = "resume"
	opEdit        = "edit"
	opUsage       = "usage"
	opClose       = "close"
)

// Records of package driver that are the same for every type of body.
type (
	// Sent is the result of sending one message: its id, and whether an earlier send
	// with the same dedup key made it.
	Sent = driver.Sent
	// Stats counts the messages of a queue by state.
	Stats = driver.Stats
	// Traits are the guarantees and limits of a queue.
	Traits = driver.Traits
)

// Options configures a Mailbox. The zero Options, and nil, are the defaults.
type Options[T any] struct {
	// Codec turns bodies into bytes and back. Nil means JSON.
	Codec Codec[T]
	// Poison decides what happens to a delivery whose body cannot be decoded; err
	// says why. It is called before Receive returns, from many goroutines at once,
	// and must not change the delivery. Nil means the zero Disposition: dead-letter
	// it, or nack it with the longest delay if the backend keeps no dead letters.
	Poison func(ctx context.Context, delivery driver.Delivery, err error) Disposition
	// Resolver finds the mailboxes that requests name as their reply address, and
	// Replies stores the answers of requests that name a reply slot. Messages use
	// both as they were when the message was received. Nil means that requests with
	// such an address cannot be answered; one that names a slot can then only be
	// acked with AckUnanswered.
	Resolver Resolver
	Replies  driver.ReplyStore
	// Hooks are called when the mailbox sends, receives and settles.
	Hooks Hooks
	// Logger gets events that no caller gets as an error: undecodable messages, and
	// messages that could not be released. Nil means no log.
	Logger *slog.Logger
}

// A Mailbox sends and receives values of type T through one queue. Make one with
// OpenURL, Open or New. It is safe for concurrent use.
//
// Every method that takes a context can block for as long as the backend takes, and
// returns early, with the error of the context, when the context ends. Every method can
// return ErrClosed after Close, ErrUnavailable when the backend does not answer, and
// ErrInvalid, in addition to the codes that it names.
type Mailbox[T any] struct {
	name     string
	queue    atomic.Pointer[driver.Queue]
	codec    Codec[T]
	decoder  MessageDecoder[T] // the codec, if it is one
	sendOnly bool
	resolver Resolver
	replies  driver.ReplyStore
	watched  watchedSlots // of requests that are being worked on
	poison   func(context.Context, driver.Delivery, error) Disposition
	hooks    Hooks
	logger   *slog.Logger

	closeOnce sync.Once
	closed    chan struct{} // closed by Close, to end pauses
	closeErr  error         // the error of the queue's Close; set by closeOnce
	release   func() error  // releases the backend; nil if the caller has it

	// reopen opens the queue again after it was deleted; nil if that is not possible.
	reopen func(ctx context.Context) (driver.Queue, error)
	mu     sync.Mutex // held while queue changes
}

// Open opens the queue called name and returns a mailbox on it, which the caller
// closes. It may block on I/O. Codes: those of the backend's OpenQueue, such as
// ErrInvalid for the name and ErrNotFound if opening does not create queues.
//
// When the queue is deleted and created again, the mailbox receives from the new one,
// so that a worker continues. All other methods return ErrNotFound until a receive has
// found the new queue.
func Open[T any](ctx context.Context, backend driver.Opener, name string, options *Options[T]) (*Mailbox[T], error) {
	switch {
	case ctx == nil:
		return nil, &Error{Code: ErrInvalid, Op: opOpen, Queue: name, Field: "ctx", Detail: "is nil"}
	case backend == nil:
		return nil, &Error{Code: ErrInvalid, Op: opOpen, Queue: name, Field: "backend", Detail: "is nil"}
	}
	queue, err := backend.OpenQueue(ctx, name)
	if err != nil {
		return nil, err
	}
	m := New(name, queue, options)
	m.reopen = reopener(backend, name)
	return m, nil
}

// New returns a mailbox on an open queue and takes ownership of it: Close closes it.
// New does no I/O. With a nil queue every method of the mailbox returns ErrInvalid.
func New[T any](name string, queue driver.Queue, options *Options[T]) *Mailbox[T] {
	m := &Mailbox[T]{name: identifier.WithoutPassword(name), closed: make(chan struct{})}
	m.queue.Store(&queue)
	if options != nil {
		m.codec, m.poison, m.logger = options.Codec, options.Poison, options.Logger
		m.resolver, m.replies, m.hooks = options.Resolver, options.Replies, options.Hooks
	}
	if m.codec == nil {
		m.codec = JSON[T]()
	}
	m.decoder, _ = m.codec.(MessageDecoder[T])
	m.sendOnly = sendOnly(m.codec)
	if m.logger == nil {
		m.logger = slog.New(slog.DiscardHandler)
	}
	return m
}

// Name returns the name that the mailbox was made with. If that is an address with a
// password, the password is left out, because logs and metrics contain the name.
func (m *Mailbox[T]) Name() string { return m.name }

// Queue returns the queue of the backend, for operations that this package does not
// offer. The mailbox owns it: do not close it. It is nil if New was given nil.
func (m *Mailbox[T]) Queue() driver.Queue {
	if queue := m.queue.Load(); queue != nil {
		return *queue
	}
	return nil
}

// Traits returns the guarantees and limits of the queue. It does no I/O.
func (m *Mailbox[T]) Traits() Traits {
	if m.Queue() == nil {
		return Traits{}
	}
	return m.Queue().Traits()
}

// Stats counts the messages in each state, and says whether the queue is paused. Traits
// says whether the counts are exact.
// Repeating it is safe.
func (m *Mailbox[T]) Stats(ctx context.Context) (Stats, error) {
	if err := m.ready(ctx, opStats); err != nil {
		return Stats{}, err
	}
	return m.Queue().Stats(ctx)
}

// Purge removes all ready, delayed and in-flight messages permanently and returns how
// many there were. Receivers cannot settle them any more. Dead letters stay: see
// PurgeDead. Repeating it is safe. Codes: ErrFull if Traits.PurgeCooldown has not passed
// since the last purge.
func (m *Mailbox[T]) Purge(ctx context.Context) (removed int, err error) {
	if err := m.ready(ctx, opPurge); err != nil {
		return 0, err
	}
	return m.Queue().Purge(ctx)
}

// Throttle delivers no message of a group for a time, 0 to 24 hours, to any receiver: what a
// server that answers with Retry-After asks for. It does not shorten an earlier Throttle, except
// that 0 ends it. It survives restarts where messages do. Repeating it is safe. Codes: ErrInvalid,
// ErrFull if 1,000 groups are throttled, ErrUnsupported if Traits.GroupLimits is not set.
func (m *Mailbox[T]) Throttle(ctx context.Context, group string, wait time.Duration) error {
	if err := m.ready(ctx, opThrottle); err != nil {
		return err
	}
	return m.Queue().Throttle(ctx, group, wait)
}

// Pause stops deliveries until Resume, for all receivers of the queue in all processes:
// receives wait, and return no messages when their wait ends. Sends and settling go on, and
// leases, delays and retention run. A durable queue stays paused over restarts. Repeating it
// is safe. Codes: ErrUnsupported if Traits.Pause is not set.
func (m *Mailbox[T]) Pause(ctx context.Context) error {
	if err := m.ready(ctx, opPause); err != nil {
		return err
	}
	return m.Queue().Pause(ctx)
}

// Resume ends a pause, and wakes the receives that wait. Repeating it is safe. Codes:
// ErrUnsupported if Traits.Pause is not set.
func (m *Mailbox[T]) Resume(ctx context.Context) error {
	if err := m.ready(ctx, opResume); err != nil {
		return err
	}
	return m.Queue().Resume(ctx)
}

// Edit changes one message that waits, ready or delayed: it is removed, made ready, or gets
// another due time. It returns the state that the message was in. Codes: ErrNotFound,
// ErrConflict if the message is in flight or dead, ErrInvalid, ErrUnsupported if Traits.Edit
// is not set.
func (m *Mailbox[T]) Edit(ctx context.Context, id string, edit Edit) (was State, err error) {
	if err := m.ready(ctx, opEdit); err != nil {
		return "", err
	}
	return m.Queue().Edit(ctx, id, edit)
}

// Close closes the mailbox and its queue handle: waiting receives return ErrClosed at
// once, and so do all later calls, without a call of the backend. Messages that were
// received and not settled are delivered again when their visibility ends. The queue
// and other mailboxes on it are not affected. A mailbox of OpenURL releases its backend too.
// Closing again returns the same error.
func (m *Mailbox[T]) Close() error {
	if m.Queue() == nil {
		return m.nilQueue(opClose)
	}
	m.closeOnce.Do(func() {
		close(m.closed)
		m.mu.Lock()
		defer m.mu.Unlock()
		m.closeErr = m.Queue().Close()
		if m.release != nil {
			m.closeErr = errors.Join(m.closeErr, m.release())
		}
	})
	return m.closeErr
}

// ready returns an error if op cannot be asked of the backend.
func (m *Mailbox[T]) ready(ctx context.Context, op string) error {
	switch {
	case m.Queue() == nil:
		return m.nilQueue(op)
	case ctx == nil:
		return m.fail(op, ErrInvalid, "ctx", "is nil")
	}
	select {
	case <-m.closed:
		return m.fail(op, ErrClosed, "", "")
	default:
		return nil
	}
}

func (m *Mailbox[T]) nilQueue(op string) error {
	return m.fail(op, ErrInvalid, "queue", "is nil")
}

// pause blocks for d. It returns an error if the context ends or the mailbox is closed
// before.
func (m *Mailbox[T]) pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-m.closed:
		return m.fail(opReceive, ErrClosed, "", "")
	}
}

// reopener returns a function that opens the queue called name if it exists, or nil if
// the backend cannot tell without creating it.
func reopener(backend driver.Opener, name string) func(context.Context) (driver.Queue, error) {
	admin, ok := backend.(driver.Admin)
	if !ok {
		return nil
	}
	return func(ctx context.Context) (driver.Queue, error) {
		// ErrForbidden comes from a daemon, where opening does not create a queue.
		if _, err := admin.QueueConfig(ctx, name); err != nil && !errors.Is(err, ErrForbidden) {
			return nil, err
		}
		return backend.OpenQueue(ctx, name)
	}
}

// follow replaces a deleted queue with the one that now has its name, if there is one.
// Without it, a loop would wait on the handle of a deleted queue indefinitely.
func (m *Mailbox[T]) follow(ctx context.Context, deleted *driver.Queue) {
	if m.reopen == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.queue.Load() != deleted || m.ready(ctx, opReceive) != nil {
		return
	}
	next, err := m.reopen(ctx)
	if err != nil {
		return // the next receive tries again
	}
	m.queue.Store(&next)
	_ = (*deleted).Close() // the queue does not exist
}
