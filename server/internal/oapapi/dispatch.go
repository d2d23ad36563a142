package oapapi

import (
	"context"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/oap"
)

// request is one that concerns a queue and is on the hot road.
type request struct {
	correlation uint64
	code        uint16
	ticket      oap.Ticket
	queue       *queue
	payload     []byte
	visibility  time.Duration // of a receive
}

// batch is what has been read and is done together.
type batch struct {
	settles, sends, receives []request
	worker                   worker
}

// dispatch does a request, or has it done.
func (c *conn) dispatch(ctx context.Context, f *oap.Frame) {
	switch f.Code {
	case oap.OpSend, oap.OpReceive, oap.OpAck, oap.OpNack, oap.OpExtend, oap.OpExtendGranted, oap.OpDeadLetter:
		c.collect(ctx, f)
	case oap.OpPing, oap.OpOpen, oap.OpOpenIdentified, oap.OpConfigure, oap.OpConfig, oap.OpQueues, oap.OpDelete:
		c.administer(ctx, f)
	case oap.OpClose, oap.OpPurge, oap.OpStats, oap.OpPurgeDead, oap.OpRedrive, oap.OpDiscard,
		oap.OpPeek, oap.OpDeadLetters, oap.OpSubscribe:
		c.attend(ctx, f)
	default:
		c.fail(f.Correlation, &driver.Error{Code: driver.ErrUnsupported, Detail: "unknown operation"})
	}
}

// collect puts a request of the hot road where it will be done.
func (c *conn) collect(ctx context.Context, f *oap.Frame) {
	target, q, ok := c.target(f)
	if !ok {
		return
	}
	if f.Code == oap.OpSend && c.isDraining() {
		c.answer(f.Correlation, oap.StatusElsewhere, nil)
		return
	}
	r := request{correlation: f.Correlation, code: f.Code, ticket: target.Ticket, queue: q, payload: f.Payload}
	b := &c.batch
	switch {
	case f.Code == oap.OpReceive && q.direct:
		b.receives = append(b.receives, r)
	case f.Code == oap.OpReceive:
		if req, ok := c.parseReceive(&r); ok {
			c.await(ctx, &r, req)
		}
	case f.Code == oap.OpSend && q.direct:
		b.sends = append(b.sends, r)
	case q.direct:
		b.settles = append(b.settles, r)
	case f.Code == oap.OpSend:
		c.lanes[laneSend].add(ctx, &r)
	default:
		c.lanes[laneSettle].add(ctx, &r)
	}
}

// target finds the queue that a request is about. If there is none, the request
// is answered.
func (c *conn) target(f *oap.Frame) (oap.Target, *queue, bool) {
	target, err := oap.PeekTarget(f.Payload)
	if err != nil {
		c.failPayload(f.Correlation, err)
		return target, nil, false
	}
	c.mu.Lock()
	q := c.queues[target.Handle]
	c.mu.Unlock()
	if q == nil {
		c.fail(f.Correlation, &driver.Error{Code: driver.ErrClosed, Detail: "this connection has no such queue open"})
		return target, nil, false
	}
	return target, q, true
}

// isDraining reports whether the client was told to go elsewhere. What it sends
// is not taken any more then, so that it can send it elsewhere; what it holds it
// can settle to the end.
func (c *conn) isDraining() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.draining
}

// runBatch does what was collected: what makes room first, then what fills it,
// then what takes from it.
func (c *conn) runBatch(ctx context.Context) {
	b := &c.batch
	b.worker.conn = c
	if len(b.settles) > 0 {
		b.worker.run(ctx, b.settles)
		b.settles = emptied(b.settles)
	}
	if len(b.sends) > 0 {
		b.worker.run(ctx, b.sends)
		b.sends = emptied(b.sends)
	}
	if len(b.receives) > 0 {
		c.runReceives(ctx, b.receives)
		b.receives = emptied(b.receives)
	}
}

// emptied is list without its elements, which it lets go of.
func emptied[T any](list []T) []T {
	clear(list)
	return list[:0]
}

// answer adds the response to a request, without flushing.
func (c *conn) answer(correlation uint64, status uint16, fill func(dst []byte) []byte) {
	c.out.frame(oap.Response, status, correlation, fill)
	c.inFlight.Add(-1) // when the answer is there, or the connection looks idle
}

// fail answers a request with an error, without flushing.
func (c *conn) fail(correlation uint64, err error) {
	e := oap.ErrorOf(err)
	c.answer(correlation, oap.StatusOf(e.Code), func(dst []byte) []byte { return oap.AppendError(dst, e) })
}

func (c *conn) failPayload(correlation uint64, err error) {
	c.fail(correlation, payloadError(err))
}

func payloadError(err error) *driver.Error {
	return &driver.Error{Code: driver.ErrInvalid, Field: "payload", Detail: err.Error()}
}
