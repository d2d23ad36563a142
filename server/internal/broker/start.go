package broker

import (
	"context"
	"errors"
	"slices"
	"sync"
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

// StartSend starts a send. The queue is not created if it does not exist. If the queue is not
// open, StartSend returns a channel that is closed when the send is complete: a send that is
// started before may overtake it.
func (c *Caller) StartSend(ctx context.Context, r *completion.Round, queue string, messages []Outgoing, done completion.Sent) (later <-chan struct{}) {
	q := c.useOpen(queue)
	if q == nil {
		messages = cloneOutgoing(messages)
		ended := make(chan struct{})
		completion.Begin(func() func(*completion.Round) {
			defer close(ended)
			sent, err := c.Existing().Send(ctx, queue, messages)
			return func(r *completion.Round) { done(r, sent, err) }
		})
		return ended
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
		return nil
	}
	s := newStartedSend(c, q, units, done)
	err = c.prepareSend(ctx, &s.sendCall, q, messages)
	if err != nil {
		c.done(units) // before the wait
		s.units = 0
		c.slowRefusal(ctx, r, err)
	}
	if s.prepared = err == nil; !s.prepared || !s.any() {
		s.complete(r, nil, err)
		return nil
	}
	q.started.StartSend(r, s.stamped, s.then)
	return nil
}

// startedSend is a send that is not waited for.
type startedSend struct {
	sendCall
	units    int64 // of the turn
	prepared bool
	done     completion.Sent
	then     completion.Sent // complete, made once
}

var spareSends sync.Pool

func newStartedSend(c *Caller, q *queue, units int64, done completion.Sent) *startedSend {
	s, ok := spareSends.Get().(*startedSend)
	if !ok {
		s = new(startedSend)
		s.then = s.complete
	}
	s.caller, s.queue, s.units, s.done = c, q, units, done
	return s
}

// complete ends the send.
func (s *startedSend) complete(r *completion.Round, sent []driver.Sent, err error) {
	s.caller.done(s.units)
	if s.prepared {
		sent, err = s.finish(sent, err)
	}
	s.caller.used(s.queue, err)
	s.queue.release(s.caller.broker.now())
	s.done(r, sent, err)
	clear(s.stamped)
	*s = startedSend{sendCall: sendCall{stamped: s.stamped[:0], seals: s.seals[:0]}, then: s.then}
	if cap(s.stamped) <= maxKeptElements {
		spareSends.Put(s)
	}
}

// maxKeptElements bounds the memory of operations that are kept for reuse.
const maxKeptElements = 128

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
	q := c.useOpen(name)
	if q == nil {
		elements = slices.Clone(elements)
		completion.Begin(func() func(*completion.Round) {
			err := settle(ctx, c, name, elements, how)
			return func(r *completion.Round) { done(r, err) }
		})
		return
	}
	failed, err := authorizeSettle(ctx, c, name, elements, how)
	if err == nil {
		err = c.startTurn(ctx, r, how.op, name, 1)
	}
	if err != nil {
		q.release(c.broker.now())
		done(r, err)
		return
	}
	s, ok := how.spare.Get().(*settling[E, D])
	if !ok {
		s = new(settling[E, D])
		s.then = s.complete
	}
	s.done = done
	if err := s.prepare(c, q, append(s.elements, elements...), failed, how); err != nil {
		s.end(r, err)
		return
	}
	how.start(&s.queueUse, r, s.good, s.then)
}

// complete ends a call that is not waited for. err is that of the backend.
func (s *settling[E, D]) complete(r *completion.Round, err error) { s.end(r, s.finish(err)) }

// end gives back what the call has used, and is its completion.
func (s *settling[E, D]) end(r *completion.Round, err error) {
	s.caller.done(1)
	s.queue.release(s.broker.now())
	s.done(r, err)
	how := s.how
	clear(s.elements)
	clear(s.good)
	clear(s.receipts)
	clear(s.gone)
	*s = settling[E, D]{
		queueUse: queueUse{gone: s.gone[:0]}, elements: s.elements[:0], good: s.good[:0], receipts: s.receipts[:0], then: s.then,
	}
	if cap(s.elements) <= maxKeptElements {
		how.spare.Put(s)
	}
}

// A Receiver gets the result of a receive, which is valid during the call.
type Receiver interface {
	Received(*completion.Round, []Delivery, error)
}

