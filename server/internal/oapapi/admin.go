package oapapi

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/oap"
)

// finished answers a request that ran on its own, and flushes. The outcome is
// remembered if the request has a ticket.
func (c *conn) finished(correlation uint64, ticket oap.Ticket, err error, fill func(dst []byte) []byte) {
	status := oap.StatusOK
	switch {
	case errors.Is(err, errElsewhere):
		status, fill = oap.StatusElsewhere, nil
	case err != nil:
		e := oap.ErrorOf(err)
		status = oap.StatusOf(e.Code)
		fill = func(dst []byte) []byte { return oap.AppendError(dst, e) }
	}
	var payload []byte
	if fill != nil {
		payload = fill(nil)
	}
	if ticket.Sequence > 0 {
		c.remember(ticket, status, payload)
	}
	c.out.copyFrame(oap.Response, status, correlation, payload)
	c.inFlight.Add(-1)
	c.out.flush()
}

// once runs do on a goroutine of its own, unless the request with this ticket
// was done before.
func (c *conn) once(correlation uint64, ticket oap.Ticket, do func() (fill func(dst []byte) []byte, err error)) {
	w := worker{conn: c}
	if !w.admit(&request{correlation: correlation, ticket: ticket}) {
		return
	}
	c.work.Go(func() {
		fill, err := do()
		c.finished(correlation, ticket, err, fill)
	})
}

// administer does requests that concern no open queue.
func (c *conn) administer(ctx context.Context, f *oap.Frame) {
	correlation := f.Correlation
	var none oap.Ticket
	switch f.Code {
	case oap.OpPing:
		c.once(correlation, none, func() (func([]byte) []byte, error) { return nil, c.caller.Ping(ctx) })
	case oap.OpQueues:
		stream(ctx, c, correlation, c.caller.Queues, func(dst []byte, name *string) []byte {
			return oap.AppendQueueName(dst, *name)
		})
	case oap.OpOpen:
		if name, err := oap.ParseName(f.Payload); c.readable(correlation, err) {
			c.once(correlation, none, func() (func([]byte) []byte, error) { return c.open(ctx, name) })
		}
	case oap.OpConfig:
		if name, err := oap.ParseName(f.Payload); c.readable(correlation, err) {
			c.once(correlation, none, func() (func([]byte) []byte, error) {
				config, err := c.caller.QueueConfig(ctx, name)
				return func(dst []byte) []byte { return oap.AppendConfig(dst, &config) }, err
			})
		}
	case oap.OpConfigure:
		if ticket, name, config, err := oap.ParseConfigure(f.Payload); c.readable(correlation, err) {
			config.MaxHold = driver.ReadMaxHold(int64(config.MaxHold))
			c.once(correlation, ticket, func() (func([]byte) []byte, error) {
				if err := c.caller.ConfigureQueue(ctx, name, config); err != nil {
					return nil, err
				}
				c.server.configured(ctx, name)
				return nil, nil
			})
		}
	case oap.OpDelete:
		if ticket, name, err := oap.ParseDelete(f.Payload); c.readable(correlation, err) {
			c.once(correlation, ticket, func() (func([]byte) []byte, error) { return nil, c.caller.DeleteQueue(ctx, name) })
		}
	}
}

// readable reports whether a payload could be read, and answers the request if
// not.
func (c *conn) readable(correlation uint64, err error) bool {
	if err != nil {
		c.failPayload(correlation, err)
	}
	return err == nil
}

// longestWait is how long a subscription waits at a time.
const longestWait = time.Hour

// newQueue is a queue as its traits make it.
func newQueue(topic string, traits *driver.Traits, peeker, absent bool) *queue {
	q := &queue{
		topic: topic, peeker: peeker, maxBatch: max(traits.MaxBatch, 1), longWait: longestWait,
		direct: traits.Durability == driver.DurabilityNone, strict: traits.StrictGroups,
	}
	if traits.MaxWait > 0 {
		q.longWait = traits.MaxWait
	}
	q.absent.Store(absent)
	return q
}

// inspect asks what a topic promises, and makes a queue of it.
func (c *conn) inspect(ctx context.Context, topic string) (*queue, driver.Traits, error) {
	exists := true
	if maker, ok := c.caller.(Maker); ok {
		var err error
		if exists, err = maker.Exists(ctx, topic); err != nil {
			return nil, driver.Traits{}, err
		}
	}
	traits, peeker, err := c.caller.Open(ctx, topic)
	if err != nil {
		return nil, traits, err
	}
	return newQueue(topic, &traits, peeker, !exists), traits, nil
}

