package worker

import (
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/deadletter"
)

// Defaults of Options.
const (
	DefaultVisibility = mailbox.DefaultVisibility
	DefaultWait       = 20 * time.Second
	DefaultDrain      = 20 * time.Second
)

// Limits of Options.
const (
	MaxConcurrency = 65_536
	MaxPrefetch    = 1_048_576
)

// Options configure a Loop. The zero Options, and nil, are the defaults: one
// message at a time, no time limit, and failures that are tried again.
type Options[T any] struct {
	// Name is what the loop is called in logs, hooks and health reports. Empty
	// means the name of the mailbox.
	Name string
	// Concurrency is how many handlers run at once, at most MaxConcurrency. 0 means 1, which also keeps
	// the order of the queue. In a queue with strict groups, messages of one
	// group are never handled at the same time.
	Concurrency int
	// Prefetch is how many messages are held beyond those, at most MaxPrefetch, so that handlers do
	// not wait for the backend. 0 is right for work that takes long, because what
	// is held waits for this loop although others may be idle. For quick work, a
	// few times Concurrency makes larger and fewer calls of the backend.
	Prefetch int
	// Visibility is how long a message is leased at a time: how soon it comes
	// back if this process dies. 0 means DefaultVisibility.
	Visibility time.Duration
	// NoExtend turns the extending of leases off: a handler has Visibility, and
	// not more.
	NoExtend bool
	// Wait is how long one receive waits for messages. 0 means DefaultWait.
	// Messages end the wait, and so does stopping.
	Wait time.Duration
	// Timeout bounds how long a handler may take with one message: its context
	// ends then, with ErrTimeout as the cause. 0 means no bound.
	Timeout time.Duration
	// Drain is how long handlers may go on after Run was told to stop. 0 means
	// DefaultDrain, a negative value not at all.
	Drain time.Duration
	// Backoff is how long a message that failed waits for its next delivery. Nil
	// means DefaultBackoff.
	Backoff Backoff
	// DeadLetters decides which failures are final, and where such messages go.
	// Nil means that none is, except that a failed request is answered with its
	// error and acked.
	DeadLetters *deadletter.Policy[T]
	// Notifier tells who waits for an answer that there will be none. Nil means
	// deadletter.ErrorReplies: an error reply, if the message asks for replies.
	Notifier deadletter.Notifier[T]
	// OnUnanswerable is what becomes of a request whose reply address this
	// worker can never serve; see mailbox.Unanswerable. The zero value
	// dead-letters it with reason fatal and the result of its work.
	OnUnanswerable Unanswerable
	// Middleware wraps the handler. The first is the outermost.
	Middleware []Middleware[T]
	// Hooks are told what happens.
	Hooks Hooks
	// Logger gets what went wrong. Nil means to discard it.
	Logger *slog.Logger
}

// Unanswerable is what a loop does with a request that it can never answer.
type Unanswerable string

// The ways to deal with such a request.
const (
	// DeadLetterUnanswerable dead-letters it. A letter in a mailbox has the
	// result in Letter.Result; a letter that the backend keeps has it there if it
	// fits into the last error.
	DeadLetterUnanswerable Unanswerable = ""
	// AckUnanswerable acks it, logs it, and counts it as ResultUnanswered.
	AckUnanswerable Unanswerable = "ack"
)

// withDefaults fills in what was left out.
func (o Options[T]) withDefaults(name string) Options[T] {
	if o.Name == "" {
		o.Name = name
	}
	if o.Concurrency == 0 {
		o.Concurrency = 1
	}
	if o.Visibility == 0 {
		o.Visibility = DefaultVisibility
	}
	if o.Wait == 0 {
		o.Wait = DefaultWait
	}
	if o.Drain == 0 {
		o.Drain = DefaultDrain
	}
	if o.Backoff == nil {
		o.Backoff = DefaultBackoff
	}
	if o.Notifier == nil {
		o.Notifier = deadletter.ErrorReplies[T]{}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// check returns why no loop can run like this.
func (o *Options[T]) check() error {
	for _, field := range []struct {
		name  string
		value int64
		text  any
		most  int64
	}{
		{"Concurrency", int64(o.Concurrency), o.Concurrency, MaxConcurrency},
		{"Prefetch", int64(o.Prefetch), o.Prefetch, MaxPrefetch},
		{"Visibility", int64(o.Visibility), o.Visibility, math.MaxInt64},
		{"Wait", int64(o.Wait), o.Wait, math.MaxInt64},
		{"Timeout", int64(o.Timeout), o.Timeout, math.MaxInt64},
	} {
		detail := ""
		switch {
		case field.value < 0:
			detail = fmt.Sprintf("%v is negative", field.text)
		case field.value > field.most:
			detail = fmt.Sprintf("%v is over the limit of %d", field.text, field.most)
		default:
			continue
		}
		return &mailbox.Error{Code: mailbox.ErrInvalid, Op: opRun, Queue: o.Name, Field: field.name, Detail: detail}
	}
	if u := o.OnUnanswerable; u != DeadLetterUnanswerable && u != AckUnanswerable {
		return &mailbox.Error{
			Code: mailbox.ErrInvalid, Op: opRun, Queue: o.Name,
			Field: "OnUnanswerable", Detail: fmt.Sprintf("invalid value %q; want %q or %q", u, DeadLetterUnanswerable, AckUnanswerable),
		}
	}
	return nil
}
