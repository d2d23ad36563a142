package broker

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/mailboxmq/mailbox/driver"
)

// A Binding is which queue a client's handle is on, among those that have the queue's name
// one after the other. It is bound for good by the first operation that succeeds. The zero
// Binding is not bound.
type Binding struct {
	identity atomic.Pointer[string]
	// Bound is called once, when an operation binds. Nil is not.
	Bound func(identity string)
}

// NewBinding returns one that is bound to a queue, or to none if identity is empty.
func NewBinding(identity string) *Binding {
	b := new(Binding)
	if identity != "" {
		b.identity.Store(&identity)
	}
	return b
}

// Identity names the queue, and is empty if the binding is not bound.
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

// On returns the same caller, for whom a queue is there only while it is the queue that the
// binding is bound to.
func (c Caller) On(binding *Binding) Caller {
	c.binding = binding
	return c
}

// Identity reports whether a queue is there, and tells it from others of its name if the
// backend can. It is authorised like Traits, and may block on I/O.
// Codes: ErrInvalid, ErrUnavailable.
func (c Caller) Identity(ctx context.Context, queue string) (identity string, exists bool, err error) {
	if err := c.authorizeUse(ctx, queue); err != nil {
		return "", false, err
	}
	b := c.broker
	if err := b.admit("open", queue, lastForReads); err != nil {
		return "", false, err
	}
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

// alive reports whether the queue of an open queue still exists: another process may have
// deleted it. If not, the queue is dropped.
func (c *Caller) alive(ctx context.Context, q *queue) (bool, error) {
	_, err := q.handle.Stats(ctx)
	if c.broker.gone(q, err) {
		return false, nil
	}
	return err == nil, localised(err, q)
}

// used notes how an operation on a queue ended, and reports whether its queue was deleted.
func (c *Caller) used(q *queue, err error) (gone bool) {
	if err == nil {
		c.binding.bind(q)
	}
	return c.broker.gone(q, err)
}

// use returns the caller's queue, which the caller releases. With create it is made if it
// is not there. Codes: ErrInvalid (the name), ErrNotFound, ErrFull (the caller's share of
// queues is used up), and those of the backend.
func (c *Caller) use(ctx context.Context, op, name string, create bool) (*queue, error) {
	create = create && !c.existing && c.binding.Identity() == ""
	q, err := c.useAny(ctx, op, name, create)
	if err != nil || c.binding.covers(q) {
		return q, err
	}
	// One of the two is deleted: the queue of the binding, or the one that is open here.
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
