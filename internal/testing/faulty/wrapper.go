package faulty

import (
	"context"
	"iter"
	"sync"
	"sync/atomic"

	"github.com/mailboxmq/mailbox/driver"
)

// A queue passes every call on. Hooks get it, so that they can call the wrapped queue.
type queue struct {
	driver.Queue
	name    string
	wrapper *wrapper
	*handles
	own *memory // of this handle alone
}

// handles are what all handles of a queue have in common.
type handles struct {
	memory
	calls     atomic.Int64                           // of nth
	delivered table[driver.Receipt, driver.Delivery] // as receivers saw them
	latest    table[string, driver.Receipt]          // by message id
}

// note remembers deliveries.
func (h *handles) note(got []driver.Delivery) {
	for _, d := range got {
		h.delivered.put(d.Receipt, d)
		h.latest.put(d.ID, d.Receipt)
	}
}

// current returns the latest receipt of a message, given any of its receipts.
func (h *handles) current(receipt driver.Receipt) driver.Receipt {
	if d, ok := h.delivered.get(receipt); ok {
		return h.latest.at(d.ID)
	}
	return receipt
}

// nth reports true for every nth call.
func (h *handles) nth(n int64) bool { return h.calls.Add(1)%n == 0 }

// A memory holds what a saboteur remembers.
type memory struct {
	mu    sync.Mutex // guards value
	value any
}

func (m *memory) remember() *memory { return m }

// state returns what a saboteur remembers of a queue over all handles, of one handle, of a
// backend or of a reply store. It starts as the zero M.
func state[M any](of interface{ remember() *memory }) *M {
	m := of.remember()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.value == nil {
		m.value = new(M)
	}
	return m.value.(*M)
}

// config returns the configuration that was asked for, with 0 where a setting is off.
func (q *queue) config() driver.Config { return q.wrapper.askedFor(q.name) }

// reconfigure changes the configuration of the wrapped queue behind the caller's back.
func (q *queue) reconfigure(ctx context.Context, change func(*driver.Config)) error {
	config := q.config()
	change(&config)
	return q.wrapper.inner.(driver.Admin).ConfigureQueue(ctx, q.name, config.Effective())
}

// A backend has all interfaces of an opener.
type backend interface {
	driver.Opener
	driver.Admin
	driver.ScheduleLister
	driver.Pinger
	driver.Observable
	closer
}

type closer interface{ Close() error }

// A wrapper is a backend whose queues have hooks. It passes its own calls on; a hookedBackend
// does not.
type wrapper struct {
	inner   driver.Opener
	on      *hooks
	restart func(q *queue, ctx context.Context) error // see Saboteur
	log     *restartLog
	opens   counts
	memory

	mu      sync.Mutex               // guards the fields below
	asked   map[string]driver.Config // before on.config changed them
	handles map[string]*handles
}

// OpenQueue opens a queue with hooks.
func (b *wrapper) OpenQueue(ctx context.Context, name string) (driver.Queue, error) {
	inner, err := b.inner.OpenQueue(ctx, name)
	if err != nil {
		return nil, err
	}
	q := &queue{Queue: inner, name: name, wrapper: b, handles: b.handlesOf(name), own: new(memory)}
	if b.restart != nil && add(&b.opens, name, 1) == 1 {
		if err := b.restart(q, ctx); err != nil {
			return nil, err
		}
	}
	if b.on.opened != nil {
		b.on.opened(q)
	}
	return hookedQueue{q}, nil
}

func (b *wrapper) handlesOf(name string) *handles {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.handles[name] == nil {
		b.handles[name] = new(handles)
	}
	return b.handles[name]
}

func (b *wrapper) ConfigureQueue(ctx context.Context, name string, config driver.Config) error {
	told, asked := config, config
	if config.Validate() == nil { // otherwise the backend refuses it
		asked = config.Resolve(b.inForce(ctx, name), driver.Config{}).Stored()
		told = asked
		if b.on.config != nil {
			b.on.config(&told)
		}
		told = told.Effective()
	}
	if err := b.inner.(driver.Admin).ConfigureQueue(ctx, name, told); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked[name] = asked
	return nil
}

// inForce returns the current configuration of a queue, or nil.
func (b *wrapper) inForce(ctx context.Context, name string) *driver.Config {
	config, err := b.QueueConfig(ctx, name)
	if err != nil {
		return nil
	}
	return &config
}

func (b *wrapper) QueueConfig(ctx context.Context, name string) (driver.Config, error) {
	config, err := b.inner.(driver.Admin).QueueConfig(ctx, name)
	b.mu.Lock()
	defer b.mu.Unlock()
	if asked, ok := b.asked[name]; ok && err == nil {
		return asked.Effective(), nil
	}
	return config, err
}

func (b *wrapper) Queues(ctx context.Context) iter.Seq2[string, error] {
	return b.inner.(driver.Admin).Queues(ctx)
}

func (b *wrapper) ScheduledQueues(ctx context.Context) iter.Seq2[driver.ScheduledQueue, error] {
	return b.inner.(driver.ScheduleLister).ScheduledQueues(ctx)
}

func (b *wrapper) DeleteQueue(ctx context.Context, name string) error {
	err := b.inner.(driver.Admin).DeleteQueue(ctx, name)
	if err == nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.asked, name)
		delete(b.handles, name)
	}
	return err
}

// askedFor returns the configuration that was asked for.
func (b *wrapper) askedFor(queue string) driver.Config {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.asked[queue]
}

func (b *wrapper) Ping(ctx context.Context) error { return b.inner.(driver.Pinger).Ping(ctx) }

func (b *wrapper) Close() error { return b.inner.(closer).Close() }

func (b *wrapper) Observe(f func(driver.Ending)) (stop func()) {
	if b.on.ending == nil {
		return b.inner.(driver.Observable).Observe(f)
	}
	return b.inner.(driver.Observable).Observe(func(ending driver.Ending) {
		for _, told := range b.on.ending(b, ending) {
			f(told)
		}
	})
}
