package oapapi

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/completion"
	"github.com/mailboxmq/mailbox/internal/oap"
	"github.com/mailboxmq/mailbox/server/internal/broker"
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
	receives := len(c.running) - int(c.slotWaits.Load())
	return max(leastReceiveBytes, maxReceiveBytes/(max(receives, 0)+1))
}

// receiveRequest is a request to receive that was not started yet.
type receiveRequest struct {
	correlation uint64
	queue       *queue
	driver.ReceiveRequest
}

// collectReceive reads a request to receive.
func (c *conn) collectReceive(f *oap.Frame) {
	_, q, ok := c.target(f)
	if !ok {
		return
	}
	_, req, err := oap.ParseReceive(f.Payload)
	if err != nil {
		c.failPayload(f.Correlation, err)
		return
	}
	c.receives = append(c.receives, receiveRequest{f.Correlation, q, req})
}

// receiving is a receive that is under way.
type receiving struct {
	conn        *conn
	queue       *queue
	correlation uint64
	req         driver.ReceiveRequest

	// Guarded by conn.mu.
	ended   bool  // it is complete
	tracked bool  // it is one of conn.running
	cause   error // why it was cancelled
}

// receive starts a receive. It waits first while the client does not read its answers.
func (c *conn) receive(ctx context.Context, r *receiveRequest) {
	if !c.free(r.correlation) {
		return
	}
	c.ease()
	req := r.ReceiveRequest
	most := c.receiveBytes()
	if req.MaxBytes == 0 || req.MaxBytes > most {
		req.MaxBytes = most
	}
	w := &receiving{conn: c, queue: r.queue, correlation: r.correlation}
	if req.Wait > 0 && c.isDraining() { // it gets what is ready, and waits elsewhere
		req.Wait, w.cause = 0, errElsewhere
	}
	w.req = req
	c.work.Add(1)
	end := r.queue.caller.user.StartReceive(ctx, &c.round, r.queue.name, req, w)
	if end != nil {
		c.trackReceive(w, end)
	}
}

// trackReceive makes a receive that waits one that the client can cancel, unless it is
// complete by now.
func (c *conn) trackReceive(w *receiving, waiting completion.Waiting) {
	cancel := func(cause error) {
		c.mu.Lock()
		w.cause = cause
		c.mu.Unlock()
		waiting.Cancel()
	}
	c.mu.Lock()
	draining := c.draining
	if w.tracked = !w.ended; w.tracked {
		c.running[w.correlation] = &running{conn: c, correlation: w.correlation, cancel: cancel}
	}
	c.mu.Unlock()
	if draining {
		cancel(errElsewhere)
	}
}

// Received implements broker.Receiver.
func (w *receiving) Received(round *completion.Round, got []broker.Delivery, err error) {
	c := w.conn
	c.mu.Lock()
	w.ended = true
	cause := w.cause
	if w.tracked {
		delete(c.running, w.correlation)
	}
	c.mu.Unlock()
	switch {
	case len(got) > 0:
	case cause != nil:
		err = cause
	default:
		err = w.queue.caller.nothing(w.req, err)
	}
	c.received(round, w.queue, w.correlation, w.req.Visibility, got, err)
	c.work.Done()
}

// received answers a request to receive. If the client has gone the messages return to
// their places.
func (c *conn) received(round *completion.Round, q *queue, correlation uint64, visibility time.Duration, got []broker.Delivery, err error) {
	status := oap.StatusOK
	switch {
	case err == nil:
		kept, err := c.deliverable(q, got)
		if len(kept) == 0 && err != nil {
			c.respond(round, &request{correlation: correlation}, err, nil)
			return
		}
		c.held.took(len(kept), visibility)
		delivered := c.deliver(round, q, receiveFrames, correlation, kept)
		c.inFlight.Add(-1)
		if !delivered {
			c.giveBack(q, kept)
		}
		return
	case errors.Is(err, errElsewhere):
		status = oap.StatusElsewhere
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		status = oap.StatusCancelled
	default:
		c.respond(round, &request{correlation: correlation}, err, nil)
		return
	}
	c.out.frame(round, oap.Response, status, correlation, nil)
	c.inFlight.Add(-1)
}

// deliver adds deliveries in as many frames as they need. It reports false if the client has
// gone.
func (c *conn) deliver(round *completion.Round, q *queue, as frameCodes, correlation uint64, got []broker.Delivery) bool {
	limit, known := c.frameLimit(), c.knows.Load()
	o := c.out
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failed != nil {
		return false
	}
	start := o.beginLocked(round, as.flags, as.last, correlation)
	for i := range got {
		end := len(o.pending)
		d := q.caller.delivery(&got[i])
		oap.TellDelivery(&d, known)
		o.pending = oap.AppendDelivery(o.pending, &d)
		if len(o.pending)-start > limit && end > start+oap.HeaderBytes {
			o.pending = o.pending[:end]
			oap.SetLength(o.pending, start)
			setCode(o.pending[start:], as.more)
			start = o.beginLocked(round, as.flags, as.last, correlation)
			o.pending = oap.AppendDelivery(o.pending, &d)
		}
		start = o.divideLocked(start, limit, as.part)
	}
	oap.SetLength(o.pending, start)
	return true
}

// giveBack releases messages that the client was not told about. Nothing is lost if that
// fails: they return when their visibility ends.
func (c *conn) giveBack(q *queue, got []broker.Delivery) {
	ctx := context.Background() // the connection's has ended
	got = slices.Clone(got)     // the caller reuses it
	go func() { _ = q.caller.user.GiveBack(ctx, q.name, got) }()
}
