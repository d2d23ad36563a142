package oapapi

import (
	"context"
	"errors"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/oap"
)

// maxReceiveBytes bounds the bodies of one answer, whatever the client says: the
// rest of what it asked for comes with its next request.
const maxReceiveBytes = 8 << 20

// leastReceiveBytes is what a receive may bring when many others run. One message
// it may bring in any case.
const leastReceiveBytes = 64 << 10

// receiveBytes is what one more receive may bring: those that run at the same time
// share what one alone may have.
func (c *conn) receiveBytes() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return max(leastReceiveBytes, maxReceiveBytes/(len(c.running)+1))
}

// parseReceive reads a request to receive, and answers it if it makes no sense.
func (c *conn) parseReceive(r *request) (driver.ReceiveRequest, bool) {
	_, req, err := oap.ParseReceive(r.payload)
	if err != nil {
		c.failPayload(r.correlation, err)
		return req, false
	}
	r.visibility = req.Visibility
	if req.MaxBytes == 0 || req.MaxBytes > maxReceiveBytes {
		req.MaxBytes = maxReceiveBytes
	}
	return req, true
}

// runReceives takes for all requests what is there, and lets the others wait.
func (c *conn) runReceives(ctx context.Context, requests []request) {
	for len(requests) > 0 {
		r := &requests[0]
		req, ok := c.parseReceive(r)
		if !ok {
			requests = requests[1:]
			continue
		}
		// What differs in nothing is taken together. With strict groups it is
		// not: the messages of a group must not go to two receivers.
		alike := 1
		if !c.strict(r.queue) && req.Max >= 1 && req.MaxBytes == maxReceiveBytes {
			for alike < len(requests) && requests[alike].queue == r.queue &&
				sameReceive(r, &requests[alike]) && (alike+1)*req.Max <= r.queue.maxBatch {
				alike++
			}
		}
		c.takeFor(ctx, requests[:alike], req)
		c.ease()
		requests = requests[alike:]
	}
}

// strict reports whether what is received from a queue must not be divided among
// receivers, as far as is known now.
func (c *conn) strict(q *queue) bool {
	if divider, ok := c.caller.(Divider); ok {
		return divider.Strict(q.topic)
	}
	return q.strict
}

// undivided returns what the first of several receivers may have of what was taken
// for all, and gives the rest back, if the queue turns out to have strict groups:
// somebody has made it anew while they asked. Else it returns everything.
func (c *conn) undivided(ctx context.Context, q *queue, got []driver.Delivery, most int) []driver.Delivery {
	if len(got) <= most || !c.strict(q) {
		return got
	}
	c.giveBack(ctx, q, got[most:])
	return got[:most]
}

// sameReceive reports whether two requests ask for the same.
func sameReceive(a, b *request) bool { return string(a.payload) == string(b.payload) }

// takeFor takes messages for requests that ask for the same.
func (c *conn) takeFor(ctx context.Context, requests []request, req driver.ReceiveRequest) {
	look := req
	look.Max, look.Wait = req.Max*len(requests), min(req.Wait, 0)
	got, err := requests[0].queue.caller.Receive(ctx, requests[0].queue.topic, look)
	if err != nil && (req.Wait <= 0 || !errors.Is(err, driver.ErrFull)) {
		for i := range requests {
			c.received(ctx, &requests[i], nil, err)
		}
		return
	}
	if len(requests) > 1 {
		got = c.undivided(ctx, requests[0].queue, got, req.Max)
	}
	for i := range requests {
		mine := got[:min(len(got), req.Max)]
		got = got[len(mine):]
		if len(mine) > 0 || req.Wait <= 0 {
			c.received(ctx, &requests[i], mine, err)
		} else {
			c.await(ctx, &requests[i], req)
		}
	}
}

// await does a request that may have to wait: together with others where that makes
// no difference, and else on a goroutine of its own.
func (c *conn) await(ctx context.Context, r *request, req driver.ReceiveRequest) {
	if !c.strict(r.queue) && req.Wait > 0 && req.Max >= 1 && req.MaxBytes == maxReceiveBytes {
		c.gather(ctx, r, req)
		return
	}
	waiting := request{correlation: r.correlation, code: r.code, queue: r.queue, visibility: req.Visibility}
	ctx, running := c.track(ctx, r.correlation, false)
	if running == nil {
		return
	}
	c.work.Go(func() {
		c.out.room(keptBuffer)
		req.MaxBytes = min(req.MaxBytes, c.receiveBytes())
		got, err := waiting.queue.caller.Receive(ctx, waiting.queue.topic, req)
		if len(got) == 0 && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		running.done()
		c.received(ctx, &waiting, got, err)
		c.out.flushSoon()
	})
}

// received answers a request to receive, without flushing. If the client is gone
// the messages go back to their places.
func (c *conn) received(ctx context.Context, r *request, got []driver.Delivery, err error) {
	switch {
	case errors.Is(err, errElsewhere):
		c.answer(r.correlation, oap.StatusElsewhere, nil)
		return
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		c.answer(r.correlation, oap.StatusCancelled, nil)
		return
	case err != nil:
		c.fail(r.correlation, err)
		return
	}
	c.holding.took(len(got), r.visibility)
	delivered := c.deliver(oap.Response, oap.StatusMore, oap.StatusOK, r.correlation, got)
	c.inFlight.Add(-1)
	if !delivered && len(got) > 0 {
		c.giveBack(ctx, r.queue, got)
	}
}

// deliver adds deliveries in as many frames as they need, of which the last has
// another code than those before.
func (c *conn) deliver(flags oap.Flags, more, last uint16, correlation uint64, got []driver.Delivery) bool {
	o := c.out
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failed != nil {
		return false
	}
	start := o.beginLocked(flags, last, correlation)
	for i := range got {
		end := len(o.pending)
		o.pending = oap.AppendDelivery(o.pending, &got[i])
		if len(o.pending)-start > oap.HeaderBytes+oap.MaxPayloadBytes && end > start+oap.HeaderBytes {
			o.pending = o.pending[:end]
			oap.SetLength(o.pending, start)
			setCode(o.pending[start:], more)
			start = o.beginLocked(flags, last, correlation)
			o.pending = oap.AppendDelivery(o.pending, &got[i])
		}
	}
	oap.SetLength(o.pending, start)
	return true
}

// setCode changes the code of a frame.
func setCode(frame []byte, code uint16) { frame[8], frame[9] = byte(code>>8), byte(code) }

// giveBackTime bounds how long it takes to give messages back.
const giveBackTime = 5 * time.Second

// giveBack returns messages that nobody was told about to their places. Nothing
// is lost if that fails: they come back when their visibility is over.
func (c *conn) giveBack(ctx context.Context, q *queue, got []driver.Delivery) {
	extensions := make([]driver.Extension, len(got))
	for i := range got {
		extensions[i].Receipt = got[i].Receipt
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackTime)
	defer cancel()
	caller := q.caller
	if returner, ok := caller.(Returner); ok {
		caller = returner.Returning()
	}
	_, _ = caller.Extend(ctx, q.topic, extensions)
}
