package oapapi

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/completion"
	"github.com/mailboxmq/mailbox/internal/oap"
)

// running is a request that takes its time. The client can cancel it, or give it
// credit, by its correlation id.
type running struct {
	conn        *conn
	correlation uint64
	cancel      func(cause error)
	credit      chan int // for streams
}

// maxStreams bounds the streams of a connection: each keeps a part of what it has
// to say until the client has read the last one.
const maxStreams = 32

// track makes a stream one that is running until done is called. If it must not run it is
// answered, and the result is nil. The reader calls it.
func (c *conn) track(ctx context.Context, correlation uint64) (context.Context, *running) {
	if !c.free(correlation) {
		return ctx, nil
	}
	c.mu.Lock()
	draining, full := c.draining, c.streams >= maxStreams
	ctx, cancel := context.WithCancelCause(ctx)
	r := &running{conn: c, correlation: correlation, cancel: cancel, credit: make(chan int, 1)}
	if !draining && !full {
		c.running[correlation] = r
		c.streams++
	}
	c.mu.Unlock()
	switch {
	case draining:
		c.answer(correlation, oap.StatusElsewhere, nil)
	case full:
		c.fail(correlation, &driver.Error{
			Code: driver.ErrFull, RetryAfter: 100 * time.Millisecond,
			Detail: fmt.Sprintf("this connection has %d streams and subscriptions, the most that are allowed", maxStreams),
		})
	default:
		return ctx, r
	}
	cancel(nil)
	return ctx, nil
}

// free reports whether no running request has a correlation id. Otherwise it refuses the
// request that has it. The reader calls it.
func (c *conn) free(correlation uint64) bool {
	c.mu.Lock()
	_, taken := c.running[correlation]
	c.mu.Unlock()
	if taken {
		c.fail(correlation, &driver.Error{Code: driver.ErrInvalid, Detail: "this correlation id is in use"})
	}
	return !taken
}

// done unregisters a request. It is called before the answer is given, after which the
// client may use the correlation id again.
func (r *running) done() {
	r.conn.forget(r)
	r.cancel(nil)
}

// forget makes a request one that cannot be cancelled or given credit.
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
	ctx, r := c.track(ctx, correlation)
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
			if limit := c.frameLimit() - oap.HeaderBytes; len(chunk) > limit {
				if end > 0 { // the last one has to wait
					if failure = c.sendChunk(ctx, r, &credit, correlation, chunk[:end]); failure != nil {
						break
					}
					chunk = append(chunk[:0], chunk[end:]...)
				}
				if len(chunk) > limit && !c.joins.Load() {
					failure = tooLong(len(chunk))
					break
				}
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
		var round completion.Round
		if failure != nil {
			c.received(&round, nil, correlation, 0, nil, failure)
		} else {
			c.out.copyFrame(&round, oap.Response, oap.StatusOK, correlation, chunk)
			c.inFlight.Add(-1)
		}
		round.End()
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
	c.out.parts(listFrames, correlation, c.frameLimit(), chunk)
	c.out.flushHere()
	return nil
}

// subscribe sends messages as they come, not more than there is credit for.
func (c *conn) subscribe(ctx context.Context, correlation uint64, q *queue, s oap.SubscribeRequest) {
	ctx, r := c.track(ctx, correlation)
	if r == nil {
		return
	}
	c.work.Go(func() {
		err := c.push(ctx, r, correlation, q, s)
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		r.done()
		var round completion.Round
		c.received(&round, q, correlation, 0, nil, err)
		round.End()
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
		req := driver.ReceiveRequest{
			Max: min(credit, q.maxBatch), MaxBytes: c.receiveBytes(), Visibility: s.Visibility, Wait: q.longWait,
		}
		got, err := q.caller.user.Receive(ctx, q.name, req)
		if len(got) == 0 {
			if err := q.caller.nothing(req, err); err != nil {
				return err
			}
			continue
		}
		kept, err := c.deliverable(q, got)
		credit -= len(kept)
		c.held.took(len(kept), s.Visibility)
		if len(kept) > 0 && !c.deliver(nil, q, pushFrames, correlation, kept) {
			c.giveBack(q, kept)
			return context.Canceled
		}
		c.out.Flush()
		if err != nil {
			return err
		}
	}
}
