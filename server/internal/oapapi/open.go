package oapapi

import (
	"context"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/oap"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// An opening is what a client has opened: a name, or one queue among those that have the
// name one after the other.
type opening struct {
	name string
	// identified: the client asked with OpOpenIdentified.
	identified bool
	// identity names the queue; empty while it is not known.
	identity string
}

// longestWait is how long a subscription waits at a time.
const longestWait = time.Hour

// inspect asks what a queue promises.
func (c *conn) inspect(ctx context.Context, as opening, caller *caller, binding *broker.Binding) (*queue, error) {
	identity, exists, err := caller.user.Identity(ctx, as.name)
	switch {
	case err != nil:
		return nil, elsewhere(err)
	case !exists && as.identity != "":
		return nil, &driver.Error{Code: driver.ErrNotFound, Op: "open", Queue: as.name, Detail: "queue was deleted"}
	case as.identified:
		as.identity = identity
	}
	traits, err := caller.maker.Traits(ctx, as.name)
	if err != nil {
		return nil, elsewhere(err)
	}
	q := &queue{
		as: as, name: as.name, caller: caller, binding: binding, traits: traits,
		maxBatch: max(traits.MaxBatch, 1), longWait: longestWait,
	}
	if traits.MaxWait > 0 {
		q.longWait = traits.MaxWait
	}
	q.absent.Store(!exists)
	return q, nil
}

// open opens a queue for this connection. A queue has one number here, however often it is
// opened, until it was closed as often.
func (c *conn) open(ctx context.Context, as opening) (func(dst []byte) []byte, error) {
	caller, binding := c.caller, (*broker.Binding)(nil)
	if as.identified {
		binding = broker.NewBinding(as.identity)
		caller = caller.on(binding)
	}
	q, err := c.inspect(ctx, as, caller, binding)
	if err != nil {
		return nil, err
	}
	if binding != nil && as.identity != q.as.identity {
		q.binding = broker.NewBinding(q.as.identity)
		q.caller = c.caller.on(q.binding)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.queues[c.handles[q.as]]; known != nil {
		q.handle, q.opened = known.handle, known.opened
		q.caller, q.binding = known.caller, known.binding
	} else {
		if err := c.server.opened.Take(c.session.owner[:], 1); err != nil {
			return nil, err
		}
		c.nextHandle++
		q.handle = c.nextHandle
		c.handles[q.as] = q.handle
		if q.binding != nil {
			q.binding.Bound = func(identity string) { c.bound(q.handle, identity) }
		}
	}
	q.opened++
	c.queues[q.handle] = q
	return q.answer(), nil
}

// answer returns what writes the answer to the request that opened the queue. The caller
// holds conn.mu.
func (q *queue) answer() func(dst []byte) []byte {
	opened := oap.Opened{Handle: q.handle, Traits: q.traits, Identity: q.as.identity}
	if !q.as.identified {
		return func(dst []byte) []byte { return oap.AppendOpened(dst, &opened) }
	}
	return func(dst []byte) []byte { return oap.AppendIdentified(dst, &opened) }
}

// bound tells the client which queue one that did not exist when it was opened has become.
// It does not flush: the answer to what the client has asked follows.
func (c *conn) bound(handle uint32, identity string) {
	c.mu.Lock()
	q := c.queues[handle]
	if q == nil {
		c.mu.Unlock()
		return
	}
	q.absent.Store(false)
	c.forgetOpening(q)
	q.as.identity = identity
	if _, taken := c.handles[q.as]; !taken {
		c.handles[q.as] = handle
	}
	write := q.answer()
	c.mu.Unlock()
	c.out.frame(nil, oap.Event, oap.EventOpened, 0, write)
}

// forgetOpening makes the next opening of a queue get another number. The caller holds
// conn.mu.
func (c *conn) forgetOpening(q *queue) {
	if c.handles[q.as] == q.handle {
		delete(c.handles, q.as)
	}
}

// closeQueue takes back one opening.
func (c *conn) closeQueue(correlation uint64, handle uint32) {
	c.mu.Lock()
	if q := c.queues[handle]; q != nil {
		if q.opened--; q.opened == 0 {
			delete(c.queues, handle)
			c.forgetOpening(q)
			c.server.opened.Give(c.session.owner[:], 1)
		}
	}
	c.mu.Unlock()
	c.answer(correlation, oap.StatusOK, nil)
}

// refreshTraits tells the client what a queue that it has open promises now.
func (c *conn) refreshTraits(ctx context.Context, name string) {
	type open struct {
		handle  uint32
		as      opening
		caller  *caller
		binding *broker.Binding
	}
	var all []open
	c.mu.Lock()
	for handle, q := range c.queues {
		if q.name == name {
			all = append(all, open{handle, q.as, q.caller, q.binding})
		}
	}
	c.mu.Unlock()
	for _, o := range all {
		changed, err := c.inspect(ctx, o.as, o.caller, o.binding)
		if err != nil {
			continue // its next request finds out why
		}
		c.replace(o.handle, changed)
	}
}

// replace puts a queue that was configured again in the place of what it was.
func (c *conn) replace(handle uint32, changed *queue) {
	c.mu.Lock()
	q := c.queues[handle]
	if q == nil {
		c.mu.Unlock()
		return
	}
	changed.handle, changed.opened, changed.as = q.handle, q.opened, q.as
	c.queues[handle] = changed
	code := oap.EventTraits
	if q.as.identified {
		code = oap.EventOpened
	}
	write := changed.answer()
	c.mu.Unlock()
	c.out.frame(nil, oap.Event, code, 0, write)
	c.out.Flush()
}