// open opens a queue for this connection. A topic has one number here, however
// often it is opened, until it was closed as often.
func (c *conn) open(ctx context.Context, topic string) (func(dst []byte) []byte, error) {
	q, traits, err := c.inspect(ctx, topic)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.queues[c.handles[topic]]; known != nil {
		q.handle, q.opened = known.handle, known.opened
	} else {
		if len(c.queues) >= c.server.options.MaxQueues {
			return nil, &driver.Error{
				Code: driver.ErrFull, Op: "open", Queue: topic, RetryAfter: time.Second,
				Detail: "this connection has too many queues open",
			}
		}
		c.nextHandle++
		q.handle = c.nextHandle
		c.handles[topic] = q.handle
	}
	q.opened++
	c.queues[q.handle] = q
	return func(dst []byte) []byte {
		return oap.AppendOpened(dst, &oap.Opened{Handle: q.handle, Traits: traits, Peeker: q.peeker})
	}, nil
}

// closeQueue takes back one opening.
func (c *conn) closeQueue(correlation uint64, handle uint32) {
	c.mu.Lock()
	if q := c.queues[handle]; q != nil {
		if q.opened--; q.opened == 0 {
			delete(c.queues, handle)
			delete(c.handles, q.topic)
		}
	}
	c.mu.Unlock()
	c.answer(correlation, oap.StatusOK, nil)
}

// refreshTraits tells the client what a queue that it has open promises now.
func (c *conn) refreshTraits(ctx context.Context, topic string) {
	c.mu.Lock()
	_, open := c.handles[topic]
	c.mu.Unlock()
	if !open {
		return
	}
	changed, traits, err := c.inspect(ctx, topic)
	if err != nil {
		return // its next request finds out why
	}
	c.mu.Lock()
	q := c.queues[c.handles[topic]]
	if q != nil {
		changed.handle, changed.opened = q.handle, q.opened
		c.queues[q.handle] = changed
	}
	c.mu.Unlock()
	if q == nil {
		return
	}
	c.out.frame(oap.Event, oap.EventTraits, 0, func(dst []byte) []byte {
		return oap.AppendOpened(dst, &oap.Opened{Handle: changed.handle, Traits: traits, Peeker: changed.peeker})
	})
	c.out.flush()
}

// attend does requests that concern an open queue and are not on the hot road.
func (c *conn) attend(ctx context.Context, f *oap.Frame) {
	target, q, ok := c.target(f)
	if !ok {
		return
	}
	correlation, ticket := f.Correlation, target.Ticket
	count := func(do func(context.Context, string) (int, error)) {
		if _, err := oap.ParseTarget(f.Payload); c.readable(correlation, err) {
			c.once(correlation, ticket, func() (func([]byte) []byte, error) {
				n, err := do(ctx, q.topic)
				return func(dst []byte) []byte { return oap.AppendCount(dst, n) }, err
			})
		}
	}
	switch f.Code {
	case oap.OpClose:
		c.closeQueue(correlation, q.handle)
	case oap.OpPurge:
		count(c.caller.Purge)
	case oap.OpPurgeDead:
		count(c.caller.PurgeDead)
	case oap.OpStats:
		c.once(correlation, ticket, func() (func([]byte) []byte, error) {
			stats, err := c.caller.Stats(ctx, q.topic)
			return func(dst []byte) []byte { return oap.AppendStats(dst, stats) }, err
		})
	case oap.OpRedrive:
		if redrive, err := oap.ParseRedrive(f.Payload); c.readable(correlation, err) {
			c.redrive(ctx, correlation, q, &redrive)
		}
	case oap.OpDiscard:
		if _, ids, err := oap.ParseDiscard(f.Payload); c.readable(correlation, err) {
			c.once(correlation, ticket, func() (func([]byte) []byte, error) {
				n, err := c.caller.Discard(ctx, q.topic, ids)
				return func(dst []byte) []byte { return oap.AppendCount(dst, n) }, err
			})
		}
	case oap.OpPeek:
		if _, query, err := oap.ParsePeek(f.Payload); c.readable(correlation, err) {
			stream(ctx, c, correlation, func(ctx context.Context) iter.Seq2[driver.Peeked, error] {
				return c.caller.Peek(ctx, q.topic, query)
			}, oap.AppendPeeked)
		}
	case oap.OpDeadLetters:
		stream(ctx, c, correlation, func(ctx context.Context) iter.Seq2[driver.DeadLetter, error] {
			return c.caller.DeadLetters(ctx, q.topic)
		}, oap.AppendDeadLetter)
	case oap.OpSubscribe:
		if s, err := oap.ParseSubscribe(f.Payload); c.readable(correlation, err) {
			c.subscribe(ctx, correlation, q, s)
		}
	}
}

// redrive answers with what was moved also if not all could be.
func (c *conn) redrive(ctx context.Context, correlation uint64, q *queue, d *oap.Redrive) {
	ids := d.IDs
	if d.All {
		ids = nil
	} else if ids == nil {
		ids = []string{}
	}
	c.once(correlation, d.Ticket, func() (func([]byte) []byte, error) {
		moved, err := c.caller.Redrive(ctx, q.topic, ids, d.Limit)
		if moved == 0 && err != nil {
			return nil, err
		}
		return func(dst []byte) []byte { return oap.AppendMoved(dst, moved, err) }, nil
	})
}
