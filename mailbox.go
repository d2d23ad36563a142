package mailbox

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// The names that operations have in errors.
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
	opUsage       = "usage"
	opClose       = "close"
)

// Records of package driver that are the same for every type of body.
type (
	// Sent is the result of sending one message: its id, and whether it is the
	// one of an earlier send with the same dedup key.
	Sent = driver.Sent
	// Stats counts the messages of a queue by state.
	Stats = driver.Stats
	// Traits says what a queue promises and where its limits are.
	Traits = driver.Traits
)

// Options configures a Mailbox. The zero Options, and nil, are the defaults.
type Options[T any] struct {
	// Codec turns bodies into bytes and back. Nil means JSON.
	Codec Codec[T]
	// Poison decides what becomes of a delivery whose body cannot be decoded;
	// err says why. It is called before Receive returns, from many goroutines
	// at once, and must not change the delivery. Nil means the zero
	// Disposition: the dead letters where the backend has them, and otherwise
	// a nack with the longest delay.
	Poison func(ctx context.Context, delivery driver.Delivery, err error) Disposition
	// Resolver finds the mailboxes that requests name as their reply address,
	// and Replies keeps the slots that others name. Messages are bound to both
	// when they are received. Nil means that requests with such an address
	// cannot be answered, nor, if it is a slot, acked but by AckUnanswered.
	Resolver Resolver
	Replies  driver.ReplyStore
	// Hooks are called for what the mailbox does. Nil means none.
	Hooks *Hooks
	// Logger logs what no caller gets as an error: undecodable messages, and
	// messages that could not be released. Nil means no log.
	Logger *slog.Logger
}

// A Mailbox sends and receives values of type T through one queue. Make one
// with Open or New. Its methods may be called from many goroutines at once.
//
// Every method that takes a context can block for as long as the backend takes
// and returns early, with the context's own error, when the context ends. Every
// method can return ErrClosed after Close, ErrUnavailable when the backend does
// not answer, and ErrInvalid; the codes named at each method come on top.
type Mailbox[T any] struct {
	name     string
	queue    atomic.Pointer[driver.Queue]
	codec    Codec[T]
	decoder  MessageDecoder[T] // the codec, if it is one
	sendOnly bool
	resolver Resolver
	replies  driver.ReplyStore
	poison   func(context.Context, driver.Delivery, error) Disposition
	hooks    Hooks
	logger   *slog.Logger

	closeOnce sync.Once
	closed    chan struct{} // closed by Close, to end pauses
	closeErr  error         // what the queue's Close returned; set by closeOnce

	// reopen opens the next queue of the name; nil if the mailbox cannot.
	reopen func(ctx context.Context) (driver.Queue, error)
	mu     sync.Mutex // held while queue changes
}

// Open opens the queue called name and returns a mailbox on it, which the
// caller closes. It may block on I/O. Codes: those of the backend's OpenQueue,
// such as ErrInvalid for the name and ErrNotFound where queues are not created
// on use.
//
// When the queue is deleted and created again, the mailbox receives from the new one:
// a worker goes on. Everything else fails with ErrNotFound until a receive has found
// the new queue.
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

// New returns a mailbox on a queue that is open already, and which it owns
// from then on: Close closes it. New does no I/O. With a nil queue every
// method of the mailbox returns ErrInvalid.
func New[T any](name string, queue driver.Queue, options *Options[T]) *Mailbox[T] {
	m := &Mailbox[T]{name: withoutPassword(name), closed: make(chan struct{})}
	m.queue.Store(&queue)
	if options != nil {
		m.codec, m.poison, m.logger = options.Codec, options.Poison, options.Logger
		m.resolver, m.replies = options.Resolver, options.Replies
		if options.Hooks != nil {
			m.hooks = *options.Hooks
		}
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

// Name returns the name the mailbox was made with, without the password if that is
// an address with one: it is told to logs and metrics.
func (m *Mailbox[T]) Name() string { return m.name }

// Queue returns the queue beneath, for what this package does not offer. It is
// the mailbox's: do not close it. It is nil if New was given nil.
func (m *Mailbox[T]) Queue() driver.Queue {
	if queue := m.queue.Load(); queue != nil {
		return *queue
	}
	return nil
}

// Traits says what the queue promises and where its limits are. It does no
// I/O.
func (m *Mailbox[T]) Traits() Traits {
	if m.Queue() == nil {
		return Traits{}
	}
	return m.Queue().Traits()
}

// Stats counts the messages in each state, exactly where Traits says so.
// Repeating it is safe.
func (m *Mailbox[T]) Stats(ctx context.Context) (Stats, error) {
	if err := m.ready(ctx, opStats); err != nil {
		return Stats{}, err
	}
	return m.Queue().Stats(ctx)
}

// Purge removes all ready, delayed and in-flight messages for ever and returns
// how many there were; messages that are being worked on cannot be settled any
// more. Dead letters stay: see PurgeDead. Repeating it is safe. Codes: ErrFull
// if Traits.PurgeCooldown has not passed since the last one.
func (m *Mailbox[T]) Purge(ctx context.Context) (removed int, err error) {
	if err := m.ready(ctx, opPurge); err != nil {
		return 0, err
	}
	return m.Queue().Purge(ctx)
}

// Close closes the mailbox and its queue handle: receives that wait return
// ErrClosed at once, and so does everything called later, without asking the
// backend. Messages that were received and not settled come back when their
// visibility ends. The queue itself, and other mailboxes on it, are not
// touched. Closing twice is fine and gives the same answer.
func (m *Mailbox[T]) Close() error {
	if m.Queue() == nil {
		return m.nilQueue(opClose)
	}
	m.closeOnce.Do(func() {
		close(m.closed)
		m.mu.Lock()
		defer m.mu.Unlock()
		m.closeErr = m.Queue().Close()
	})
	return m.closeErr
}

// ready returns why op cannot be asked of the backend, and nil if it can.
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

// pause blocks for d, or until the context ends or the mailbox is closed, and
// then returns why.
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
