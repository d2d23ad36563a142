package oapapi

import (
	"context"
	"errors"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/completion"
	"github.com/mailboxmq/mailbox/internal/oap"
)

// maxReceiveBytes bounds the bodies of one answer, whatever the client says: the rest of
// what it asked for comes with its next request. leastReceiveBytes is what a receive may
// bring when many others wait; it may bring one message in any case.
const (
	maxReceiveBytes   = 8 << 20
	leastReceiveBytes = 64 << 10
)

// receiveBytes returns what one more receive may bring: the receives that run at the same
// time share what one alone may have.
func (c *conn) receiveBytes() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return max(leastReceiveBytes, maxReceiveBytes/(len(c.running)+1))
}

// receiving is a receive that is under way.
type receiving struct {
	request
	visibility time.Duration

	// Guarded by conn.mu.
	ended bool  // it is complete
	cause error // why it was cancelled
}

// receive starts a receive. It waits first while the client does not read its answers.
func (c *conn) receive(ctx context.Context, r *request, payload []byte) {
	_, req, err := oap.ParseReceive(payload)
	if err != nil {
		c.failPayload(r.correlation, err)
		return
	}
	if !c.free(r.correlation) {
		return
	}
	c.ease()
	most := c.receiveBytes()
	if req.MaxBytes == 0 || req.MaxBytes > most {
		req.MaxBytes = most
	}
	w := &receiving{request: *r, visibility: req.Visibility}
	if req.Wait > 0 && c.isDraining() { // it gets what is ready, and waits elsewhere
		req.Wait, w.cause = 0, errElsewhere
	}
	c.work.Add(1)
	end := r.queue.caller.startReceive(ctx, &c.round, r.queue.name, req, w.done)
	if end != nil {
		c.trackReceive(w, end)
	}
}

// trackReceive makes a receive that waits one that the client can cancel, unless it is
// complete by now.
func (c *conn) trackReceive(w *receiving, end func()) {
	cancel := func(cause error) {
		c.mu.Lock()
		w.cause = cause
		c.mu.Unlock()
		end()
	}
	c.mu.Lock()
	draining := c.draining
	if !w.ended {
		c.running[w.correlation] = &running{conn: c, correlation: w.correlation, cancel: cancel}
	}
	c.mu.Unlock()
	if draining {
		cancel(errElsewhere)
	}
}

// done is the completion of the receive.
func (w *receiving) done(round *completion.Round, got []driver.Delivery, err error) {
	c := w.conn
	c.mu.Lock()
	w.ended = true
	cause := w.cause
	delete(c.running, w.correlation)
	c.mu.Unlock()
	if len(got) == 0 && cause != nil {
		err = cause
	}
	c.received(round, &w.request, w.visibility, got, err)
	c.work.Done()
}

// received answers a request to receive. If the client has gone the messages return to
// their places.
func (c *conn) received(round *completion.Round, r *request, visibility time.Duration, got []driver.Delivery, err error) {
	status := oap.StatusOK
	switch {
	case err == nil:
		c.held.took(len(got), visibility)
		delivered := c.deliver(round, oap.Response, oap.StatusMore, status, r.correlation, got)
		c.inFlight.Add(-1)
		if !delivered && len(got) > 0 {
			c.giveBack(r.queue, got)
		}
		return
	case errors.Is(err, errElsewhere):
		status = oap.StatusElsewhere
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		status = oap.StatusCancelled
	default:
		r.respond(round, err, nil)
		return
	}
	c.out.frame(round, oap.Response, status, r.correlation, nil)
	c.inFlight.Add(-1)
}

// deliver adds deliveries in as many frames as they need, of which the last has another code
// than those before. It reports false if the client has gone.
func (c *conn) deliver(round *completion.Round, flags oap.Flags, more, last uint16, correlation uint64, got []driver.Delivery) bool {
	o := c.out
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failed != nil {
		return false
	}
	start := o.beginLocked(round, flags, last, correlation)
	for i := range got {
		end := len(o.pending)
		o.pending = oap.AppendDelivery(o.pending, &got[i])
		if len(o.pending)-start > oap.HeaderBytes+oap.MaxPayloadBytes && end > start+oap.HeaderBytes {
			o.pending = o.pending[:end]
			oap.SetLength(o.pending, start)
			setCode(o.pending[start:], more)
			start = o.beginLocked(round, flags, last, correlation)
			o.pending = oap.AppendDelivery(o.pending, &got[i])
		}
	}
	oap.SetLength(o.pending, start)
	return true
}

// setCode changes the code of a frame.
func setCode(frame []byte, code uint16) { frame[8], frame[9] = byte(code>>8), byte(code) }

// giveBack returns messages that the client was not told about to their places. Nothing is
// lost if that fails: they return when their visibility ends.
func (c *conn) giveBack(q *queue, got []driver.Delivery) {
	go q.caller.returning().startExtend(context.Background(), new(completion.Round), q.name, returned(got),
		func(*completion.Round, []time.Duration, error) {})
}
