package worker

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/deadletter"
)

// opRun is the operation in errors of running a loop.
const opRun = "run"

// completedMax bounds how many handled messages whose ack is uncertain a loop
// remembers. When a backend becomes unavailable, those are all that it holds.
const completedMax = 10_000

// A Loop hands the messages of a mailbox to a handler. Make one with New, and
// run it with Run, alone or in a Group. Its methods may be called from many
// goroutines at once.
type Loop[T any] struct {
	mailbox *mailbox.Mailbox[T]
	handler Handler[T]   // including middleware
	bare    Handler[T]   // without middleware; nil for batches
	batches *batching[T] // nil for a handler of single messages
	options Options[T]
	dead    *deadletter.Queue[T] // nil without a policy
	// completed has the handled messages whose lease was lost or whose ack failed.
	// They are acked when they come back.
	completed *recent[struct{}]
	// deadLettersFailing is set if the last dead letter could not be written.
	deadLettersFailing atomic.Bool

	mu      sync.Mutex // guards the fields below
	stopped bool
	aborted bool
	current *run[T] // nil unless the loop runs
	latest  *run[T] // the current or the last run; nil if there was none
}

// New returns a loop. It does no I/O, and does not check the options: Run does.
// The caller closes the mailbox after the loop has ended.
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
		l.dead = l.options.DeadLetters.Queue(from).WithNotifier(l.options.Notifier)
	}
	return l
}

// Name returns the name of the loop.
func (l *Loop[T]) Name() string { return l.options.Name }

// Run handles messages until ctx ends or Stop is called, and then drains: it
// releases the messages that no handler has started, waits for handlers up to
// Options.Drain, and cancels and nacks the rest. If it was stopped before, it
// returns at once.
//
// It returns nil when it was told to stop. Backend errors do not end it, except
// ErrClosed, when the mailbox was closed. While its queue does not exist, it
// retries with growing pauses and logs that once. Other codes: ErrInvalid for a
// wrong option or if it is running already, ErrUnsupported if there is no
// dead-letter queue for the policy, and ErrStuck if cancelled handlers have not
// returned; Run does not wait for those.
//
// After ctx has ended, the loop may run again; after Stop it may not.
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
// most, handles and settles them, and returns how many there were. It is meant for
// tests and for scheduled programs. When ctx ends, it drains as Run does. Codes:
// those of Mailbox.Receive, and of Run.
func (l *Loop[T]) RunOnce(ctx context.Context) (handled int, err error) { return l.runOnce(ctx, 0) }

// RunTimes repeats RunOnce receives times, except that each receive waits for
// messages, up to Options.Wait. It returns early when ctx ends or Stop is called,
// and after an error. Codes: as RunOnce.
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

// Stop makes the loop drain and end, now or as soon as Run is called. It does not
// wait for that.
func (l *Loop[T]) Stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopped = true
	if l.current != nil {
		l.current.stop()
	}
}

// Abort is Stop without the drain time: handlers are cancelled at once, also if
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

// begin starts a run and returns it, or nil if the loop was told to stop before.
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
		return nil, l.invalid("", "the loop is already running")
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
	case l.bare == nil && (l.batches == nil || l.batches.handler == nil):
		return l.invalid("handler", "is nil")
	}
	if err := l.options.check(); err != nil {
		return err
	}
	if l.options.Check != nil {
		if err := l.options.Check(); err != nil {
			return err
		}
	}
	if l.batches != nil {
		if err := l.checkBatches(); err != nil {
			return err
		}
	}
	if l.dead != nil {
		return l.dead.Check()
	}
	return nil
}

func (l *Loop[T]) invalid(field, detail string) error {
	return &mailbox.Error{Code: mailbox.ErrInvalid, Op: opRun, Queue: l.options.Name, Field: field, Detail: detail}
}

// Running reports whether Run, RunOnce or RunTimes is running.
func (l *Loop[T]) Running() bool { return l.running() != nil }

// running returns the current run, or nil.
func (l *Loop[T]) running() *run[T] {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.current
}

// DeadLetterDepth returns the name of the dead-letter queue and its number of dead
// letters. It blocks as long as the backend takes. Codes: ErrUnsupported if there
// are no dead letters to count.
func (l *Loop[T]) DeadLetterDepth(ctx context.Context) (queue string, depth int, err error) {
	dead := l.dead
	if dead == nil {
		dead = deadletter.NewQueue(l.mailbox, nil)
	}
	depth, err = dead.Depth(ctx)
	return dead.Name(), depth, err
}
