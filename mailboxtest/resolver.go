package mailboxtest

import (
	"context"
	"slices"
	"sync"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/registry"
)

// A Resolver is a mailbox.Resolver for tests of code that replies: it records the
// identifiers it resolves, fails on command, and resolves every unregistered identifier
// to a mailbox that collects. Make one with NewResolver. It is safe for concurrent use.
type Resolver struct {
	collector *Collector
	registry  *registry.Registry

	mu      sync.Mutex // guards the fields below
	log     []string
	failing map[string]error
}

var _ mailbox.Resolver = (*Resolver)(nil)

// NewResolver returns a resolver without registered queues.
func NewResolver() *Resolver {
	collector := NewCollector(anyName{})
	return &Resolver{
		collector: collector,
		registry:  registry.New(&registry.Options{Fallback: collector}),
		failing:   make(map[string]error),
	}
}

// anyName is Null for identifiers, which need not be valid queue names.
type anyName struct{}

func (anyName) OpenQueue(ctx context.Context, name string) (driver.Queue, error) {
	return &nullQueue{name: name, closed: make(chan struct{})}, ctx.Err()
}

// Register resolves id to queue instead of collecting its messages. The caller closes
// the queue. Codes: those of registry.Registry.Register.
func (r *Resolver) Register(id string, queue driver.Queue) error {
	return r.registry.Register(id, queue)
}

// FailOn makes resolving id fail with err, from now on; nil means
// mailbox.ErrUnresolved, and a bare code becomes a *mailbox.Error.
func (r *Resolver) FailOn(id string, err error) {
	if err == nil {
		err = mailbox.ErrUnresolved
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failing[id] = failure(err, "resolve", id)
}

// Resolve returns a handle on the queue for id. It does not block.
func (r *Resolver) Resolve(ctx context.Context, id string) (driver.Queue, error) {
	r.mu.Lock()
	r.log = append(r.log, id)
	err := r.failing[id]
	r.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return r.registry.Resolve(ctx, id)
}

// Log returns the identifiers of all Resolve calls, in order.
func (r *Resolver) Log() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.log)
}

// Sent returns the messages sent to these identifiers, or to any if none is named,
// oldest first, except those sent to registered ones.
func (r *Resolver) Sent(ids ...string) []Collected { return r.collector.Sent(ids...) }

// Wait blocks until at least n messages were sent, and returns them as Sent does. When
// ctx ends first it returns the messages so far, and the context's error.
func (r *Resolver) Wait(ctx context.Context, n int, ids ...string) ([]Collected, error) {
	return r.collector.Wait(ctx, n, ids...)
}
