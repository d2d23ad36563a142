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
	"github.com/mailboxmq/mailbox/internal/backoff"
)

// An Action is what a handler decides about a letter.
type Action string

// The actions. The zero Action is Done.
const (
	// Done: the letter is dealt with, and removed.
	Done Action = ""
	// Replay: the message is sent back to its mailbox to be tried again.
	Replay Action = "replay"
	// Drop: the letter is given up, and removed.
	Drop Action = "drop"
	// Keep: the letter stays, and is shown again after RetryAfter.
	Keep Action = "keep"
)

// valid reports whether a is one of the actions above.
func (a Action) valid() bool {
	switch a {
	case Done, Replay, Drop, Keep:
		return true
	}
	return false
}

// A Handler deals with one letter. An error, a panic or an unknown action leaves
// the letter where it is, to be shown again after RetryAfter.
type Handler[T any] func(ctx context.Context, letter Letter[T]) (Action, error)

// Defaults of ConsumerOptions.
const (
	DefaultRetryAfter = time.Hour
	DefaultVisibility = 5 * time.Minute
	DefaultPoll       = 30 * time.Second
	DefaultDrain      = 20 * time.Second
)

// finishedMax bounds how many letters a consumer remembers that it could not
// remove. It handles one at a time, so there are hardly ever two.
const finishedMax = 128

// ConsumerOptions configure a Consumer. The zero value, and nil, are the
// defaults.
type ConsumerOptions struct {
	// Name is what the consumer is called in logs, hooks and health reports.
	// Empty means the name of the box.
	Name string
	// RetryAfter is when a letter is shown again whose handler failed. 0 means
	// DefaultRetryAfter. A restart forgets it for letters that a backend keeps.
	RetryAfter time.Duration
	// Visibility is how long a letter in a mailbox is held at a time. It is
	// extended while the handler works. 0 means DefaultVisibility.
	Visibility time.Duration
	// Poll is how often a backend is asked for letters that it keeps, and how
	// often the depth is measured. 0 means DefaultPoll. Letters in a mailbox are
	// waited for, not polled.
	Poll time.Duration
	// Drain is how long the handler may go on after Run was told to stop. 0 means
	// DefaultDrain, a negative value not at all.
	Drain time.Duration
	// Dedup keeps a second letter of the same work from being replayed: it is
	// removed and counted. Nil means none.
	Dedup Dedup
	// Hooks are told what happens.
	Hooks Hooks
	// Logger gets what went wrong. Nil means to discard it.
	Logger *slog.Logger
}

// A Consumer hands the letters of a box to a handler, one at a time, oldest
// first. Make one with NewConsumer. It is a member for a worker.Group.
//
// Letters in a mailbox are leased, so any number of consumers may share it.
// Letters that a backend keeps are not; with two consumers a letter may be
// handled twice.
type Consumer[T any] struct {
	box     *Box[T]
	handler Handler[T]
	options ConsumerOptions
	logger  *slog.Logger
	// finished are letters that the handler is done with and that could not be
	// removed. They are not shown to it again.
	finished *Seen

	aborted   chan struct{} // closed by Abort
	abortOnce sync.Once

	// source belongs to Run and RunOnce, of which one runs at a time. It knows
	// which letters were put off.
	source claims[T]

	mu      sync.Mutex // guards the fields below
	stopped bool
	stop    context.CancelFunc // of the current Run; nil unless it runs
	running bool
	beat    time.Time
	current *handling
}

// handling is a letter at the handler.
type handling struct {
	messageID string
	since     time.Time
	goroutine int64
	cancel    context.CancelCauseFunc
}

