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
	defaultVisibility = mailbox.DefaultVisibility
	defaultWait       = 20 * time.Second
	defaultDrain      = 20 * time.Second
)

// Limits of Options.
const (
	maxConcurrency = 65_536
	maxPrefetch    = 1_048_576
)

// Options configure a Loop. The zero Options, and nil, are the defaults: one message
// at a time, no time limit, and retries without end.
type Options[T any] struct {
	// Name is the name of the loop in logs, hooks and health reports. Empty means
	// the name of the mailbox.
	Name string
	// Concurrency is how many handlers run at once, at most 65,536. 0 means
	// 1, which also keeps the order of the queue. In a queue with strict groups,
	// messages of one group are never handled at the same time.
	Concurrency int
	// Prefetch is how many more messages are held, at most 1,048,576, so that
	// handlers do not wait for the backend. 0 is right for slow work, because a held
	// message waits for this loop although others may be idle. For quick work, a few
	// times Concurrency makes fewer and larger backend calls.
	Prefetch int
	// Visibility is how long a message is leased at a time: how soon it comes
	// back if this process dies. 0 means mailbox.DefaultVisibility.
	Visibility time.Duration
	// NoExtend turns lease extension off: a handler has Visibility and no more.
	NoExtend bool
	// Wait is how long one receive waits for messages. 0 means 20 seconds. A
	// message or a stop ends the wait early.
	Wait time.Duration
	// Timeout bounds how long a handler may take for one message: its context then
	// ends with ErrTimeout as the cause. 0 means no limit.
	Timeout time.Duration
	// Drain is how long handlers may continue after Run was told to stop. 0 means
	// 20 seconds, a negative value no time.
	Drain time.Duration
	// Backoff is how long a failed message waits for its next delivery. Nil means
	// DefaultBackoff.
	Backoff Backoff
	// DeadLetters decides which failures are final, and where such messages go.
	// Nil means that none is, except that the client of a failed request gets the
	// error and the request is acked.
	DeadLetters *deadletter.Policy[T]
	// Notifier tells the sender of a request that it failed for good. Nil means
	// deadletter.ErrorReplies: an error reply, if the message has a reply address.
	Notifier deadletter.Notifier[T]
	// OnUnanswerable says how to settle a request whose reply address this worker
	// can never serve; see mailbox.Unanswerable. The zero value dead-letters it with
	// reason fatal and the result of its handler.
	OnUnanswerable Unanswerable
	// Middleware wraps the handler. The first is the outermost.
	Middleware []Middleware[T]
	// Hooks are called for what the loop does.
	Hooks Hooks
	// Logger logs failures. Nil means no log.
	Logger *slog.Logger
	// Check, unless nil, says whether the handler can work. Run calls it first and returns
	// its error.
	Check func() error
}

// Unanswerable says how a loop settles a request that it can never answer.
type Unanswerable string

// The ways to settle such a request.
const (
	// DeadLetterUnanswerable dead-letters it, with the result of the handler in
	// deadletter.Message.Result. A backend that keeps dead letters keeps the result
	// if it fits into the last error.
	DeadLetterUnanswerable Unanswerable = ""
	// AckUnanswerable acks it, logs it, and counts it as ResultUnanswered.
	AckUnanswerable Unanswerable = "ack"
)

// withDefaults returns the options with defaults for zero values.
func (o Options[T]) withDefaults(name string) Options[T] {
	if o.Name == "" {
		o.Name = name
	}
	if o.Concurrency == 0 {
		o.Concurrency = 1
	}
	if o.Visibility == 0 {
		o.Visibility = defaultVisibility
	}
	if o.Wait == 0 {
		o.Wait = defaultWait
	}
	if o.Drain == 0 {
		o.Drain = defaultDrain
	}
	if o.Backoff == nil {
		o.Backoff = DefaultBackoff
	}
	if o.Notifier == nil {
		o.Notifier = deadletter.ErrorReplies[T]()
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// check returns an error for the first invalid option.
func (o *Options[T]) check() error {
	for _, field := range []struct {
		name  string
		value int64
		text  any
		most  int64
	}{
		{"Concurrency", int64(o.Concurrency), o.Concurrency, maxConcurrency},
		{"Prefetch", int64(o.Prefetch), o.Prefetch, maxPrefetch},
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
