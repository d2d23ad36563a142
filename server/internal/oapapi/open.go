package oapapi

import (
	"cmp"
	"context"
	"hash/maphash"
	"slices"
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

// A handleTable has the handles of openings. Its keys are hashes: with openings as keys, it
// would need 400 bytes for a single queue. An opening that has the hash of another one gets a
// new handle each time.
type handleTable map[uint64]uint32

var openingSeed = maphash.MakeSeed()

func (t handleTable) of(as opening) uint32 { return t[maphash.Comparable(openingSeed, as)] }

func (t handleTable) set(as opening, handle uint32) { t[maphash.Comparable(openingSeed, as)] = handle }

func (t handleTable) forget(as opening) { delete(t, maphash.Comparable(openingSeed, as)) }

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
	traits, err := caller.user.Traits(ctx, as.name)
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
	receiver := c.receiver()
	caller, binding := receiver, (*broker.Binding)(nil)
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
		q.caller = receiver.on(q.binding)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.queueLocked(c.handles.of(q.as)); known != nil && known.as == q.as {
		q.handle, q.opened = known.handle, known.opened
		q.caller, q.binding = known.caller, known.binding
	} else {
		if err := c.server.opened.Take(c.session.memory.owner[:], 1); err != nil {
			return nil, err
		}
		c.nextHandle++
		q.handle = c.nextHandle
		c.handles.set(q.as, q.handle)
		c.queues = append(c.queues, q)
		if q.binding != nil {
			q.binding.Bound = func(identity string) { c.bound(q.handle, identity) }
		}
	}
	q.opened++
	c.putLocked(q)
	return q.answer(c.knows.Load()), nil
}

// indexLocked returns where the queue with a handle is, or would be.
func (c *conn) indexLocked(handle uint32) (int, bool) {
	return slices.BinarySearchFunc(c.queues, handle, func(q *queue, handle uint32) int { return cmp.Compare(q.handle, handle) })
}

// queueLocked returns the open queue with a handle, or nil.
func (c *conn) queueLocked(handle uint32) *queue {
	if i, ok := c.indexLocked(handle); ok {
		return c.queues[i]
	}
	return nil
}

// putLocked replaces the open queue that has the same handle.
func (c *conn) putLocked(q *queue) {
	if i, ok := c.indexLocked(q.handle); ok {
		c.queues[i] = q
	}
}

// answer returns what writes the answer to the request that opened the queue. The caller
// holds conn.mu. known are the traits that the client knows.
func (q *queue) answer(known uint64) func(dst []byte) []byte {
	opened := oap.Opened{Handle: q.handle, Traits: q.traits, Identity: q.as.identity}
	opened.Tell(known)
	if !q.as.identified {
		return func(dst []byte) []byte { return oap.AppendOpened(dst, &opened) }
	}
	return func(dst []byte) []byte { return oap.AppendIdentified(dst, &opened) }
}

// bound tells the client which queue one that did not exist when it was opened has become.
// It does not flush: the answer to what the client has asked follows.
func (c *conn) bound(handle uint32, identity string) {
	c.mu.Lock()
	q := c.queueLocked(handle)
	if q == nil {
		c.mu.Unlock()
		return
	}
	q.absent.Store(false)
	c.forgetOpening(q)
	q.as.identity = identity
	if c.handles.of(q.as) == 0 {
		c.handles.set(q.as, handle)
	}
	write := q.answer(c.knows.Load())
	c.mu.Unlock()
	c.out.frame(nil, oap.Event, oap.EventOpened, 0, write)
}

// forgetOpening makes the next opening of a queue get another number. The caller holds
// conn.mu.
func (c *conn) forgetOpening(q *queue) {
	if c.handles.of(q.as) == q.handle {
		c.handles.forget(q.as)
	}
}

// closeQueue takes back one opening.
func (c *conn) closeQueue(correlation uint64, handle uint32) {
	c.mu.Lock()
	if i, ok := c.indexLocked(handle); ok {
		q := c.queues[i]
		if q.opened--; q.opened == 0 {
			c.queues = slices.Delete(c.queues, i, i+1)
			c.forgetOpening(q)
			c.server.opened.Give(c.session.memory.owner[:], 1)
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
	for _, q := range c.queues {
		if q.name == name {
			all = append(all, open{q.handle, q.as, q.caller, q.binding})
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
	q := c.queueLocked(handle)
	if q == nil {
		c.mu.Unlock()
		return
	}
	changed.handle, changed.opened, changed.as = q.handle, q.opened, q.as
	c.putLocked(changed)
	code := oap.EventTraits
	if q.as.identified {
		code = oap.EventOpened
	}
	write := changed.answer(c.knows.Load())
	c.mu.Unlock()
	c.out.frame(nil, oap.Event, code, 0, write)
	c.out.Flush()
}
