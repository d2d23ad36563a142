package worker

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/deadletter"
)

// opRun is the name that running a loop has in errors.
const opRun = "run"

// completedMax bounds how many messages a loop remembers whose work is done and
// whose ack is not known to be. There are as many as it holds when a backend goes
// away.
const completedMax = 10_000

// A Loop hands the messages of a mailbox to a handler. Make one with New, and
// run it with Run, alone or in a Group. Its methods may be called from many
// goroutines at once.
type Loop[T any] struct {
	mailbox *mailbox.Mailbox[T]
	handler Handler[T] // with its middleware
	bare    Handler[T] // as it was given
	options Options[T]
	box     *deadletter.Box[T] // nil without a policy
	// completed are messages that the handler was done with when their lease was
	// lost, or that could not be acked. They are acked when they come back.
	completed *recent[struct{}]
	// boxFailing is whether the last dead letter could not be written.
	boxFailing atomic.Bool

	mu      sync.Mutex // guards the fields below
	stopped bool
	aborted bool
	current *run[T] // nil unless it runs
	latest  *run[T] // the current or the last; nil if it never ran
}

// New returns a loop. It does no I/O, and does not check the options: Run does.
// The mailbox stays the caller's, to be closed after the loop has ended.
func New[T any](from *mailbox.Mailbox[T], handler Handler[T], options *Options[T]) *Loop[T] {
	l := &Loop[T]{mailbox: from, bare: handler, completed: newRecent[struct{}](completedMax)}
	if options != nil {
		l.options = *options
	}
	name := ""
	if from != nil {
		name = from.Name()
	}
	l.options = l.options.withDefaults(name)
	l.handler = chain(handler, l.options.Middleware)
	if l.options.DeadLetters != nil && from != nil {
		l.box = l.options.DeadLetters.Box(from).WithNotifier(l.options.Notifier)
	}
	return l
}

// Name returns what the loop is called.
func (l *Loop[T]) Name() string { return l.options.Name }

// Run handles messages until ctx ends or Stop is called, and then drains: it
// gives back what no handler has begun with, waits for handlers up to
// Options.Drain, and cancels and gives back the rest. If it was stopped before,
// it returns at once.
//
// It returns nil when it was told to stop. Errors of the backend do not end it,
// except ErrClosed, when the mailbox was closed. While its queue does not exist,
// it asks again, with pauses that grow, and logs that once. Codes beside this:
// ErrInvalid for an option that is wrong or if it
// runs already, ErrUnsupported if dead letters have no place to go, and ErrStuck
// if handlers have not returned although they were cancelled, which are then left
// behind.
//
// After ctx has ended, the loop may be run again; after Stop it may not.
func (l *Loop[T]) Run(ctx context.Context) error {
	polling, stop := context.WithCancel(ctx)
	defer stop()
	r, err := l.begin(ctx, stop)
	if err != nil || r == nil {
		return err
	}
	defer l.end()
	return r.run(ctx, polling)
}

// RunOnce receives once, without waiting, as many messages as the loop holds at
// most, handles them and settles them, and returns how many there were. It is
// meant for tests, and for programs that some schedule starts. When ctx ends, it
// drains as Run does. Codes: those of Mailbox.Receive, and of Run.
func (l *Loop[T]) RunOnce(ctx context.Context) (handled int, err error) { return l.runOnce(ctx, 0) }

// RunTimes is RunOnce so many times, except that each receive waits for messages,
// up to Options.Wait. It returns early when ctx ends or Stop is called, and after
// an error. Codes: as RunOnce.
func (l *Loop[T]) RunTimes(ctx context.Context, receives int) (handled int, err error) {
	for range receives {
		n, err := l.runOnce(ctx, l.options.Wait)
		handled += n
		if err != nil || l.told(ctx) {
			return handled, err
		}
	}
	return handled, nil
}

// told reports whether the loop was told to stop.
func (l *Loop[T]) told(ctx context.Context) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stopped || ctx.Err() != nil
}

// runOnce is RunOnce with a receive that waits.
func (l *Loop[T]) runOnce(ctx context.Context, wait time.Duration) (handled int, err error) {
	polling, stop := context.WithCancel(ctx)
	defer stop()
	r, err := l.begin(ctx, stop)
	if err != nil || r == nil {
		return 0, err
	}
	defer l.end()
	return r.once(ctx, polling, wait)
}

// Stop tells the loop to drain and end, now or, if it does not run yet, as soon
// as it is run. It does not wait for that.
func (l *Loop[T]) Stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopped = true
	if l.current != nil {
		l.current.stop()
	}
}

// Abort is Stop without the patience: handlers are cancelled at once, also if
// the loop is draining already. It does not wait.
func (l *Loop[T]) Abort() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopped = true
	if !l.aborted {
		l.aborted = true
		if l.current != nil {
			close(l.current.abort)
		}
	}
	if l.current != nil {
		l.current.stop()
	}
}

// begin makes the loop a running one, unless it is to stop before it has begun.
func (l *Loop[T]) begin(ctx context.Context, stop context.CancelFunc) (*run[T], error) {
	if err := l.check(); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.stopped || ctx.Err() != nil:
		return nil, nil
	case l.current != nil:
		return nil, l.invalid("", "it is running already")
	}
	l.current = newRun(l, stop)
	l.latest = l.current
	return l.current, nil
}

func (l *Loop[T]) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.current = nil
}

// check returns why the loop cannot run.
func (l *Loop[T]) check() error {
	switch {
	case l.mailbox == nil:
		return l.invalid("mailbox", "is nil")
	case l.bare == nil:
		return l.invalid("handler", "is nil")
	}
	if err := l.options.check(); err != nil {
		return err
	}
	if l.box != nil {
		return l.box.Check()
	}
	return nil
}

func (l *Loop[T]) invalid(field, detail string) error {
	return &mailbox.Error{Code: mailbox.ErrInvalid, Op: opRun, Queue: l.options.Name, Field: field, Detail: detail}
}

// Running reports whether Run or RunOnce is at work.
func (l *Loop[T]) Running() bool { return l.running() != nil }

// running returns the current run, or nil.
func (l *Loop[T]) running() *run[T] {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.current
}

// LastBeat returns when the backend last answered a receive, or Run began; zero
// if it never ran. A loop whose handlers are all busy does not receive, and is
// not stuck for that: see Oldest.
func (l *Loop[T]) LastBeat() time.Time {
	l.mu.Lock()
	r := l.latest
	l.mu.Unlock()
	if r == nil {
		return time.Time{}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.began.Add(r.answered)
}

// DeadLetterDepth returns how many dead letters there are, and the name of the
// box or mailbox that has them. It blocks as long as the backend takes. Codes:
// ErrUnsupported if there are no dead letters to count.
func (l *Loop[T]) DeadLetterDepth(ctx context.Context) (box string, depth int, err error) {
	from := l.box
	if from == nil {
		from = deadletter.NewBox(l.mailbox, nil)
	}
	depth, err = from.Depth(ctx)
	return from.Name(), depth, err
}

// DeadLettersFailing reports whether the last dead letter could not be written,
// because its box is full or does not answer. The messages concerned stay in
// their mailbox and are tried again.
func (l *Loop[T]) DeadLettersFailing() bool { return l.boxFailing.Load() }
