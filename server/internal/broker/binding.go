package broker

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/mailboxmq/mailbox/driver"
)

// A Binding ties a client's handle to one queue, among queues that have the same name one
// after the other. The first operation that succeeds binds it for good. The zero Binding is
// not bound.
type Binding struct {
	identity atomic.Pointer[string]
	// Bound, if set, is called once, when an operation binds.
	Bound func(identity string)
}

// NewBinding returns a binding to a queue; it is not bound if identity is empty.
func NewBinding(identity string) *Binding {
	b := new(Binding)
	if identity != "" {
		b.identity.Store(&identity)
	}
	return b
}

// Identity returns the identity of the queue; empty if the binding is not bound.
func (b *Binding) Identity() string {
	if b == nil {
		return ""
	}
	if identity := b.identity.Load(); identity != nil {
		return *identity
	}
	return ""
}

// covers reports whether a handle with this binding may use t.
func (b *Binding) covers(q *queue) bool {
	bound := b.Identity()
	return bound == "" || q.identity == "" || bound == q.identity
}

// bind notes that an operation on t has succeeded.
func (b *Binding) bind(q *queue) {
	if b == nil || q.identity == "" || b.identity.Load() != nil {
		return
	}
	if b.identity.CompareAndSwap(nil, &q.identity) && b.Bound != nil {
		b.Bound(q.identity)
	}
}

// On returns the same caller with a binding: a queue other than the bound one is
// ErrNotFound.
func (c Caller) On(binding *Binding) Caller {
	c.binding = binding
	return c
}

// Identity reports whether a queue exists, and returns its identity if the backend has
// one. It is authorised like Traits, waits for the caller's turn, and may block on I/O.
// Codes: ErrInvalid, ErrUnavailable, ErrFull.
func (c Caller) Identity(ctx context.Context, queue string) (identity string, exists bool, err error) {
	if err := c.authorizeUse(ctx, queue); err != nil {
		return "", false, err
	}
	b := c.broker
	if err := b.admit("open", queue, lastForReads); err != nil {
		return "", false, err
	}
	if err := c.pace(ctx, nil, b.openings, 1); err != nil {
		return "", false, refusedShare(err, "open", queue)
	}
	if err := c.turn(ctx, "open", queue, 1); err != nil {
		return "", false, err
	}
	defer c.done(1)
	c.existing = true
	for range 2 {
		q, err := c.use(ctx, "open", queue, false)
		if errors.Is(err, driver.ErrNotFound) {
			return "", false, nil
		}
		if err != nil {
			return "", false, err
		}
		alive, err := c.alive(ctx, q)
		q.release(b.now())
		if alive || err != nil {
			return q.identity, alive, err
		}
	}
	return "", false, nil
}

// alive reports whether an open queue still exists in the backend: another process may
// have deleted it. If not, alive forgets it.
func (c *Caller) alive(ctx context.Context, q *queue) (bool, error) {
	_, err := q.handle.Stats(ctx)
	if c.broker.gone(q, err) {
		return false, nil
	}
	return err == nil, localised(err, q)
}

// used binds the caller after a success, and reports whether the queue was deleted.
func (c *Caller) used(q *queue, err error) (gone bool) {
	if err == nil {
		c.binding.bind(q)
	}
	return c.broker.gone(q, err)
}

// use returns an open queue, which the caller releases. With create it creates a missing
// queue. Codes: ErrInvalid (the name), ErrNotFound, ErrFull (the caller's share of
// queues is used up), and those of the backend.
func (c *Caller) use(ctx context.Context, op, name string, create bool) (*queue, error) {
	create = create && !c.existing && c.binding.Identity() == ""
	q, err := c.useAny(ctx, op, name, create)
	if err != nil || c.binding.covers(q) {
		return q, err
	}
	// Either the queue of the binding or the open one was deleted.
	alive, err := c.alive(ctx, q)
	q.release(c.broker.now())
	if err != nil {
		return nil, err
	}
	if !alive {
		if q, err = c.useAny(ctx, op, name, false); err != nil || c.binding.covers(q) {
			return q, err
		}
		q.release(c.broker.now())
	}
	return nil, &driver.Error{
		Code: driver.ErrNotFound, Op: op, Queue: name, Detail: "queue was deleted; open the new one of this name again",
	}
}
