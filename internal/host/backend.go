package host

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"

	"github.com/mailboxmq/mailbox/driver"
)

// Backend holds queues. It is a driver.Opener, a driver.Admin and a
// driver.Pinger, and safe for concurrent use.
type Backend struct {
	options Options
	clock   clock

	mu     sync.Mutex // guards the fields below, and keeps configurations apart
	queues map[string]*queue
	closed bool
}

// Options configure a Backend.
type Options struct {
	// Defaults is the configuration of queues that are opened without having
	// been configured. An invalid one is reported when a queue is opened.
	Defaults driver.Config
	// MaxBodyBytes bounds bodies; 0 means driver.DefaultMaxBodyBytes.
	MaxBodyBytes int
}

// New returns an empty backend. It does no I/O.
func New(options Options) *Backend {
	b := &Backend{options: options, queues: make(map[string]*queue)}
	b.clock.init()
	if b.options.MaxBodyBytes <= 0 {
		b.options.MaxBodyBytes = driver.DefaultMaxBodyBytes
	}
	return b
}

// OpenQueue returns a handle on the queue called name, which is created if it
// is not there. It does not block. Codes: ErrInvalid, ErrClosed.
func (b *Backend) OpenQueue(ctx context.Context, name string) (driver.Queue, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	q, err := b.openLocked(name)
	if err != nil {
		return nil, err
	}
	return newHandle(q), nil
}

func (b *Backend) openLocked(name string) (*queue, error) {
	if err := driver.CheckName(name); err != nil {
		return nil, err
	}
	if b.closed {
		return nil, &driver.Error{Code: driver.ErrClosed, Op: "open", Queue: name}
	}
	if q := b.queues[name]; q != nil {
		return q, nil
	}
	if err := checkConfig(name, b.options.Defaults); err != nil {
		return nil, err
	}
	q := newQueue(b, name, b.options.Defaults)
	b.queues[name] = q
	if err := b.applyLocked(q, b.options.Defaults); err != nil {
		delete(b.queues, name)
		return nil, err
	}
	return q, nil
}

// ConfigureQueue creates the queue or changes its configuration. Shards and
// StrictGroups are fixed when the queue is created. It does not block. Codes:
// ErrInvalid, ErrUnsupported, ErrClosed.
func (b *Backend) ConfigureQueue(ctx context.Context, name string, config driver.Config) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := driver.CheckName(name); err != nil {
		return err
	}
	if err := checkConfig(name, config); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return &driver.Error{Code: driver.ErrClosed, Op: "configure", Queue: name}
	}
	q := b.queues[name]
	if q == nil {
		q = newQueue(b, name, config)
		b.queues[name] = q
		if err := b.applyLocked(q, config); err != nil {
			delete(b.queues, name)
			return err
		}
		return nil
	}
	if err := q.checkChange(config); err != nil {
		return err
	}
	return b.applyLocked(q, config)
}

// applyLocked puts a valid configuration into force.
func (b *Backend) applyLocked(q *queue, config driver.Config) error {
	var target *queue
	if config.DeadLetterTo != "" {
		for _, other := range b.queues {
			if other.settings.Load().config.DeadLetterTo == q.name {
				return chainError(q.name, other.name+" sends its dead letters here; a dead letter dies only once")
			}
		}
		var err error
		if target, err = b.openTargetLocked(config.DeadLetterTo); err != nil {
			return err
		}
		if next := target.settings.Load().config.DeadLetterTo; next != "" {
			return chainError(q.name, target.name+" sends its own dead letters to "+next)
		}
	}
	q.configure(config, target)
	return nil
}

// openTargetLocked opens a queue for dead letters. The defaults for new queues
// may say where their dead letters go; the one they go to does not inherit
// that.
func (b *Backend) openTargetLocked(name string) (*queue, error) {
	if q := b.queues[name]; q != nil {
		return q, nil
	}
	config := b.options.Defaults
	config.DeadLetterTo = ""
	q := newQueue(b, name, config)
	b.queues[name] = q
	q.configure(config, nil)
	return q, nil
}

func chainError(name, detail string) error {
	return &driver.Error{Code: driver.ErrInvalid, Op: "configure", Queue: name, Field: "DeadLetterTo", Detail: detail}
}

// checkConfig refuses what no queue of this name can honour.
func checkConfig(name string, config driver.Config) error {
	if err := config.Validate(); err != nil {
		return err
	}
	if config.DeadLetterTo == name {
		return chainError(name, "names the queue itself")
	}
	shards := max(config.Shards, 1)
	for _, bound := range []struct {
		field string
		value int
	}{
		{"MaxMessages", config.MaxMessages},
		{"MaxBytes", config.MaxBytes},
		{"MaxInFlight", config.MaxInFlight},
		{"MaxDead", config.MaxDead},
		{"RetainReady.Count", config.RetainReady.Count},
		{"RetainDead.Count", config.RetainDead.Count},
	} {
		if bound.value > 0 && bound.value < shards {
			return &driver.Error{
				Code: driver.ErrInvalid, Op: "configure", Queue: name, Field: bound.field,
				Detail: fmt.Sprintf("%d cannot be split over %d shards; use at least 1 a shard", bound.value, shards),
			}
		}
	}
	return nil
}

// QueueConfig returns the configuration in force. Codes: ErrNotFound.
func (b *Backend) QueueConfig(ctx context.Context, name string) (driver.Config, error) {
	if err := ctx.Err(); err != nil {
		return driver.Config{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	q := b.queues[name]
	if q == nil {
		return driver.Config{}, &driver.Error{Code: driver.ErrNotFound, Op: "configure", Queue: name}
	}
	return q.settings.Load().config, nil
}

// Queues lists the names of all queues, in order.
func (b *Backend) Queues(ctx context.Context) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		b.mu.Lock()
		names := slices.Sorted(maps.Keys(b.queues))
		b.mu.Unlock()
		for _, name := range names {
			if err := ctx.Err(); err != nil {
				yield("", err)
				return
			}
			if !yield(name, nil) {
				return
			}
		}
	}
}

// DeleteQueue removes a queue with everything in it. Codes: ErrNotFound.
func (b *Backend) DeleteQueue(ctx context.Context, name string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	q := b.queues[name]
	if q == nil {
		return &driver.Error{Code: driver.ErrNotFound, Op: "delete", Queue: name}
	}
	delete(b.queues, name)
	for _, other := range b.queues {
		other.forgetTarget(q)
	}
	q.end(driver.ErrNotFound)
	return nil
}

// Ping returns nil until the backend is closed.
func (b *Backend) Ping(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return &driver.Error{Code: driver.ErrClosed, Op: "ping"}
	}
	return nil
}

// Close ends all queues and forgets their messages. Receives that wait return
// ErrClosed, and so does everything called later. Closing twice is fine.
func (b *Backend) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	for _, q := range b.queues {
		q.end(driver.ErrClosed)
	}
	clear(b.queues)
	return nil
}
