package remotebox

import (
	"context"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/oap"
)

// An operation is a call that is repeated on other connections where it has to
// be, and can be.
type operation struct {
	name  string // of the method, for errors
	queue *queue // nil if it concerns none
	// subject is what it concerns instead, for errors, and closing ends it if it waits.
	subject string
	closing <-chan struct{}
	call    *call
	// numbered: the daemon recognises it when it is repeated.
	numbered bool
	// repeatable: doing it twice does no harm.
	repeatable bool
	// waits: it may take long by nature, and ends early when asked to.
	waits bool

	reached  bool     // it may have reached a daemon,
	instance [16]byte // namely this one
	// repeated: it may have reached another daemon before, and the one that answers does not know
	// whether that one has done it.
	repeated bool
}

// roundTrip does an operation. It returns nil if the daemon has done it; the
// call has the answer then. Any error is that of the whole operation.
func (b *Backend) roundTrip(ctx context.Context, o *operation) error {
	if err := b.enter(ctx, o); err != nil {
		return err
	}
	defer b.active.Done()
	if o.numbered {
		ticket, err := b.sequence.take(ctx)
		if err != nil {
			return err
		}
		o.call.ticket = ticket
		defer b.sequence.end(ticket.Sequence)
	}
	var since time.Time // when the trouble began
	var avoid *link
	for {
		l, err := b.connected(ctx, o.closed(), avoid, since)
		if err != nil {
			return o.failed(err)
		}
		o.repeated = o.repeated || o.reached && !(o.numbered && l.resumed && l.instance == o.instance)
		if o.repeated && !o.repeatable {
			return o.unknown("the daemon that was asked is gone, so it is unknown whether it was done")
		}
		again, err := b.attemptOn(ctx, l, o)
		if !again {
			return err
		}
		if b.isClosed() {
			if o.reached {
				return o.unknown("the backend was closed before the daemon answered, so it is unknown whether it was done")
			}
			return closedError(o.name, o.queueName())
		}
		if since = orNow(since); b.options.Patience < time.Since(since) {
			return o.unknown("the connection is lost again and again")
		}
		if !l.isOver() { // its daemon does not want the operation
			avoid = l
		}
	}
}

func orNow(t time.Time) time.Time {
	if t.IsZero() {
		return time.Now()
	}
	return t
}

// enter begins an operation unless everything is over.
func (b *Backend) enter(ctx context.Context, o *operation) error {
	if o.queue != nil && o.queue.isClosed() {
		return closedError(o.name, o.queue.name)
	}
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return closedError(o.name, o.queueName())
	}
	b.active.Add(1)
	b.mu.Unlock()
	if err := ctx.Err(); err != nil {
		b.active.Done()
		return err
	}
	return nil
}

func (b *Backend) isClosed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closed
}

// attemptOn tries an operation on a link, and reports whether it is worth trying
// again on another.
func (b *Backend) attemptOn(ctx context.Context, l *link, o *operation) (again bool, err error) {
	c := o.call
	c.status, c.lost, c.parts = 0, nil, nil
	if o.queue != nil {
		handle, again, err := o.queue.handleOn(ctx, l)
		if err != nil || again {
			return again, o.failed(err)
		}
		c.handle = handle
	}
	if posted, err := o.post(ctx, l, c); !posted {
		return err == nil, err
	}
	if err := o.await(ctx, l); err != nil {
		return false, err
	}
	switch {
	case c.lost != nil:
		if l.reached(c) {
			o.reached, o.instance = true, l.instance
		}
		return true, nil
	case c.status == oap.StatusOK:
		return false, nil
	case c.status == oap.StatusElsewhere:
		return true, nil
	case c.status == oap.StatusCancelled && o.isClosed():
		return false, closedError(o.name, o.queueName())
	case c.status == oap.StatusCancelled && ctx.Err() != nil:
		return false, ctx.Err()
	}
	e, err := oap.ParseError(c.payload)
	if err != nil {
		return false, o.unknown(err.Error())
	}
	return false, e
}

// post puts a call on its way. It blocks only while too much waits to be written. It
// returns false without an error if the link is over, or about to be.
func (o *operation) post(ctx context.Context, l *link, c *call) (posted bool, err error) {
	for {
		posted, room := l.post(c)
		if room == nil {
			return posted, nil
		}
		select {
		case <-room:
		case <-ctx.Done():
			return false, ctx.Err()
		case <-o.closed():
			return false, closedError(o.name, o.queueName())
		}
	}
}

// await waits for the answer to a call. The call is done if it returns nil, even
// if it failed, and forgotten otherwise.
func (o *operation) await(ctx context.Context, l *link) error {
	c := o.call
	cancelled, closed := ctx.Done(), o.closed()
	if cancelled == nil && closed == nil { // cheaper than a select
		<-c.done
		return nil
	}
	var err error
	select {
	case <-c.done:
		return nil
	case <-cancelled:
		err = ctx.Err()
	case <-closed:
		err = closedError(o.name, o.queueName())
	}
	if o.waits {
		// What it has by now must not be lost: ask for it.
		l.event(0, oap.EventCancel, c.correlation, nil)
		timer := time.NewTimer(graceTime)
		defer timer.Stop()
		select {
		case <-c.done:
			return nil
		case <-timer.C:
		}
	}
	if !l.forget(c) {
		<-c.done // it is there, or about to be
		return nil
	}
	return err
}

// closed ends operations that wait; nil never does.
func (o *operation) closed() <-chan struct{} {
	if o.queue == nil || !o.waits {
		return o.closing
	}
	return o.queue.closed
}

// isClosed reports whether closed has ended the operation.
func (o *operation) isClosed() bool {
	select {
	case <-o.closed():
		return true
	default:
		return false
	}
}

func (o *operation) queueName() string {
	if o.queue == nil {
		return o.subject
	}
	return o.queue.name
}

// unknown is the error of an operation that may have been done.
func (o *operation) unknown(detail string) error {
	return &driver.Error{Code: driver.ErrUnavailable, Op: o.name, Queue: o.queueName(), Detail: detail}
}

// failed says which operation could not be done because there is no connection, or no
// such queue.
func (o *operation) failed(err error) error {
	e, ok := err.(*driver.Error) //nolint:errorlint // only our own are renamed
	if !ok || e.Op != "connect" && e.Op != "open" {
		return err
	}
	named := *e
	named.Op, named.Queue = o.name, o.queueName()
	return &named
}
