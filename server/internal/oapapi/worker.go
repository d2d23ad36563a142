package oapapi

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/oap"
)

// worker does sends and settlements: requests that follow each other and do the
// same to the same queue are one call of the broker. It is used by one goroutine
// at a time; what it keeps is memory for the next time.
type worker struct {
	conn    *conn
	frames  []byte // answers
	answers int
	spans   []span

	messages   []driver.Outgoing
	receipts   []driver.Receipt
	nacks      []driver.Nack
	extensions []driver.Extension
	burials    []driver.DeadLetterRequest
}

// span is the part of a call that belongs to one request.
type span struct {
	request  *request
	from, to int
}

// maxCallBytes bounds the messages of one call, of which each request has at
// most a frame.
const maxCallBytes = 4 << 20

// run does requests and adds the answers to the output, which the caller
// flushes. If the connection is abandoned it drops those that it has not begun.
func (w *worker) run(ctx context.Context, requests []request) {
	for len(requests) > 0 && !w.conn.abandoned.Load() {
		first, n, size := &requests[0], 1, len(requests[0].payload)
		for n < len(requests) && requests[n].queue == first.queue && requests[n].code == first.code &&
			size+len(requests[n].payload) <= maxCallBytes {
			size += len(requests[n].payload)
			n++
		}
		w.alike(ctx, requests[:n])
		requests = requests[n:]
	}
	w.hand()
}

// alike does requests of one kind for one queue.
func (w *worker) alike(ctx context.Context, requests []request) {
	caller, h := requests[0].queue.caller, &w.conn.holding
	switch requests[0].code {
	case oap.OpSend:
		together(ctx, w, requests, &w.messages, oap.ParseSend, sending(caller, requests[0].queue), w.sent)
	case oap.OpAck:
		together(ctx, w, requests, &w.receipts, oap.ParseAck, settling(ending(h, caller.Ack)), w.settled)
	case oap.OpNack:
		together(ctx, w, requests, &w.nacks, oap.ParseNack, settling(ending(h, caller.Nack)), w.settled)
	case oap.OpExtend:
		together(ctx, w, requests, &w.extensions, oap.ParseExtend, withoutGrants(h.extending(caller.Extend)), w.settled)
	case oap.OpExtendGranted:
		together(ctx, w, requests, &w.extensions, oap.ParseExtend, h.extending(caller.Extend), w.granted)
	case oap.OpDeadLetter:
		together(ctx, w, requests, &w.burials, oap.ParseDeadLetterRequests, settling(ending(h, caller.DeadLetter)), w.settled)
	}
}

// sending returns what sends to a queue: until one has worked, sends make a queue
// that was not there when it was opened.
func sending(caller Caller, q *queue) func(context.Context, string, []driver.Outgoing) ([]driver.Sent, error) {
	maker, ok := caller.(Maker)
	if !ok || !q.absent.Load() {
		return caller.Send
	}
	return func(ctx context.Context, topic string, msgs []driver.Outgoing) ([]driver.Sent, error) {
		sent, err := maker.SendFirst(ctx, topic, msgs)
		if err == nil {
			q.absent.Store(false)
		}
		return sent, err
	}
}

// settling makes a settlement look like a send without results.
func settling[T any](do func(context.Context, string, []T) error) func(context.Context, string, []T) ([]none, error) {
	return func(ctx context.Context, topic string, elements []T) ([]none, error) {
		return nil, do(ctx, topic, elements)
	}
}

// none is the result of a settlement.
type none struct{}

// withoutGrants makes an extension look like any settlement.
func withoutGrants(do func(context.Context, string, []driver.Extension) ([]time.Duration, error)) func(context.Context, string, []driver.Extension) ([]none, error) {
	return settling(func(ctx context.Context, topic string, extensions []driver.Extension) error {
		_, err := do(ctx, topic, extensions)
		return err
	})
}

// together does requests in as few calls as the queue allows.
func together[T, R any](ctx context.Context, w *worker, requests []request, scratch *[]T,
	parse func([]byte, []T) (oap.Target, []T, error),
	do func(context.Context, string, []T) ([]R, error),
	reply func(s *span, results []R, errs []error),
) {
	q := requests[0].queue
	elements := (*scratch)[:0]
	w.spans = w.spans[:0]
	call := func() {
		if len(w.spans) > 0 {
			perform(w, func(from, to int) ([]R, error) { return do(ctx, q.topic, elements[from:to]) }, reply)
		}
		w.spans = emptied(w.spans)
		elements = emptied(elements)
	}
	for i := range requests {
		r := &requests[i]
		if !w.admit(r) {
			continue
		}
		from := len(elements)
		if _, n, err := oap.PeekBatch(r.payload); err == nil && n > q.maxBatch {
			w.refuse(r, batchError(q, n)) // before there is memory for it
			continue
		}
		_, more, err := parse(r.payload, elements)
		if err != nil {
			clear(more[from:])
			w.refuse(r, payloadError(err))
			continue
		}
		if len(more) > q.maxBatch && from > 0 { // this one begins the next call
			alone := append([]T(nil), more[from:]...)
			clear(more[from:])
			call()
			more, from = append(elements, alone...), 0
		}
		elements = more
		w.spans = append(w.spans, span{request: r, from: from, to: len(elements)})
	}
	call()
	*scratch = elements
}

