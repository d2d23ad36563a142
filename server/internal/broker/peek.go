package broker

import (
	"context"
	"errors"
	"iter"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/verify"
)

// Peeked is a message that was read without a lease. If the message was changed,
// Damaged is true and there is no body.
type Peeked struct {
	driver.Peeked
	Queue   string
	Seal    Seal
	Damaged bool
}

// Stats counts the messages of a queue. It needs a token for stats, and may
// block on I/O. Codes: ErrNotFound, ErrUnavailable.
func (c Caller) Stats(ctx context.Context, queue string) (driver.Stats, error) {
	if _, err := c.authorize(ctx, capability.OpStats, queue); err != nil {
		return driver.Stats{}, err
	}
	return inQueue(ctx, &c, "stats", queue, lastForReads, func(q *queueUse) (driver.Stats, error) { return q.handle.Stats(ctx) })
}

// A forecaster is a backend that knows the traits of queues that it would create.
type forecaster interface{ DefaultTraits() driver.Traits }

// Traits returns what a queue promises and its limits, including those of the
// daemon. It needs a token for any operation on the queue. For a queue that
// does not exist it returns the traits that a new queue would have, to callers that
// may send, receive or administer and are not [Caller.Existing]; to others it is
// ErrNotFound. It creates the queue only if the backend has no DefaultTraits. It may
// block on I/O. Codes: ErrInvalid, ErrNotFound, ErrFull, ErrUnavailable.
func (c Caller) Traits(ctx context.Context, name string) (traits driver.Traits, err error) {
	grant, err := c.grantUse(ctx, name)
	if err != nil {
		return traits, err
	}
	b := c.broker
	if err := b.admit("open", name, lastForReads); err != nil {
		return traits, err
	}
	mayMake := !c.existing && (grant.AllowsOperation(capability.OpSend) || grant.AllowsOperation(capability.OpRecv) || grant.AllowsOperation(capability.OpAdmin))
	forecast, _ := b.opener.(forecaster)
	q, err := c.use(ctx, "open", name, mayMake && forecast == nil && b.State() <= lastForWrites)
	if err != nil {
		if mayMake && forecast != nil && errors.Is(err, driver.ErrNotFound) {
			return b.kept(bounded(forecast.DefaultTraits(), b.limits.Load())), nil
		}
		return traits, err
	}
	defer func() { q.release(b.now()) }()
	if c.existing && b.admin != nil {
		// The open handle may be of a queue that another daemon has deleted.
		if _, err := b.admin.QueueConfig(ctx, q.backend); err != nil {
			b.gone(q, err)
			return traits, localised(err, q)
		}
	}
	return b.kept(q.traits(b.limits.Load())), nil
}

// kept returns traits without schedules if the broker cannot run them.
func (b *Broker) kept(traits driver.Traits) driver.Traits {
	traits.Schedules = traits.Schedules && b.lister != nil
	return traits
}

func (c *Caller) authorizeUse(ctx context.Context, queue string) error {
	_, err := c.grantUse(ctx, queue)
	return err
}

// grantUse authorises a token that allows any operation on a queue.
func (c *Caller) grantUse(ctx context.Context, queue string) (*verify.Grant, error) {
	request := c.request(0, queue)
	grant, err := c.broker.verifier.AuthorizeUse(ctx, c.token, request)
	if err != nil {
		c.refused(ctx, request, err)
	}
	return grant, err
}

// inQueue calls do with an existing queue.
func inQueue[R any](ctx context.Context, c *Caller, op, name string, last State, do func(*queueUse) (R, error)) (R, error) {
	var none R
	b := c.broker
	if err := b.admit(op, name, last); err != nil {
		return none, err
	}
	q, err := c.use(ctx, op, name, false)
	if err != nil {
		return none, err
	}
	defer func() { q.release(b.now()) }()
	if err := c.turn(ctx, op, name, 1); err != nil {
		return none, err
	}
	defer c.done(1)
	result, err := do(&queueUse{queue: q, broker: b, by: c.holder})
	c.used(q, err)
	return result, localised(err, q)
}

