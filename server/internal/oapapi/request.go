package oapapi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/completion"
	"github.com/mailboxmq/mailbox/internal/oap"
)

// request is a request that is under way. Its answer is written by a completion, on any
// goroutine.
type request struct {
	conn        *conn
	queue       *queue
	correlation uint64
	ticket      oap.Ticket
}

// dispatch starts a request.
func (c *conn) dispatch(ctx context.Context, f *oap.Frame) {
	switch f.Code {
	case oap.OpSend, oap.OpReceive, oap.OpAck, oap.OpNack, oap.OpExtend, oap.OpExtendGranted, oap.OpDeadLetter:
		c.start(ctx, f)
	case oap.OpPing, oap.OpOpen, oap.OpOpenIdentified, oap.OpConfigure, oap.OpConfig, oap.OpQueues, oap.OpDelete:
		c.administer(ctx, f)
	case oap.OpClose, oap.OpPurge, oap.OpStats, oap.OpPurgeDead, oap.OpRedrive, oap.OpDiscard,
		oap.OpPeek, oap.OpDeadLetters, oap.OpSubscribe:
		c.attend(ctx, f)
	default:
		c.fail(f.Correlation, &driver.Error{Code: driver.ErrUnsupported, Detail: "unknown operation"})
	}
}

// start starts to send, receive or settle. The reader calls it, and does not wait.
func (c *conn) start(ctx context.Context, f *oap.Frame) {
	target, q, ok := c.target(f)
	if !ok {
		return
	}
	if f.Code == oap.OpSend && c.isDraining() {
		c.answer(f.Correlation, oap.StatusElsewhere, nil)
		return
	}
	r := &request{conn: c, queue: q, correlation: f.Correlation, ticket: target.Ticket}
	c.round.Alone = c.started.Load() == 0 && !c.in.hasFrame()
	scratch := &c.scratch
	switch f.Code {
	case oap.OpReceive:
		c.receive(ctx, r, f.Payload)
	case oap.OpSend:
		parsed(r, f.Payload, &scratch.messages, oap.ParseSend, func(messages []driver.Outgoing) { c.send(ctx, r, messages) })
	case oap.OpAck:
		parsed(r, f.Payload, &scratch.receipts, oap.ParseAck, func(receipts []driver.Receipt) {
			q.caller.startAck(ctx, &c.round, q.name, receipts, r.settling(len(receipts)))
		})
	case oap.OpNack:
		parsed(r, f.Payload, &scratch.nacks, oap.ParseNack, func(nacks []driver.Nack) {
			q.caller.startNack(ctx, &c.round, q.name, nacks, r.settling(len(nacks)))
		})
	case oap.OpDeadLetter:
		parsed(r, f.Payload, &scratch.deadLetters, oap.ParseDeadLetterRequests, func(requests []driver.DeadLetterRequest) {
			q.caller.startDeadLetter(ctx, &c.round, q.name, requests, r.settling(len(requests)))
		})
	case oap.OpExtend, oap.OpExtendGranted:
		parsed(r, f.Payload, &scratch.extensions, oap.ParseExtend, func(extensions []driver.Extension) {
			q.caller.startExtend(ctx, &c.round, q.name, extensions, r.extending(extensions, f.Code == oap.OpExtendGranted))
		})
	}
}

// scratch is memory that the reader parses requests into.
type scratch struct {
	messages    []driver.Outgoing
	receipts    []driver.Receipt
	nacks       []driver.Nack
	extensions  []driver.Extension
	deadLetters []driver.DeadLetterRequest
}

// parsed parses the elements of a request and calls begin with them, unless the request was
// done before or is malformed: then it is answered. The elements are valid during the call.
func parsed[T any](r *request, payload []byte, scratch *[]T, parse func([]byte, []T) (oap.Target, []T, error), begin func([]T)) {
	if !r.admit() {
		return
	}
	c := r.conn
	c.started.Add(1)
	c.work.Add(1)
	if _, n, err := oap.PeekBatch(payload); err == nil && n > r.queue.maxBatch { // before there is memory for it
		r.end(&c.round, &driver.Error{
			Code: driver.ErrTooLarge, Queue: r.queue.name, Field: "batch",
			Detail: fmt.Sprintf("has %d elements, at most %d are allowed", n, r.queue.maxBatch),
		}, nil)
		return
	}
	_, elements, err := parse(payload, (*scratch)[:0])
	if err != nil {
		r.end(&c.round, payloadError(err), nil)
	} else {
		begin(elements)
	}
	clear(elements)
	*scratch = elements[:0]
}