func batchError(q *queue, elements int) error {
	return &driver.Error{
		Code: driver.ErrTooLarge, Queue: q.topic, Field: "batch",
		Detail: fmt.Sprintf("has %d elements, at most %d are allowed", elements, q.maxBatch),
	}
}

// perform makes one call for all spans and answers each. If the call as a whole
// is refused, each request is tried alone: a bound that is reached by all of them
// together may have room for some.
func perform[R any](w *worker, do func(from, to int) ([]R, error), reply func(*span, []R, []error)) {
	results, err := do(0, w.spans[len(w.spans)-1].to)
	errs, wholly := outcome(err)
	switch {
	case wholly == nil:
		for i := range w.spans {
			s := &w.spans[i]
			reply(s, part(results, s), part(errs, s))
		}
	case len(w.spans) > 1 && refusal(wholly):
		for i := range w.spans {
			s := &w.spans[i]
			results, err := do(s.from, s.to)
			if errs, wholly := outcome(err); wholly != nil {
				w.refuse(s.request, wholly)
			} else {
				reply(s, results, errs)
			}
		}
	default:
		for i := range w.spans {
			w.refuse(w.spans[i].request, wholly)
		}
	}
}

// outcome tells failures of elements from one of the whole call.
func outcome(err error) (errs []error, wholly error) {
	if err == nil {
		return nil, nil
	}
	if batch, ok := errors.AsType[*driver.BatchError](err); ok {
		return batch.Errs, nil
	}
	return nil, err
}

// refusal reports whether err says for certain that nothing was done, for a
// reason that may not hold for a smaller call.
func refusal(err error) bool {
	for _, code := range []driver.Code{driver.ErrFull, driver.ErrForbidden, driver.ErrInvalid, driver.ErrTooLarge} {
		if errors.Is(err, code) {
			return true
		}
	}
	return false
}

// part is what belongs to a span, nil if there is nothing.
func part[T any](all []T, s *span) []T {
	if all == nil {
		return nil
	}
	return all[s.from:s.to]
}

func (w *worker) sent(s *span, sent []driver.Sent, errs []error) {
	w.answer(s.request, oap.StatusOK, func(dst []byte) []byte { return oap.AppendSent(dst, sent, errs) })
}

func (w *worker) settled(s *span, _ []none, errs []error) {
	w.answer(s.request, oap.StatusOK, func(dst []byte) []byte { return oap.AppendFailures(dst, errs) })
}

func (w *worker) granted(s *span, granted []time.Duration, errs []error) {
	w.answer(s.request, oap.StatusOK, func(dst []byte) []byte { return oap.AppendGranted(dst, granted, errs) })
}

func (w *worker) refuse(r *request, err error) {
	if errors.Is(err, errElsewhere) {
		w.answer(r, oap.StatusElsewhere, nil)
		return
	}
	e := oap.ErrorOf(err)
	w.answer(r, oap.StatusOf(e.Code), func(dst []byte) []byte { return oap.AppendError(dst, e) })
}

// admit reports whether a request is to be done. If it was done before, it is
// answered, now or when that is over.
func (w *worker) admit(r *request) bool {
	if r.ticket.Sequence == 0 {
		return true
	}
	c := w.conn
	verdict, err := c.session.begin(r.ticket, asker{conn: c, correlation: r.correlation})
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

// answer adds the answer to a request, and remembers it where that is wanted.
func (w *worker) answer(r *request, status uint16, fill func(dst []byte) []byte) {
	start := len(w.frames)
	w.frames = oap.AppendHeader(w.frames, &oap.Header{
		Flags: oap.Response, Code: status, Protocol: oap.ProtocolMailbox, Correlation: r.correlation,
	})
	if fill != nil {
		w.frames = fill(w.frames)
	}
	oap.SetLength(w.frames, start)
	w.answers++
	if r.ticket.Sequence > 0 {
		w.conn.remember(r.ticket, status, w.frames[start+oap.HeaderBytes:])
	}
}

// remember keeps the outcome of a request in the session, and answers those who
// asked for it meanwhile.
func (c *conn) remember(ticket oap.Ticket, status uint16, answer []byte) {
	for _, who := range c.session.finish(ticket.Sequence, status, answer) {
		who.conn.out.copyFrame(oap.Response, status, who.correlation, answer)
		who.conn.inFlight.Add(-1)
		who.conn.out.flush()
	}
}

// hand gives the answers to the output.
func (w *worker) hand() {
	o := w.conn.out
	o.mu.Lock()
	o.added++
	if o.failed == nil {
		o.pending = append(o.pending, w.frames...)
	}
	o.mu.Unlock()
	w.conn.inFlight.Add(-int64(w.answers)) // when the answers are there, or it looks idle
	w.answers = 0
	w.frames = emptied(w.frames)
	if cap(w.frames) > keptBuffer {
		w.frames = nil
	}
}