// Peek yields the messages of a queue that match a query, as driver.Queue does.
// It needs a token for peek, whose quotas count the yielded messages. An error ends
// the sequence. Codes: ErrInvalid, ErrNotFound, ErrUnsupported (the backend does not
// support peek), ErrUnavailable.
func (c Caller) Peek(ctx context.Context, queue string, query driver.Query) iter.Seq2[Peeked, error] {
	return func(yield func(Peeked, error) bool) {
		grant, err := c.authorize(ctx, capability.OpPeek, queue)
		if err == nil {
			err = c.broker.admit("peek", queue, lastForReads)
		}
		if err != nil {
			yield(Peeked{}, err)
			return
		}
		for peeked, err := range c.look(ctx, queue, query) {
			if err == nil {
				c.charge(grant, &peeked.Message)
			}
			if !yield(peeked, err) {
				return
			}
		}
	}
}

// charge counts a message that was looked at in the quotas of the token.
func (c *Caller) charge(grant *verify.Grant, m *driver.Message) {
	if !c.unmetered {
		grant.Charge(1, int64(len(m.Body)))
	}
}

// look is Peek without authorisation.
func (c *Caller) look(ctx context.Context, name string, query driver.Query) iter.Seq2[Peeked, error] {
	return func(yield func(Peeked, error) bool) {
		q, err := c.use(ctx, "peek", name, false)
		if err != nil {
			yield(Peeked{}, err)
			return
		}
		defer func() { q.release(c.broker.now()) }()
		if err := q.lacks(q.handle.Traits().Peek, "peek", "backend does not support peek"); err != nil {
			yield(Peeked{}, err)
			return
		}
		if err := q.lacks(query.Cursor == nil || q.handle.Traits().PeekCursor, "peek", "backend does not support searching with a cursor"); err != nil {
			yield(Peeked{}, err)
			return
		}
		if err := q.lacks(query.Last == 0 || q.handle.Traits().PeekLast, "peek", "backend does not support looking from the end"); err != nil {
			yield(Peeked{}, err)
			return
		}
		turn, err := c.beginLook(ctx, "peek", name)
		if err != nil {
			yield(Peeked{}, err)
			return
		}
		defer turn.end()
		for peeked, err := range q.handle.Peek(ctx, query) {
			if err != nil {
				c.broker.gone(q, err)
				yield(Peeked{}, localised(err, q))
				return
			}
			if err := turn.count(ctx, len(peeked.Body)); err != nil {
				yield(Peeked{}, err)
				return
			}
			if !yield(q.peeked(peeked), nil) {
				return
			}
		}
	}
}

// peeked verifies a message of the backend and names its queues as the tenant does.
func (q *queue) peeked(p driver.Peeked) Peeked {
	seal, err := q.unseal(&p.Message)
	if err != nil {
		p.Body = nil
	}
	if source, ours := queueName(q.tenant, p.Source); ours {
		p.Source = source
	}
	return Peeked{Peeked: p, Queue: q.name, Seal: seal, Damaged: err != nil}
}

// lookBytes is about what a peek holds in memory: a page of the backend, and its largest
// message.
const lookBytes = 1 << 20

// A lookTurn is the turn of a peek, which may read a whole queue: it ends and begins
// again for each operationBytes and each operationMessages, so that other operations of
// the tenant come in between.
type lookTurn struct {
	caller    *Caller
	op, queue string
	forget    func() // gives the memory back
	held      bool
	messages  int
	bytes     int
}

// beginLook waits for a turn, and for memory. Codes: ErrFull.
func (c *Caller) beginLook(ctx context.Context, op, queue string) (*lookTurn, error) {
	forget, err := c.Hold(ctx, lookBytes)
	if err != nil {
		return nil, err
	}
	t := &lookTurn{caller: c, op: op, queue: queue, forget: forget}
	if err := t.begin(ctx); err != nil {
		forget()
		return nil, err
	}
	return t, nil
}

func (t *lookTurn) begin(ctx context.Context) error {
	err := t.caller.turn(ctx, t.op, t.queue, 1)
	t.held = err == nil
	t.messages, t.bytes = 0, 0
	return err
}

// count counts a message before it is yielded, and waits for the next turn if this one is
// over. Codes: ErrFull.
func (t *lookTurn) count(ctx context.Context, body int) error {
	t.messages++
	t.bytes += body
	if t.messages <= operationMessages && t.bytes <= operationBytes {
		return nil
	}
	t.caller.done(1)
	t.held = false
	c := t.caller
	if err := c.pace(ctx, nil, c.broker.looks, min(int64(t.bytes)+1, lookBytes)); err != nil {
		c.broker.metrics.Rejected(metricSaturated)
		return refusedShare(err, t.op, t.queue)
	}
	return t.begin(ctx)
}

func (t *lookTurn) end() {
	if t.held {
		t.caller.done(1)
	}
	t.forget()
}
