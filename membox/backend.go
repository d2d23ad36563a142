package membox

import (
	"context"
	"iter"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/host"
)

// Backend holds queues in memory. It is a driver.Opener, a driver.Admin and a
// driver.Pinger, and safe for concurrent use.
type Backend struct{ host *host.Backend }

// Options configure a Backend. The zero value, and nil, mean the defaults.
type Options struct {
	// Defaults is the configuration of queues that are opened without having
	// been configured, and the default of what a new queue's configuration
	// leaves unset. It must be valid; New does not fail, so an invalid one
	// is reported when a queue is opened.
	Defaults driver.Config
	// MaxBodyBytes bounds bodies; 0 means driver.DefaultMaxBodyBytes. A negative one
	// is reported when a queue is opened.
	MaxBodyBytes int
	// Wipe overwrites the memory of a message with zeros when it is gone and no receiver
	// refers to its body, its id or its seal any more. The garbage collector finds that
	// out: within about two minutes on an idle process, and usually much sooner. Copies that
	// the program makes are not wiped.
	Wipe bool
}

var (
	_ driver.Opener     = (*Backend)(nil)
	_ driver.Admin      = (*Backend)(nil)
	_ driver.Pinger     = (*Backend)(nil)
	_ driver.Observable = (*Backend)(nil)
)

// New returns an empty backend. It does no I/O.
func New(options *Options) *Backend {
	var settings host.Options
	if options != nil {
		settings.Defaults, settings.MaxBodyBytes, settings.Wipe = options.Defaults, options.MaxBodyBytes, options.Wipe
	}
	return &Backend{host: host.New(settings)}
}

// OpenQueue returns a handle on the queue called name, which is created if it
// is not there. It does not block. Codes: ErrInvalid, ErrClosed.
func (b *Backend) OpenQueue(ctx context.Context, name string) (driver.Queue, error) {
	return b.host.OpenQueue(ctx, name)
}

// DefaultTraits returns what a queue promises that is made by opening it. It does
// no I/O, and makes nothing.
func (b *Backend) DefaultTraits() driver.Traits { return b.host.DefaultTraits() }

// ConfigureQueue creates the queue or changes its configuration. Shards,
// StrictGroups and FairGroups are fixed when the queue is created. It does not
// block. Codes: ErrInvalid, ErrUnsupported, ErrClosed.
func (b *Backend) ConfigureQueue(ctx context.Context, name string, config driver.Config) error {
	return b.host.ConfigureQueue(ctx, name, config)
}

// QueueConfig returns the configuration in force, with nothing unset. It does not block. Codes:
// ErrNotFound.
func (b *Backend) QueueConfig(ctx context.Context, name string) (driver.Config, error) {
	return b.host.QueueConfig(ctx, name)
}

// Queues lists the names of all queues, in order.
func (b *Backend) Queues(ctx context.Context) iter.Seq2[string, error] { return b.host.Queues(ctx) }

// ScheduledQueues lists the queues that have schedules; see driver.ScheduleLister.
func (b *Backend) ScheduledQueues(ctx context.Context) iter.Seq2[driver.ScheduledQueue, error] {
	return b.host.ScheduledQueues(ctx)
}

// DeleteQueue removes a queue with everything in it. It does not block. Codes:
// ErrNotFound.
func (b *Backend) DeleteQueue(ctx context.Context, name string) error {
	return b.host.DeleteQueue(ctx, name)
}

// Ping returns nil until the backend is closed, and ErrClosed then.
func (b *Backend) Ping(ctx context.Context) error { return b.host.Ping(ctx) }

// Observe calls f for every ending until stop is called; see driver.Observable.
func (b *Backend) Observe(f func(driver.Ending)) (stop func()) { return b.host.Observe(f) }

// Close ends all queues and forgets their messages. Receives that wait return
// ErrClosed, and so does everything called later. Closing twice is fine.
func (b *Backend) Close() error { return b.host.Close() }