// StartReceive starts a receive. It returns nil if the receive does not wait.
func (c *Caller) StartReceive(ctx context.Context, r *completion.Round, queue string, req driver.ReceiveRequest, to Receiver) completion.Waiting {
	q := c.useOpen(queue)
	if q == nil {
		return c.receiveLater(ctx, queue, req, to)
	}
	b := c.broker
	grant, err := c.authorize(ctx, capability.OpRecv, queue)
	if err == nil {
		err = b.admit("receive", queue, lastForReads)
	}
	s := &startedReceive{ctx: ctx, to: to}
	if err == nil {
		err = c.prepareReceive(ctx, &s.receiveCall, q, grant, req)
	}
	if err != nil {
		q.release(b.now())
		c.slowRefusal(ctx, r, err)
		to.Received(r, nil, err)
		return nil
	}
	if s.req.Wait == 0 {
		err = c.startTurn(ctx, r, "receive", queue, 1)
	}
	if err != nil {
		s.complete(r, nil, err)
		return nil
	}
	s.entered = true
	if s.req.Wait == 0 {
		q.started.StartReceive(r, s.req, s)
		return nil
	}
	b.waiting.enter(&s.wait)
	if !b.waiting.set(&s.wait, q.started.StartReceive(r, s.req, s)) {
		return nil
	}
	return s
}

// receiveLater is StartReceive for a queue that is not open.
func (c *Caller) receiveLater(ctx context.Context, queue string, req driver.ReceiveRequest, to Receiver) completion.Waiting {
	ctx, cancel := context.WithCancel(ctx)
	completion.Begin(func() func(*completion.Round) {
		deliveries, err := c.Receive(ctx, queue, req)
		cancel()
		return func(r *completion.Round) { to.Received(r, deliveries, err) }
	})
	return completion.Canceller(cancel)
}

// startedReceive is a receive that is not waited for.
type startedReceive struct {
	receiveCall
	ctx       context.Context //nolint:containedctx // of the connection, for log lines
	to        Receiver
	entered   bool // it has taken a turn
	wait      wait
	cancelled atomic.Bool
}

// Cancel implements completion.Waiting.
func (s *startedReceive) Cancel() {
	s.cancelled.Store(true)
	s.caller.broker.waiting.end(&s.wait)
}

// Received implements completion.Receiver, for the backend.
func (s *startedReceive) Received(r *completion.Round, held []driver.Delivery, err error) {
	c, b := s.caller, s.caller.broker
	if s.req.Wait > 0 {
		b.waiting.leave(&s.wait)
		if errors.Is(err, context.Canceled) && !s.cancelled.Load() {
			err = nil // the daemon drains
		}
	}
	if len(held) > 0 && s.req.Wait > 0 {
		if refusal := b.verifier.Valid(s.ctx, c.token); refusal != nil {
			held := slices.Clone(held)
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
	if s.entered && s.req.Wait == 0 {
		c.done(1)
	}
	s.leave()
	memory := spareDeliveries.Get().(*handedDeliveries)
	deliveries, err := s.finish(s.ctx, held, err, memory)
	if damaged := memory.damaged; len(damaged) > 0 {
		memory.damaged = nil
		go func() { // it waits for the backend
			for i := range damaged {
				c.deadLetterDamaged(s.ctx, q, &damaged[i])
			}
		}()
	}
	gone := c.used(q, err)
	q.release(b.now())
	if gone && !s.cancelled.Load() {
		s.receiveAgain()
	} else {
		s.to.Received(r, deliveries, err)
	}
	memory.free()
}

// receiveAgain receives from the queue that has replaced one that was deleted.
func (s *startedReceive) receiveAgain() {
	again := s.caller.receiveLater(s.ctx, s.queue.name, s.req, s.to)
	s.caller.broker.waiting.replace(&s.wait, again)
	if s.cancelled.Load() {
		again.Cancel() // Cancel may not have seen it
	}
}

var spareDeliveries = sync.Pool{New: func() any { return new(handedDeliveries) }}

// free keeps the memory for reuse.
func (h *handedDeliveries) free() {
	clear(h.deliveries)
	if h.deliveries = h.deliveries[:0]; cap(h.deliveries) <= maxKeptElements {
		spareDeliveries.Put(h)
	}
}
