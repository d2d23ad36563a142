package deadletter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/internal/activity"
	"github.com/mailboxmq/mailbox/internal/backoff"
)

// An Action is what a handler decides about a dead letter.
type Action string

// The actions. The zero Action is Done.
const (
	// Done: the dead letter is dealt with and removed.
	Done Action = ""
	// Redrive: the message goes back to its mailbox to be tried again.
	Redrive Action = "redrive"
	// Drop: the dead letter is given up and removed.
	Drop Action = "drop"
	// Keep: the dead letter stays and is handled again after RetryAfter.
	Keep Action = "keep"
)

// valid reports whether a is one of the actions above.
func (a Action) valid() bool {
	switch a {
	case Done, Redrive, Drop, Keep:
		return true
	}
	return false
}

// A Handler deals with one dead letter. After an error, a panic or an unknown
// action the dead letter stays and is handled again after RetryAfter.
type Handler[T any] func(ctx context.Context, letter Message[T]) (Action, error)

// Defaults of ConsumerOptions.
const (
	defaultRetryAfter = time.Hour
	defaultVisibility = 5 * time.Minute
	defaultPoll       = 30 * time.Second
	defaultDrain      = 20 * time.Second
)

// finishedMax bounds how many handled dead letters that could not be removed a
// consumer remembers. It handles one at a time, so there are hardly ever two.
const finishedMax = 128

// ConsumerOptions configure a Consumer. The zero value, and nil, are the
// defaults.
type ConsumerOptions struct {
	// Name is what the consumer is called in logs, hooks and health reports.
	// Empty means the name of the queue.
	Name string
	// RetryAfter is how long a dead letter whose handler failed waits before it is
	// handled again. 0 means one hour. For dead letters that a backend
	// keeps, a restart forgets it.
	RetryAfter time.Duration
	// Visibility is the lease of a dead letter in a mailbox. It is extended while
	// the handler works. 0 means mailbox.DefaultVisibility.
	Visibility time.Duration
	// Poll is the interval for listing dead letters that a backend keeps, and for
	// measuring the depth. 0 means 30 seconds. Dead letters in a mailbox wake the
	// consumer and are not polled.
	Poll time.Duration
	// Drain is how long the handler may continue after Run was told to stop. 0
	// means 20 seconds, a negative value no time.
	Drain time.Duration
	// Dedup prevents a second redrive of the same work: the second dead letter is
	// removed and counted. Nil means no check.
	Dedup Dedup
	// Hooks are told what happens.
	Hooks Hooks
	// Logger gets what went wrong. Nil means to discard it.
	Logger *slog.Logger
}

// A Consumer hands the dead letters of a queue to a handler, one at a time, oldest
// first. Make one with NewConsumer. It is a worker.Member.
//
// Dead letters in a mailbox are leased, so any number of consumers may share it.
// Those that a backend keeps are not; with two consumers one may be handled twice.
type Consumer[T any] struct {
	queue   *Queue[T]
	handler Handler[T]
	options ConsumerOptions
	logger  *slog.Logger
	// finished has the handled dead letters that could not be removed. They are not
	// handled again.
	finished *memoryDedup

	aborted   chan struct{} // closed by Abort
	abortOnce sync.Once

	// source belongs to Run and RunOnce, of which one runs at a time. It knows
	// which dead letters were put off.
	source claims[T]

	mu      sync.Mutex // guards the fields below
	stopped bool
	stop    context.CancelFunc // of the current Run; nil unless it runs
	running bool
	beat    time.Time
	current *handling
}

// handling is a dead letter at the handler.
type handling struct {
	messageID string
	since     time.Time
	goroutine int64
	cancel    context.CancelCauseFunc
}

