package remotebox

import (
	"context"
	"iter"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/oap"
)

// A Subscriber can have messages sent to it as they come, without asking for
// each. The queues that a Backend opens are Subscribers.
type Subscriber interface {
	// Subscribe yields messages, leased for visibility from the moment the
	// daemon sends them. At most ahead of them, from 1 to 1,024, are on their
	// way or wait here to be looked at, so visibility has to last for as many.
	//
	// It blocks while there is none. An error ends the sequence: ErrClosed when
	// the handle is closed, the context's own when ctx ends, ErrUnavailable when
	// the connection is lost; subscribing again is safe. When the sequence ends,
	// what was not looked at goes back to its place in the queue.
	Subscribe(ctx context.Context, visibility time.Duration, ahead int) iter.Seq2[driver.Delivery, error]
}

// maxAhead is how many messages of a subscription can be on their way.
const maxAhead = 1024

var _ Subscriber = (*queue)(nil)

// Subscribe is described at Subscriber.
func (q *queue) Subscribe(ctx context.Context, visibility time.Duration, ahead int) iter.Seq2[driver.Delivery, error] {
	return func(yield func(driver.Delivery, error) bool) {
		o := operation{name: "receive", queue: q, waits: true}
		if ahead < 1 || ahead > maxAhead {
			yield(driver.Delivery{}, &driver.Error{
				Code: driver.ErrInvalid, Op: o.name, Queue: q.name, Field: "ahead", Detail: "is not between 1 and 1024",
			})
			return
		}
		if err := q.backend.enter(ctx, &o); err != nil {
			yield(driver.Delivery{}, err)
			return
		}
		defer q.backend.active.Done()
		w := listing{name: o.name, code: oap.OpSubscribe, queue: q, credit: ahead, fill: func(dst []byte, t oap.Target) []byte {
			return oap.AppendSubscribe(dst, &oap.SubscribeRequest{Target: t, Visibility: visibility, Credit: ahead})
		}}
		c, err := w.begin(ctx, q.backend, time.Now(), nil)
		if err != nil {
			yield(driver.Delivery{}, err)
			return
		}
		if err := q.follow(ctx, &o, c, ahead, yield); err != nil {
			yield(driver.Delivery{}, err)
		}
	}
}

// follow yields messages until the subscription ends, for a reason that it
// returns, or the caller stops. It gives the daemon credit for more when half of what may
// be on its way has been yielded, so that not every message costs an event.
func (q *queue) follow(ctx context.Context, o *operation, c *call, ahead int, yield func(driver.Delivery, error) bool) error {
	owed := 0
	for {
		select {
		case page, ok := <-c.stream.parts:
			if !ok {
				return o.outcome(ctx, c)
			}
			got, err := oap.ParseDeliveries(page, nil)
			if err != nil {
				c.link.leaveStream(c, nil)
				return o.unknown(err.Error())
			}
			owed += len(got)
			got, _ = q.verified(ctx, got) // what is not what was sent is in the dead letters
			for i := range got {
				if !yield(got[i], nil) {
					c.link.leaveStream(c, got[i+1:])
					return nil
				}
			}
			if 2*owed >= ahead {
				c.link.event(0, oap.EventCredit, c.correlation, func(dst []byte) []byte { return oap.AppendCount(dst, owed) })
				owed = 0
			}
		case <-ctx.Done():
			c.link.leaveStream(c, nil)
			return ctx.Err()
		case <-q.closed:
			c.link.leaveStream(c, nil)
			return closedError(o.name, q.name)
		}
	}
}

// leaveStream ends a subscription, and gives back the messages that the
// caller does not get: the rest of a page, those that have come, and, because the call
// now stands for a receive without a caller, those that come later.
func (l *link) leaveStream(c *call, rest []driver.Delivery) {
	l.event(0, oap.EventCancel, c.correlation, nil)
	l.mu.Lock()
	open := l.calls[c.correlation] == c
	if open {
		c.stream.leftBy = l
		c.stream.handle = c.handle
	}
	l.mu.Unlock()
	for {
		select {
		case page, ok := <-c.stream.parts:
			if !ok {
				l.giveBackAll(c.handle, rest)
				return
			}
			if got, err := oap.ParseDeliveries(page, nil); err == nil {
				rest = append(rest, got...)
			}
			continue
		default:
		}
		l.giveBackAll(c.handle, rest)
		return
	}
}
