package oapapi

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/oap"
)

// running is a request that takes its time. The client can cancel it, or give it
// credit, by its correlation id.
type running struct {
	conn        *conn
	correlation uint64
	cancel      context.CancelCauseFunc
	credit      chan int // for streams
}

// maxStreams bounds the streams of a connection: each keeps a part of what it has
// to say until the client has read the last one.
const maxStreams = 32

// track makes a request one that is running until done is called. If there is
// one with the same correlation id it is refused, and if the server drains it is
// sent elsewhere; it is nil then.
func (c *conn) track(ctx context.Context, correlation uint64, stream bool) (context.Context, *running) {
	ctx, cancel := context.WithCancelCause(ctx)
	r := &running{conn: c, correlation: correlation, cancel: cancel}
	if stream {
		r.credit = make(chan int, 1)
	}
	if !c.admitRunning(r) {
		cancel(nil)
		return ctx, nil
	}
	return ctx, r
}

// admitRunning makes a request one that is running, or answers it and reports
// false.
func (c *conn) admitRunning(r *running) bool {
	stream := r.credit != nil
	c.mu.Lock()
	draining := c.draining
	_, taken := c.running[r.correlation]
	full := stream && c.streams >= maxStreams
	if !taken && !draining && !full {
		c.running[r.correlation] = r
		if stream {
			c.streams++
		}
	}
	c.mu.Unlock()
	switch {
	case draining:
		c.answer(r.correlation, oap.StatusElsewhere, nil)
	case taken:
		c.fail(r.correlation, &driver.Error{Code: driver.ErrInvalid, Detail: "this correlation id is in use"})
	case full:
		c.fail(r.correlation, &driver.Error{
			Code: driver.ErrFull, RetryAfter: 100 * time.Millisecond,
			Detail: fmt.Sprintf("this connection has %d streams and subscriptions, the most that are allowed", maxStreams),
		})
	default:
		return true
	}
	return false
}

// done ends that a request is running. It is called before the answer is given,
// after which the client may use the correlation id again.
func (r *running) done() {
	r.conn.forget(r)
	r.cancel(nil)
}

// forget ends that a request can be cancelled or given credit.
func (c *conn) forget(r *running) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.running, r.correlation)
	if r.credit != nil {
		c.streams--
	}
}

// find returns a request that is running, or nil.
func (c *conn) find(correlation uint64) *running {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.running[correlation]
}

// maxCredit bounds what a client can ask for in advance.
const maxCredit = 1 << 20

// addCredit lets a stream send more. It is called by the reader only.
func (r *running) addCredit(n int) {
	n = min(n, maxCredit)
	select {
	case had := <-r.credit:
		n = min(n+had, maxCredit)
	default:
	}
	r.credit <- n
}

// stream sends the elements of a sequence in chunks, not more of them than the
// client has given credit for.
func stream[T any](ctx context.Context, c *conn, correlation uint64,
	elements func(context.Context) iter.Seq2[T, error], write func([]byte, *T) []byte,
) {
	ctx, r := c.track(ctx, correlation, true)
	if r == nil {
		return
	}
	c.work.Go(func() {
		credit := oap.StreamCredit
		chunk := make([]byte, 0, 4<<10)
		var failure error
		for element, err := range elements(ctx) {
			if failure = err; err != nil {
				break
			}
			end := len(chunk)
			chunk = write(chunk, &element)
			if len(chunk) < oap.ChunkBytes {
				continue
			}
			if len(chunk) > oap.MaxPayloadBytes && end > 0 { // the last one has to wait
				if failure = c.sendChunk(ctx, r, &credit, correlation, chunk[:end]); failure != nil {
					break
				}
				chunk = append(chunk[:0], chunk[end:]...)
			}
			if failure = c.sendChunk(ctx, r, &credit, correlation, chunk); failure != nil {
				break
			}
			chunk = chunk[:0]
		}
		if ctx.Err() != nil {
			failure = context.Cause(ctx)
		}
		if failure == nil {
			c.out.room(keptBuffer)
		}
		r.done()
		if failure != nil {
			c.received(ctx, &request{correlation: correlation}, nil, failure)
		} else {
			c.answer(correlation, oap.StatusOK, func(dst []byte) []byte { return append(dst, chunk...) })
		}
		c.out.flush()
	})
}

// sendChunk sends a part of a stream when there is credit for it.
func (c *conn) sendChunk(ctx context.Context, r *running, credit *int, correlation uint64, chunk []byte) error {
	for *credit == 0 {
		select {
		case more := <-r.credit:
			*credit += more
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	*credit--
	c.out.room(keptBuffer) // credit is a promise to read, and may be broken
	c.out.copyFrame(oap.Response, oap.StatusMore, correlation, chunk)
	c.out.flush()
	return nil
}

// subscribe sends messages as they come, not more than there is credit for.
func (c *conn) subscribe(ctx context.Context, correlation uint64, q *queue, s oap.SubscribeRequest) {
	ctx, r := c.track(ctx, correlation, true)
	if r == nil {
		return
	}
	c.work.Go(func() {
		err := c.push(ctx, r, correlation, q, s)
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		r.done()
		c.received(ctx, &request{correlation: correlation, queue: q}, nil, err)
		c.out.flush()
	})
}

// push sends messages until ctx ends or the broker fails.
func (c *conn) push(ctx context.Context, r *running, correlation uint64, q *queue, s oap.SubscribeRequest) error {
	credit := min(s.Credit, maxCredit)
	for {
		for credit == 0 {
			select {
			case more := <-r.credit:
				credit += more
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		select {
		case more := <-r.credit:
			credit = min(credit+more, maxCredit)
		default:
		}
		c.out.room(keptBuffer)
		got, err := q.caller.Receive(ctx, q.topic, driver.ReceiveRequest{
			Max: min(credit, q.maxBatch), MaxBytes: c.receiveBytes(), Visibility: s.Visibility, Wait: q.longWait,
		})
		if err != nil {
			return err
		}
		if len(got) == 0 {
			continue
		}
		credit -= len(got)
		c.holding.took(len(got), s.Visibility)
		if !c.deliver(oap.Event, oap.EventDeliver, oap.EventDeliver, correlation, got) {
			c.giveBack(ctx, q, got)
			return context.Canceled
		}
		c.out.flush()
	}
}