// send starts a send. Until one has succeeded, sends create a queue that did not exist when
// it was opened; that blocks, and is done on another goroutine.
func (c *conn) send(ctx context.Context, r *request, messages []driver.Outgoing) {
	q := r.queue
	done := func(round *completion.Round, sent []driver.Sent, err error) {
		errs, whole := outcome(err)
		r.end(round, whole, func(dst []byte) []byte { return oap.AppendSent(dst, sent, errs) })
	}
	if !q.absent.Load() && c.firstsDone() {
		q.caller.startSend(ctx, &c.round, q.name, messages, done)
		return
	}
	messages = completion.CloneOutgoing(messages)
	c.inOrder(func() {
		sent, err := q.caller.sendFirst(ctx, q.name, messages)
		if err == nil {
			q.absent.Store(false)
		}
		var round completion.Round
		done(&round, sent, err)
		round.End()
	})
}

// firstsDone reports whether all calls of inOrder have returned.
func (c *conn) firstsDone() bool {
	select {
	case <-c.lastFirst:
		return true
	default:
		return c.lastFirst == nil
	}
}

// inOrder calls do on another goroutine, after all earlier calls have returned.
func (c *conn) inOrder(do func()) {
	before := c.lastFirst
	returned := make(chan struct{})
	c.lastFirst = returned
	go func() {
		defer close(returned)
		if before != nil {
			<-before
		}
		do()
	}()
}

// settling returns the completion of a request that settles deliveries.
func (r *request) settling(deliveries int) completion.Settled {
	return func(round *completion.Round, err error) {
		err = elsewhere(err)
		r.conn.held.settled(deliveries - stillHeld(err, deliveries))
		errs, whole := outcome(err)
		r.end(round, whole, func(dst []byte) []byte { return oap.AppendFailures(dst, errs) })
	}
}

// extending returns the completion of a request that extends deliveries.
func (r *request) extending(extensions []driver.Extension, granting bool) completion.Extended {
	longest, ended, all := time.Duration(0), 0, len(extensions)
	for i := range extensions {
		longest = max(longest, extensions[i].Visibility)
		if extensions[i].Visibility == 0 {
			ended++
		}
	}
	return func(round *completion.Round, granted []time.Duration, err error) {
		err = elsewhere(err)
		if stillHeld(err, all) < all || all == 0 {
			r.conn.held.lasts(longest)
			r.conn.held.settled(ended)
		}
		errs, whole := outcome(err)
		r.end(round, whole, func(dst []byte) []byte {
			if granting {
				return oap.AppendGranted(dst, granted, errs)
			}
			return oap.AppendFailures(dst, errs)
		})
	}
}

// outcome tells failures of elements from one of the whole call.
func outcome(err error) (errs []error, whole error) {
	if err == nil {
		return nil, nil
	}
	if batch, ok := errors.AsType[*driver.BatchError](err); ok {
		return batch.Errs, nil
	}
	return nil, err
}

// admit reports whether a request must be done. If it was done before, it is answered, now
// or when that is over.
func (r *request) admit() bool {
	if r.ticket.Sequence == 0 {
		return true
	}
	c := r.conn
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

// end ends a request that start has begun, with an error of the whole or an answer.
func (r *request) end(round *completion.Round, err error, fill func(dst []byte) []byte) {
	r.conn.started.Add(-1)
	r.respond(round, err, fill)
	r.conn.work.Done()
}

// respond answers a request, and remembers the answer if the request has a ticket.
func (r *request) respond(round *completion.Round, err error, fill func(dst []byte) []byte) {
	status := oap.StatusOK
	switch {
	case errors.Is(err, errElsewhere):
		status, fill = oap.StatusElsewhere, nil
	case err != nil:
		e := oap.ErrorOf(err)
		status = oap.StatusOf(e.Code)
		fill = func(dst []byte) []byte { return oap.AppendError(dst, e) }
	}
	c := r.conn
	if r.ticket.Sequence == 0 {
		c.out.frame(round, oap.Response, status, r.correlation, fill)
		c.inFlight.Add(-1) // when the answer is there, or the connection looks idle
		return
	}
	var payload []byte
	if fill != nil {
		payload = fill(nil)
	}
	askers := c.session.finish(r.ticket.Sequence, status, payload)
	for _, who := range append(askers, asker{c, r.correlation}) {
		who.conn.out.copyFrame(round, oap.Response, status, who.correlation, payload)
		who.conn.inFlight.Add(-1)
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
	q := c.queues[target.Handle]
	c.mu.Unlock()
	if q == nil {
		c.fail(f.Correlation, &driver.Error{Code: driver.ErrClosed, Detail: "this connection has no such queue open"})
		return target, nil, false
	}
	return target, q, true
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

// returned has the receipts of deliveries, to end their leases.
func returned(got []driver.Delivery) []driver.Extension {
	extensions := make([]driver.Extension, len(got))
	for i := range got {
		extensions[i].Receipt = got[i].Receipt
	}
	return slices.Clip(extensions)
}