// NewConsumer returns a consumer. It does no I/O.
func NewConsumer[T any](box *Box[T], handler Handler[T], options *ConsumerOptions) *Consumer[T] {
	c := &Consumer[T]{box: box, handler: handler, finished: NewSeen(finishedMax), aborted: make(chan struct{})}
	if options != nil {
		c.options = *options
	}
	o := &c.options
	if o.Name == "" && box != nil {
		o.Name = box.Name()
	}
	for _, field := range []struct {
		value    *time.Duration
		standard time.Duration
	}{
		{&o.RetryAfter, DefaultRetryAfter},
		{&o.Visibility, DefaultVisibility},
		{&o.Poll, DefaultPoll},
		{&o.Drain, DefaultDrain},
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

// Name returns what the consumer is called.
func (c *Consumer[T]) Name() string { return c.options.Name }

// DeadLetterDepth returns the name of the box and how many letters are in it. It
// blocks as long as the backend takes.
func (c *Consumer[T]) DeadLetterDepth(ctx context.Context) (box string, depth int, err error) {
	depth, err = c.box.Depth(ctx)
	return c.box.Name(), depth, err
}

// Run handles letters until ctx ends. Then the letter at the handler, if there is
// one, may be finished within Drain; after that its context is cancelled and it
// is put back. Run outlives errors of the backend, with pauses that grow. It
// A queue that does not exist is waited for. Run
// returns nil after ctx has ended, ErrClosed if the mailbox was closed,
// ErrInvalid for an option that is wrong or if it runs already, ErrUnsupported if there are no dead letters to read, and
// ErrTimeout if the handler did not return when it was told to.
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
			backoff.Pause(ctx, backoff.AfterError(failures, err))
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

// RunOnce handles the letters that are in the box now, each once, waits for no
// others, and returns how many it has shown to the handler. It is meant for tests,
// and for programs that a schedule starts. When ctx ends, it drains as Run does.
// Codes: those of Box.Letters or Mailbox.Receive, and of Run.
func (c *Consumer[T]) RunOnce(ctx context.Context) (handled int, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if err := c.start(stop); err != nil {
		return 0, err
	}
	defer c.end()
	most, err := c.box.Depth(ctx) // a letter that is replayed may come back
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

// Stop tells the consumer to drain and end, now or, if it does not run yet, as
// soon as it is run. It does not wait for that. A consumer that was stopped cannot
// be run again.
func (c *Consumer[T]) Stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = true
	if c.stop != nil {
		c.stop()
	}
}

// hopeless reports whether no later attempt to read letters can work.
func hopeless(err error) bool {
	return errors.Is(err, mailbox.ErrClosed) || errors.Is(err, mailbox.ErrInvalid) || errors.Is(err, mailbox.ErrUnsupported)
}

// Abort takes away the drain time: when Run is told to stop, or was, the handler
// is cancelled at once. It does not wait.
func (c *Consumer[T]) Abort() { c.abortOnce.Do(func() { close(c.aborted) }) }

// start checks what New could not refuse, and takes down how to stop what begins
// now.
func (c *Consumer[T]) start(stop context.CancelFunc) error {
	invalid := func(field, detail string) error {
		return &mailbox.Error{Code: mailbox.ErrInvalid, Op: opConsume, Queue: c.Name(), Field: field, Detail: detail}
	}
	switch {
	case c.box == nil:
		return invalid("box", "is nil")
	case c.handler == nil:
		return invalid("handler", "is nil")
	case c.options.RetryAfter < 0:
		return invalid("RetryAfter", fmt.Sprintf("%v is negative", c.options.RetryAfter))
	case c.options.Visibility < 0:
		return invalid("Visibility", fmt.Sprintf("%v is negative", c.options.Visibility))
	case c.options.Poll < 0:
		return invalid("Poll", fmt.Sprintf("%v is negative", c.options.Poll))
	}
	if err := c.box.Check(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running {
		return invalid("", "it is running already")
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

// Running reports whether Run is at work.
func (c *Consumer[T]) Running() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.running
}

// Beat is a sign of life. A handler that works for long may give it, so that a
// watchdog does not take it for stuck.
func (c *Consumer[T]) Beat() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.beat = time.Now()
	if c.current != nil {
		c.current.since = c.beat
	}
}

// LastBeat returns when the consumer last gave a sign of life; zero if it never
// ran.
func (c *Consumer[T]) LastBeat() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.beat
}

// Oldest returns the letter that the handler has now, since when without a sign
// of life, and the number of its goroutine. Since is zero if it has none.
func (c *Consumer[T]) Oldest() (messageID string, since time.Time, goroutine int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current == nil {
		return "", time.Time{}, 0
	}
	return c.current.messageID, c.current.since, c.current.goroutine
}

// Interrupt cancels the context of the handler, with this cause, if it has the
// letter of that message.
func (c *Consumer[T]) Interrupt(messageID string, cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current != nil && c.current.messageID == messageID {
		c.current.cancel(cause)
	}
}

// call runs the handler and makes an error of a panic.
func (c *Consumer[T]) call(ctx context.Context, letter Letter[T]) (action Action, err error) {
	defer func() {
		if value := recover(); value != nil {
			err = fmt.Errorf("panic: %v\n%s", value, debug.Stack())
		}
	}()
	return c.handler(ctx, letter)
}
