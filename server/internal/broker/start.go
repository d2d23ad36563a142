package broker

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/completion"
)

// The methods of this file start operations and do not wait for them; see package completion.
// They do, and return, what the methods without Start in their names do. They block only
// while other operations of the caller's tenant use up its share of the backend, and flush
// the round before that.
//
// The caller's token is checked before the operation is started. An operation that cannot
// be started quickly, because its queue is not open, runs on a goroutine of its own.

// useOpen returns a queue that is open and that the caller may use, or nil.
func (c *Caller) useOpen(name string) *queue {
	key := queueKey{c.tenant, name}
	q := c.broker.queues.shard(key).acquire(key)
	if q != nil && !c.binding.covers(q) {
		q.release(c.broker.now())
		return nil
	}
	return q
}

// startTurn is turn for a goroutine that has a round.
func (c *Caller) startTurn(ctx context.Context, r *completion.Round, op, queue string, units int64) error {
	owner := c.owner()
	if c.broker.work.TryEnter(owner[:], units) {
		return nil
	}
	r.End()
	return c.turn(ctx, op, queue, units)
}

// StartSend starts a send. The queue is not created if it does not exist.
func (c *Caller) StartSend(ctx context.Context, r *completion.Round, queue string, messages []Outgoing, done completion.Sent) {
	q := c.useOpen(queue)
	if q == nil {
		messages = cloneOutgoing(messages)
		completion.Begin(func() func(*completion.Round) {
			sent, err := c.Existing().Send(ctx, queue, messages)
			return func(r *completion.Round) { done(r, sent, err) }
		})
		return
	}
	b := c.broker
	request := c.request(capability.OpSend, queue)
	request.Load = loadOf(messages)
	units := unitsOf(len(messages), request.Load.Bytes)
	_, err := c.authorizeRequest(ctx, request)
	if err == nil {
		err = b.admit("send", queue, lastForWrites)
	}
	if err == nil {
		err = c.startTurn(ctx, r, "send", queue, units)
	}
	if err != nil {
		q.release(b.now())
		done(r, nil, err)
		return
	}
	call, err := c.prepareSend(q, messages)
	complete := func(r *completion.Round, sent []driver.Sent, err error) {
		c.done(units)
		if call != nil {
			sent, err = call.finish(sent, err)
		}
		c.used(q, err)
		q.release(b.now())
		done(r, sent, err)
	}
	if err != nil || !call.any() {
		complete(r, nil, err)
		return
	}
	q.started.StartSend(r, call.stamped, complete)
}

func cloneOutgoing(messages []Outgoing) []Outgoing {
	messages = slices.Clone(messages)
	for i := range messages {
		messages[i].Body = slices.Clone(messages[i].Body)
	}
	return messages
}

// StartAck starts an ack.
func (c *Caller) StartAck(ctx context.Context, r *completion.Round, queue string, receipts []string, done completion.Settled) {
	startSettle(ctx, c, r, queue, receipts, acking, done)
}

// StartNack starts a nack.
func (c *Caller) StartNack(ctx context.Context, r *completion.Round, queue string, nacks []Nack, done completion.Settled) {
	startSettle(ctx, c, r, queue, nacks, c.nacking(ctx), done)
}

// StartExtend starts to extend deliveries.
func (c *Caller) StartExtend(ctx context.Context, r *completion.Round, queue string, extensions []Extension, done completion.Extended) {
	x := newExtending(len(extensions))
	startSettle(ctx, c, r, queue, extensions, &x.settleCall, func(r *completion.Round, err error) {
		granted, err := x.result(err)
		done(r, granted, err)
	})
}

// StartDeadLetter starts to dead-letter deliveries.
func (c *Caller) StartDeadLetter(ctx context.Context, r *completion.Round, queue string, requests []DeadLetterRequest, done completion.Settled) {
	startSettle(ctx, c, r, queue, requests, deadLettering, done)
}

func startSettle[E, D any](
	ctx context.Context, c *Caller, r *completion.Round, name string, elements []E, how *settleCall[E, D], done completion.Settled,
) {
	elements = slices.Clone(elements) // finish reads them
	if q := c.useOpen(name); q == nil {
		completion.Begin(func() func(*completion.Round) {
			err := settle(ctx, c, name, elements, how)
			return func(r *completion.Round) { done(r, err) }
		})
		return
	} else {
		defer q.release(c.broker.now())
	}
	s, err := prepareSettle(ctx, c, name, elements, how)
	if err == nil {
		if err = c.startTurn(ctx, r, how.op, name, 1); err != nil {
			s.release()
		}
	}
	if err != nil {
		done(r, err)
		return
	}
	how.start(&s.queueUse, r, s.good, func(r *completion.Round, err error) {
		c.done(1)
		err = s.finish(err)
		s.release()
		done(r, err)
	})
}

