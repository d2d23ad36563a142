package oapapi

import (
	"context"
	"errors"
	"fmt"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/completion"
	"github.com/mailboxmq/mailbox/internal/oap"
)

// request is a request that is under way. Its answer is written by a completion, on any
// goroutine.
type request struct {
	correlation uint64
	ticket      oap.Ticket
	end         int // where its elements end among those of its call
}

// dispatch starts a request, or adds it to a call that takeFrames starts.
func (c *conn) dispatch(ctx context.Context, f *oap.Frame) {
	switch f.Code {
	case oap.OpSend, oap.OpAck, oap.OpNack, oap.OpRelease, oap.OpExtend, oap.OpExtendGranted, oap.OpExtendProgress, oap.OpDeadLetter:
		c.collect(ctx, f)
		return
	case oap.OpReceive:
		c.collectReceive(f)
		return
	}
	c.startCalls(ctx) // they arrived before
	switch f.Code {
	case oap.OpPing, oap.OpJoin, oap.OpKnow, oap.OpName, oap.OpWorkers, oap.OpOpen, oap.OpOpenIdentified, oap.OpConfigure, oap.OpConfig, oap.OpQueues, oap.OpDelete:
		c.administer(ctx, f)
	case oap.OpClose, oap.OpPurge, oap.OpStats, oap.OpPurgeDead, oap.OpRedrive, oap.OpDiscard,
		oap.OpPeek, oap.OpDeadLetters, oap.OpSubscribe, oap.OpPause, oap.OpResume, oap.OpStatsPaused, oap.OpEdit, oap.OpThrottle, oap.OpFire, oap.OpSchedules:
		c.attend(ctx, f)
	case oap.OpCreateSlot, oap.OpResolveSlot, oap.OpWaitSlot, oap.OpCancelSlot, oap.OpConsumeSlot, oap.OpDeleteSlot, oap.OpSlots, oap.OpExpiredSlots, oap.OpSweepSlots, oap.OpSendAsking, oap.OpAnswer:
		c.useSlot(ctx, f)
	default:
		c.fail(f.Correlation, &driver.Error{Code: driver.ErrUnsupported, Detail: "unknown operation"})
	}
}

// collect adds a request to send or settle to the call of its kind and queue.
func (c *conn) collect(ctx context.Context, f *oap.Frame) {
	target, q, ok := c.target(f)
	if !ok {
		return
	}
	if f.Code == oap.OpSend && c.isDraining() {
		c.answer(f.Correlation, oap.StatusElsewhere, nil)
		return
	}
	r := request{correlation: f.Correlation, ticket: target.Ticket}
	if !c.admit(&r) {
		return
	}
	_, n, err := oap.PeekBatch(f.Payload)
	if err == nil && n > q.maxBatch { // before there is memory for it
		c.respond(&c.round, &r, &driver.Error{
			Code: driver.ErrTooLarge, Queue: q.name, Field: "batch",
			Detail: fmt.Sprintf("has %d elements, at most %d are allowed", n, q.maxBatch),
		}, nil)
		return
	}
	k := c.callOf(ctx, q, f.Code, n, len(f.Payload))
	if err := k.add(r, f.Payload); err != nil {
		c.respond(&c.round, &r, payloadError(err), nil)
	}
}

// target finds the queue of a request. If there is none, the request is answered.
func (c *conn) target(f *oap.Frame) (oap.Target, *queue, bool) {
	target, err := oap.PeekTarget(f.Payload)
	if err != nil {
		c.failPayload(f.Correlation, err)
		return target, nil, false
	}
	c.mu.Lock()
	q := c.queueLocked(target.Handle)
	c.mu.Unlock()
	if q == nil {
		c.fail(f.Correlation, &driver.Error{Code: driver.ErrClosed, Detail: "this connection has no such queue open"})
		return target, nil, false
	}
	return target, q, true
}

// admit reports whether a request must be done. If it was done before, it is answered, now
// or when that is over.
func (c *conn) admit(r *request) bool {
	if r.ticket.Sequence == 0 {
		return true
	}
	verdict, earlier, err := c.session.begin(r.ticket, asker{conn: c, correlation: r.correlation})
	switch verdict {
	case fresh:
		return true
	case full:
		c.fail(r.correlation, err)
	case unknown:
		c.fail(r.correlation, errUnknown)
	case stale:
		c.fail(r.correlation, errStale)
	case repeated:
		c.out.copyFrame(&c.round, oap.Response, earlier.status, r.correlation, earlier.payload)
		c.inFlight.Add(-1)
	case underway:
	}
	return false
}

var errUnknown = &driver.Error{
	Code: driver.ErrUnavailable, Field: "sequence",
	Detail: "outcome unknown: the request was done, and the producer session had no memory left for the answer",
}

var errStale = &driver.Error{Code: driver.ErrInvalid, Field: "sequence", Detail: "the request is over"}

// respond answers a request, and remembers the answer if the request has a ticket.
func (c *conn) respond(round *completion.Round, r *request, err error, fill func(dst []byte) []byte) {
	status := oap.StatusOK
	switch {
	case errors.Is(err, errElsewhere):
		status, fill = oap.StatusElsewhere, nil
	case err != nil:
		e := oap.ErrorOf(err)
		status = oap.StatusOf(e.Code)
		fill = func(dst []byte) []byte { return oap.AppendError(dst, e) }
	}
	if r.ticket.Sequence == 0 {
		c.out.frame(round, oap.Response, status, r.correlation, fill)
		c.inFlight.Add(-1) // when the answer is there, or the connection looks idle
		return
	}
	payload := round.Buffer[:0]
	if fill != nil {
		payload = fill(payload)
	}
	round.Buffer = payload
	for _, who := range c.session.finish(r.ticket.Sequence, status, payload) {
		who.answer(round, status, payload)
	}
	who := asker{c, r.correlation}
	who.answer(round, status, payload)
}

// answer answers with what became of the request.
func (a *asker) answer(round *completion.Round, status uint16, payload []byte) {
	a.conn.out.copyFrame(round, oap.Response, status, a.correlation, payload)
	a.conn.inFlight.Add(-1)
}

// isDraining reports whether the client was told to go elsewhere. What it sends is refused
// then, so that it can send it elsewhere; deliveries can be settled to the end.
func (c *conn) isDraining() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.draining
}

// answer answers a request without a ticket. The reader calls it.
func (c *conn) answer(correlation uint64, status uint16, fill func(dst []byte) []byte) {
	c.out.frame(&c.round, oap.Response, status, correlation, fill)
	c.inFlight.Add(-1) // when the answer is there, or the connection looks idle
}

// fail answers a request with an error. The reader calls it.
func (c *conn) fail(correlation uint64, err error) {
	e := oap.ErrorOf(err)
	c.answer(correlation, oap.StatusOf(e.Code), func(dst []byte) []byte { return oap.AppendError(dst, e) })
}

func (c *conn) failPayload(correlation uint64, err error) { c.fail(correlation, payloadError(err)) }

func payloadError(err error) *driver.Error {
	return &driver.Error{Code: driver.ErrInvalid, Field: "payload", Detail: err.Error()}
}
