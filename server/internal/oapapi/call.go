package oapapi

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/completion"
	"github.com/mailboxmq/mailbox/internal/oap"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// call is one operation of the broker, for all requests of one kind and one queue that
// arrived together: a client with many workers sends many small requests.
type call struct {
	conn     *conn
	queue    *queue
	code     uint16
	bytes    int // of payloads
	requests []request

	// The elements of the requests, of the kind that code says. They are valid until start
	// has returned: bodies are in the input of the connection.
	messages    []driver.Outgoing
	outgoing    []broker.Outgoing
	receipts    []driver.Receipt
	texts       []string
	nacks       []driver.Nack
	extensions  []driver.Extension
	deadLetters []driver.DeadLetterRequest

	uses  atomic.Int32 // by start and by the completion
	phase atomic.Int32

	// The completions, made once for all uses of the call.
	whenSent     completion.Sent
	whenSettled  completion.Settled
	whenExtended completion.Extended
}

// The phases of a call. A send that is refused as a whole before start has returned is divided.
const (
	callStarting int32 = iota
	callStarted
	callRefused
)

var spareCalls sync.Pool

func newCall(c *conn, q *queue, code uint16) *call {
	k, ok := spareCalls.Get().(*call)
	if !ok {
		k = new(call)
		k.whenSent, k.whenSettled, k.whenExtended = k.sent, k.settled, k.extended
	}
	k.conn, k.queue, k.code = c, q, code
	return k
}

// maxCallBytes bounds the payloads of a call of several requests: larger ones gain nothing.
const maxCallBytes = 256 << 10

// callOf returns the call for a request with n elements. If it would be too large with them,
// it is started, and the request begins another.
func (c *conn) callOf(ctx context.Context, q *queue, code uint16, n, bytes int) *call {
	for i, k := range c.calls {
		if k.queue != q || k.code != code {
			continue
		}
		if k.elements()+n <= q.maxBatch && k.bytes+bytes <= maxCallBytes {
			return k
		}
		c.calls = append(c.calls[:i], c.calls[i+1:]...)
		k.start(ctx)
		break
	}
	k := newCall(c, q, code)
	c.calls = append(c.calls, k)
	return k
}

// elements is how many there are so far.
func (k *call) elements() int {
	if len(k.requests) == 0 {
		return 0
	}
	return k.requests[len(k.requests)-1].end
}

// add parses a request and adds it.
func (k *call) add(r request, payload []byte) (err error) {
	switch k.code {
	case oap.OpSend:
		r.end, err = parsed(payload, &k.messages, oap.ParseSend)
	case oap.OpAck:
		r.end, err = parsed(payload, &k.receipts, oap.ParseAck)
	case oap.OpNack:
		r.end, err = parsed(payload, &k.nacks, oap.ParseNack)
	case oap.OpRelease:
		r.end, err = parsed(payload, &k.nacks, oap.ParseRelease)
	case oap.OpDeadLetter:
		r.end, err = parsed(payload, &k.deadLetters, oap.ParseDeadLetterRequests)
	case oap.OpExtend, oap.OpExtendGranted:
		r.end, err = parsed(payload, &k.extensions, oap.ParseExtend)
	case oap.OpExtendProgress:
		r.end, err = parsed(payload, &k.extensions, oap.ParseExtendProgress)
	}
	if err != nil {
		return err
	}
	k.bytes += len(payload)
	k.requests = append(k.requests, r)
	return nil
}

// parsed adds the elements of a payload, and returns how many there are then.
func parsed[T any](payload []byte, elements *[]T, parse func([]byte, []T) (oap.Target, []T, error)) (end int, err error) {
	had := len(*elements)
	_, all, err := parse(payload, *elements)
	if err != nil {
		clear(all[had:])
		all = all[:had]
	}
	*elements = all
	return len(all), err
}

// startCalls starts everything that was collected. Receives are last: what is sent with them
// they may get at once.
func (c *conn) startCalls(ctx context.Context) {
	for i, k := range c.calls {
		c.calls[i] = nil
		c.round.Alone = c.alone(k)
		k.start(ctx)
	}
	c.calls = c.calls[:0]
	for i := range c.receives {
		c.receive(ctx, &c.receives[i])
	}
	clear(c.receives)
	c.receives = c.receives[:0]
	c.round.Alone = false
}

// aloneBytes is the size of the largest request that the reader commits on its own goroutine.
const aloneBytes = 16 << 10

// alone reports whether the reader may wait for the disk, because k is all there is to do. A
// large request is followed by others that the reader could handle meanwhile.
func (c *conn) alone(k *call) bool {
	return c.started.Load() == 0 && len(c.calls) == 1 && len(k.requests) == 1 && len(c.receives) == 0 &&
		c.in.idle() && k.bytes <= aloneBytes
}

// start starts the operation, and does not wait for it.
func (k *call) start(ctx context.Context) {
	c, q, round := k.conn, k.queue, &k.conn.round
	if len(k.requests) == 0 { // none could be parsed
		k.free()
		return
	}
	k.uses.Store(2)
	c.started.Add(1)
	c.work.Add(1)
	switch k.code {
	case oap.OpSend:
		k.startSend(ctx)
	case oap.OpAck:
		for i := range k.receipts {
			k.texts = append(k.texts, k.receipts[i].Handle)
		}
		q.caller.user.StartAck(ctx, round, q.name, k.texts, k.whenSettled)
	case oap.OpNack, oap.OpRelease:
		q.caller.startNack(ctx, round, q.name, k.nacks, k.whenSettled)
	case oap.OpDeadLetter:
		q.caller.startDeadLetter(ctx, round, q.name, k.deadLetters, k.whenSettled)
	case oap.OpExtend, oap.OpExtendGranted, oap.OpExtendProgress:
		q.caller.startExtend(ctx, round, q.name, k.extensions, k.whenExtended)
	}
	if !k.phase.CompareAndSwap(callStarting, callStarted) {
		k.divide(ctx)
	}
	k.leave()
}