// NewConsumer returns a consumer. It does no I/O.
func NewConsumer[T any](queue *Queue[T], handler Handler[T], options *ConsumerOptions) *Consumer[T] {
	c := &Consumer[T]{queue: queue, handler: handler, finished: newMemoryDedup(finishedMax), aborted: make(chan struct{})}
	if options != nil {
		c.options = *options
	}
	o := &c.options
	if o.Name == "" && queue != nil {
		o.Name = queue.Name()
	}
	for _, field := range []struct {
		value    *time.Duration
		standard time.Duration
	}{
		{&o.RetryAfter, defaultRetryAfter},
		{&o.Visibility, defaultVisibility},
		{&o.Poll, defaultPoll},
		{&o.Drain, defaultDrain},
	} {
		if *field.value == 0 {
			*field.value = field.standard
		}
	}
	c.logger = o.Logger
	if c.logger == nil {
		c.logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Name returns the name of the consumer.
func (c *Consumer[T]) Name() string { return c.options.Name }

// DeadLetterDepth returns the name of the queue and its number of dead letters. It
// blocks as long as the backend takes.
func (c *Consumer[T]) DeadLetterDepth(ctx context.Context) (queue string, depth int, err error) {
	depth, err = c.queue.Depth(ctx)
	return c.queue.Name(), depth, err
}

// Run handles dead letters until ctx ends. Then the handler may finish within
// Drain; after that its context is cancelled and the dead letter is put back. Run
// survives backend errors and retries with growing pauses. It waits for a queue
// that does not exist.
//
// It returns nil after ctx has ended, ErrClosed if the mailbox was closed,
// ErrInvalid for a wrong option or if it is running already, ErrUnsupported if
// there are no dead letters to read, and ErrTimeout if the handler did not return
// when it was cancelled.
func (c *Consumer[T]) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if err := c.start(stop); err != nil {
		return err
	}
	defer c.end()
	depth := depthMeter[T]{consumer: c}
	for failures := 0; ctx.Err() == nil; {
		depth.measure(ctx)
		c.Beat()
		claim, err := c.source.claim(ctx, true)
		switch {
		case ctx.Err() != nil && claim == nil:
			return nil
		case hopeless(err):
			return err
		case err != nil:
			failures++
			if failures == 1 {
				c.logger.LogAttrs(ctx, slog.LevelWarn, "deadletter: cannot read dead letters, trying again",
					slog.String("consumer", c.Name()), slog.Any("err", err))
			}
			_ = backoff.Pause(ctx, backoff.AfterError(failures, err))
			continue
		}
		failures = 0
		if claim == nil {
			continue
		}
		if err := c.process(ctx, claim); err != nil {
			return err
		}
	}
	return nil
}

// RunOnce handles the dead letters that are in the queue now, each once, and
// returns how many it handled. It does not wait for others. It is meant for tests
// and for scheduled programs. When ctx ends, it drains as Run does. Codes: those of
// Queue.List or Mailbox.Receive, and of Run.
func (c *Consumer[T]) RunOnce(ctx context.Context) (handled int, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if err := c.start(stop); err != nil {
		return 0, err
	}
	defer c.end()
	most, err := c.queue.Depth(ctx) // a redriven message may come back
	if err != nil {
		return 0, err
	}
	for ctx.Err() == nil && handled < most {
		c.Beat()
		claim, err := c.source.claim(ctx, false)
		if err != nil || claim == nil {
			return handled, err
		}
		handled++
		if err := c.process(ctx, claim); err != nil {
			return handled, err
		}
	}
	return handled, nil
}

// Stop makes the consumer drain and end, now or as soon as Run is called. It does
// not wait for that. A stopped consumer cannot run again.
func (c *Consumer[T]) Stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = true
	if c.stop != nil {
		c.stop()
	}
}

// hopeless reports whether no later attempt to read dead letters can succeed.
func hopeless(err error) bool {
	return errors.Is(err, mailbox.ErrClosed) || errors.Is(err, mailbox.ErrInvalid) || errors.Is(err, mailbox.ErrUnsupported)
}

// Abort cancels the drain time: when Run is told to stop, or has been, it cancels
// the handler at once. Abort does not wait.
func (c *Consumer[T]) Abort() { c.abortOnce.Do(func() { close(c.aborted) }) }

// start checks the options and marks the consumer as running; stop ends the run.
func (c *Consumer[T]) start(stop context.CancelFunc) error {
	invalid := func(field, detail string) error {
		return &mailbox.Error{Code: mailbox.ErrInvalid, Op: opConsume, Queue: c.Name(), Field: field, Detail: detail}
	}
	switch {
	case c.queue == nil:
		return invalid("queue", "is nil")
	case c.handler == nil:
		return invalid("handler", "is nil")
	case c.options.RetryAfter < 0:
		return invalid("RetryAfter", fmt.Sprintf("%v is negative", c.options.RetryAfter))
	case c.options.Visibility < 0:
		return invalid("Visibility", fmt.Sprintf("%v is negative", c.options.Visibility))
	case c.options.Poll < 0:
		return invalid("Poll", fmt.Sprintf("%v is negative", c.options.Poll))
	}
	if err := c.queue.Check(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running {
		return invalid("", "the consumer is already running")
	}
	c.running, c.beat, c.stop = true, time.Now(), stop
	if c.source == nil {
		c.source = c.newClaims()
	}
	if c.stopped {
		stop()
	}
	return nil
}

func (c *Consumer[T]) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running, c.stop = false, nil
}

// Running reports whether Run or RunOnce is running.
func (c *Consumer[T]) Running() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.running
}

// Beat records progress. A handler that works for long calls it, so that the
// watchdog of a worker.Group does not report it as stuck.
func (c *Consumer[T]) Beat() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.beat = time.Now()
	if c.current != nil {
		c.current.since = c.beat
	}
}

// Activity returns what the consumer is doing, for the watchdog and the health
// report of a worker.Group.
func (c *Consumer[T]) Activity() activity.Activity {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := activity.Activity{LastBeat: c.beat}
	if at := c.current; at != nil {
		now.MessageID, now.Since, now.Goroutine, now.Interrupt = at.messageID, at.since, at.goroutine, at.cancel
	}
	return now
}

// call runs the handler and turns a panic into an error.
func (c *Consumer[T]) call(ctx context.Context, letter Message[T]) (action Action, err error) {
	defer func() {
		if value := recover(); value != nil {
			err = fmt.Errorf("panic: %v\n%s", value, debug.Stack())
		}
	}()
	return c.handler(ctx, letter)
}