// Received is the completion of a receive.
type Received func(*completion.Round, []Delivery, error)

// StartReceive starts a receive. The returned function ends its wait, and is nil if it does
// not wait.
func (c *Caller) StartReceive(ctx context.Context, r *completion.Round, queue string, req driver.ReceiveRequest, done Received) (cancel func()) {
	q := c.useOpen(queue)
	if q == nil {
		return c.receiveLater(ctx, queue, req, done)
	}
	b := c.broker
	grant, err := c.authorize(ctx, capability.OpRecv, queue)
	if err == nil {
		err = b.admit("receive", queue, lastForReads)
	}
	var call *receiveCall
	if err == nil {
		call, err = c.prepareReceive(ctx, q, grant, req)
	}
	if err != nil {
		q.release(b.now())
		done(r, nil, err)
		return nil
	}
	s := &startedReceive{receiveCall: call, ctx: ctx, done: done}
	if call.req.Wait == 0 {
		err = c.startTurn(ctx, r, "receive", queue, 1)
	} else {
		owner := c.owner()
		if err = b.waits.Take(owner[:], 1); err != nil {
			err = refusedShare(err, "receive", queue)
		}
	}
	if err != nil {
		s.complete(r, nil, err)
		return nil
	}
	s.entered = true
	if call.req.Wait == 0 {
		q.started.StartReceive(r, call.req, s.received)
		return nil
	}
	s.number = b.waiting.start()
	end := q.started.StartReceive(r, call.req, s.received)
	if end == nil {
		return nil
	}
	b.waiting.set(s.number, end)
	return func() {
		s.cancelled.Store(true)
		end()
	}
}

// receiveLater is StartReceive for a queue that is not open.
func (c *Caller) receiveLater(ctx context.Context, queue string, req driver.ReceiveRequest, done Received) (cancel func()) {
	ctx, cancel = context.WithCancel(ctx)
	completion.Begin(func() func(*completion.Round) {
		deliveries, err := c.Receive(ctx, queue, req)
		cancel()
		return func(r *completion.Round) { done(r, deliveries, err) }
	})
	return cancel
}

// startedReceive is a receive that is not waited for.
type startedReceive struct {
	*receiveCall
	ctx       context.Context //nolint:containedctx // of the connection, for log lines
	done      Received
	entered   bool   // it has taken a turn, or a unit of the waits
	number    uint64 // among the receives that wait
	cancelled atomic.Bool
}

// received is the completion of the backend's receive.
func (s *startedReceive) received(r *completion.Round, held []driver.Delivery, err error) {
	c, b := s.caller, s.caller.broker
	if s.req.Wait > 0 {
		b.waiting.leave(s.number)
		if errors.Is(err, context.Canceled) && !s.cancelled.Load() {
			err = nil // the daemon drains
		}
	}
	if len(held) > 0 && s.req.Wait > 0 {
		if refusal := b.verifier.Valid(s.ctx, c.token); refusal != nil {
			completion.Begin(func() func(*completion.Round) {
				held, err := c.stillGood(s.ctx, s.queue, held)
				return func(r *completion.Round) { s.complete(r, held, err) }
			})
			return
		}
	}
	s.complete(r, held, err)
}

// complete ends the receive.
func (s *startedReceive) complete(r *completion.Round, held []driver.Delivery, err error) {
	c, q, b := s.caller, s.queue, s.caller.broker
	if s.entered {
		owner := c.owner()
		if s.req.Wait == 0 {
			c.done(1)
		} else {
			b.waits.Give(owner[:], 1)
		}
	}
	var damaged []damagedDelivery
	deliveries, err := s.finish(s.ctx, held, err, &damaged)
	if len(damaged) > 0 {
		go func() { // it waits for the backend
			for i := range damaged {
				c.deadLetterDamaged(s.ctx, q, &damaged[i])
			}
		}()
	}
	gone := c.used(q, err)
	q.release(b.now())
	if gone && !s.cancelled.Load() {
		c.receiveLater(s.ctx, q.name, s.req, s.done)
		return
	}
	s.done(r, deliveries, err)
}