// divide starts a call for each request of a send that was refused as a whole: the cause may
// be one of them.
func (k *call) divide(ctx context.Context) {
	from := 0
	for _, r := range k.requests {
		one := newCall(k.conn, k.queue, k.code)
		one.messages = append(one.messages, k.messages[from:r.end]...)
		from, r.end = r.end, r.end-from
		one.requests = append(one.requests, r)
		one.start(ctx)
	}
	k.conn.started.Add(-1)
	k.conn.work.Done()
	k.leave() // instead of the completion
}

// leave ends one of the two uses of the call.
func (k *call) leave() {
	if k.uses.Add(-1) == 0 {
		k.free()
	}
}

// free keeps the call for reuse.
func (k *call) free() {
	clear(k.messages)
	clear(k.outgoing)
	clear(k.receipts)
	clear(k.texts)
	clear(k.nacks)
	clear(k.extensions)
	clear(k.deadLetters)
	*k = call{
		requests: k.requests[:0], messages: k.messages[:0], outgoing: k.outgoing[:0], receipts: k.receipts[:0], texts: k.texts[:0],
		nacks: k.nacks[:0], extensions: k.extensions[:0], deadLetters: k.deadLetters[:0],
		whenSent: k.whenSent, whenSettled: k.whenSettled, whenExtended: k.whenExtended,
	}
	if cap(k.messages) <= maxKeptElements {
		spareCalls.Put(k)
	}
}

// maxKeptElements is the size of calls that are kept for reuse.
const maxKeptElements = 1024

// startSend starts a send. Until one has succeeded, sends create a queue that did not exist
// when it was opened; that blocks, and is done on another goroutine, as is a send to a queue
// that the broker has to open.
func (k *call) startSend(ctx context.Context) {
	c, q := k.conn, k.queue
	k.outgoing = slices.Grow(k.outgoing, len(k.messages))
	for i := range k.messages {
		k.outgoing = append(k.outgoing, broker.Outgoing{Outgoing: k.messages[i]})
	}
	c.awaitFirst()
	if !q.absent.Load() {
		c.first = q.caller.user.StartSend(ctx, &c.round, q.name, k.outgoing, k.whenSent)
		return
	}
	messages := completion.CloneOutgoing(k.messages)
	first := make(chan struct{})
	c.first = first
	go func() {
		defer close(first)
		sent, err := q.caller.sendFirst(ctx, q.name, messages)
		if err == nil {
			q.absent.Store(false)
		}
		round := completion.NewRound()
		k.sent(round, sent, err)
		round.Close()
	}()
}

// awaitFirst waits until a send that creates or opens a queue is done, so that no later send
// overtakes it.
func (c *conn) awaitFirst() {
	if c.first == nil {
		return
	}
	c.round.End()
	<-c.first
	c.first = nil
}

// sent is the completion of a send.
func (k *call) sent(round *completion.Round, sent []driver.Sent, err error) {
	errs, whole := outcome(elsewhere(err))
	if len(k.requests) > 1 && isRefusal(whole) && k.phase.CompareAndSwap(callStarting, callRefused) {
		return // start divides the call
	}
	k.answer(round, whole, func(dst []byte, from, to int) []byte {
		return oap.AppendSent(dst, sent[from:to], part(errs, from, to))
	})
}

// settled is the completion of calls that settle deliveries.
func (k *call) settled(round *completion.Round, err error) {
	err = elsewhere(err)
	deliveries := k.elements()
	k.conn.held.settled(deliveries - stillHeld(err, deliveries))
	errs, whole := outcome(err)
	k.answer(round, whole, func(dst []byte, from, to int) []byte { return oap.AppendFailures(dst, part(errs, from, to)) })
}

// extended is the completion of calls that extend deliveries.
func (k *call) extended(round *completion.Round, granted []time.Duration, err error) {
	err = elsewhere(err)
	if all := k.elements(); stillHeld(err, all) < all || all == 0 {
		longest, ended := time.Duration(0), 0
		for i, visibility := range granted {
			longest = max(longest, visibility)
			if visibility == 0 && driver.At(err, i) == nil {
				ended++
			}
		}
		k.conn.held.lasts(longest)
		k.conn.held.settled(ended)
	}
	errs, whole := outcome(err)
	k.answer(round, whole, func(dst []byte, from, to int) []byte {
		if k.code != oap.OpExtend {
			return oap.AppendGranted(dst, granted[from:to], part(errs, from, to))
		}
		return oap.AppendFailures(dst, part(errs, from, to))
	})
}

// part returns the errors of some elements, or nil if none has failed.
func part(errs []error, from, to int) []error {
	if errs == nil {
		return nil
	}
	errs = errs[from:to]
	for _, err := range errs {
		if err != nil {
			return errs
		}
	}
	return nil
}

// answer answers all requests: with an error of the whole, or with what fill writes for the
// elements of each.
func (k *call) answer(round *completion.Round, whole error, fill func(dst []byte, from, to int) []byte) {
	c, from := k.conn, 0
	c.started.Add(-1)
	for i := range k.requests {
		r := &k.requests[i]
		c.respond(round, r, whole, func(dst []byte) []byte { return fill(dst, from, r.end) })
		from = r.end
	}
	c.work.Done()
	k.leave()
}

// isRefusal reports whether an error says that nothing was sent because of what was to be sent.
func isRefusal(err error) bool {
	return errors.Is(err, driver.ErrForbidden) || errors.Is(err, driver.ErrTooLarge) || errors.Is(err, driver.ErrInvalid)
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
