package remotebox

import (
	"cmp"
	"context"
	"iter"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/oap"
)

// A stream gets the parts of an answer as they come. The daemon does not send
// more than it was given credit for.
type stream struct {
	parts chan []byte // closed after the last
	// begun is what came of a part whose last element goes on in the next. It belongs to
	// the link's reader.
	begun []byte
	// The end, once parts is closed.
	status  uint16
	payload []byte
	lost    error
	// leftBy is set when the caller has stopped: messages that still come go back
	// where they came from. The link guards it.
	leftBy *link
	handle uint32
}

func newStream(credit int) *stream { return &stream{parts: make(chan []byte, credit)} }

// take takes in a part, and reports whether it was the last. It is called by the
// link's reader, and does not block.
func (s *stream) take(code uint16, payload []byte) (last bool) {
	if code == oap.StatusPart || code == oap.EventDeliverPart {
		s.begun = append(s.begun, payload...)
		return false
	}
	copied := s.begun
	if copied == nil {
		copied = make([]byte, 0, len(payload))
	}
	copied = append(copied, payload...)
	s.begun = nil
	if s.leftBy != nil && code == oap.EventDeliver {
		if got, err := oap.ParseDeliveries(copied, nil); err == nil {
			s.leftBy.giveBackLocked(s.handle, got)
		}
		return false
	}
	if code != oap.StatusMore && code != oap.EventDeliver {
		s.status, s.payload = code, copied
		close(s.parts)
		return true
	}
	select {
	case s.parts <- copied:
	default: // the daemon does not keep to its credit
		s.status = oap.StatusInvalid
		close(s.parts)
		return true
	}
	return false
}

// end ends the stream with its link.
func (s *stream) end(reason error) {
	s.lost = reason
	close(s.parts)
}

// A listing is an operation with an answer in pages.
type listing struct {
	name  string
	code  uint16
	queue *queue // nil if it concerns none
	fill  func(dst []byte, target oap.Target) []byte
	// credit is how many parts may come before more are asked for; 0 means
	// oap.StreamCredit.
	credit int
}

// begin asks for a listing. Until the first page has been handed out it can be
// asked for again.
func (w *listing) begin(ctx context.Context, b *Backend, since time.Time, avoid *link) (*call, error) {
	o := operation{name: w.name, queue: w.queue}
	for {
		l, err := b.connected(ctx, nil, avoid, since)
		if err != nil {
			return nil, o.failed(err)
		}
		c := &call{code: w.code, fill: w.fill, done: make(chan struct{}, 1), stream: newStream(cmp.Or(w.credit, oap.StreamCredit))}
		if w.queue != nil {
			handle, again, err := w.queue.handleOn(ctx, l)
			if err != nil {
				return nil, o.failed(err)
			}
			if again {
				if !l.isOver() {
					avoid = l
				}
				continue
			}
			c.handle = handle
		}
		if posted, err := o.post(ctx, l, c); posted || err != nil {
			return c, err
		}
	}
}

// pages yields what a listing brings.
func pages[T any](ctx context.Context, b *Backend, w *listing, parse func([]byte) ([]T, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		o := operation{name: w.name, queue: w.queue}
		if err := b.enter(ctx, &o); err != nil {
			yield(none, err)
			return
		}
		defer b.active.Done()
		began := time.Now()
		var avoid *link
		for {
			c, err := w.begin(ctx, b, began, avoid)
			if err != nil {
				yield(none, err)
				return
			}
			yielded, more, err := yieldPages(ctx, c, parse, yield)
			if !more {
				return
			}
			if err == nil { // otherwise the stream may still be in use
				again := c.stream.lost != nil || c.stream.status == oap.StatusElsewhere
				if again && !yielded && time.Since(began) < b.options.Patience && !b.isClosed() {
					avoid = c.link
					continue
				}
				err = o.outcome(ctx, c)
			}
			if err != nil {
				yield(none, err)
			}
			return
		}
	}
}

// yieldPages yields the elements of a listing until its end. more is false if
// the caller has stopped.
func yieldPages[T any](ctx context.Context, c *call, parse func([]byte) ([]T, error), yield func(T, error) bool) (yielded, more bool, err error) {
	abandon := func() {
		c.link.event(0, oap.EventCancel, c.correlation, nil)
		c.link.forget(c)
	}
	hand := func(page []byte) bool {
		elements, failure := parse(page)
		if err = failure; err != nil {
			return true
		}
		for i := range elements {
			yielded = true
			if !yield(elements[i], nil) {
				return false
			}
		}
		return true
	}
	for {
		select {
		case page, ok := <-c.stream.parts:
			if !ok {
				if c.stream.lost == nil && c.stream.status == oap.StatusOK && !hand(c.stream.payload) {
					return yielded, false, nil
				}
				return yielded, true, err
			}
			if !hand(page) {
				abandon()
				return yielded, false, nil
			}
			if err != nil {
				abandon()
				return yielded, true, err
			}
			c.link.event(0, oap.EventCredit, c.correlation, func(dst []byte) []byte { return oap.AppendCount(dst, 1) })
		case <-ctx.Done():
			abandon()
			return yielded, true, ctx.Err()
		}
	}
}

// outcome is how a stream that has come to its end ended.
func (o *operation) outcome(ctx context.Context, c *call) error {
	s := c.stream
	switch {
	case s.lost != nil && o.queue != nil && o.queue.isClosed():
		return closedError(o.name, o.queue.name)
	case s.lost != nil:
		return &driver.Error{Code: driver.ErrUnavailable, Op: o.name, Queue: o.queueName(), Detail: "the connection was lost", Err: s.lost}
	case s.status == oap.StatusOK:
		return nil
	case s.status == oap.StatusCancelled && ctx.Err() != nil:
		return ctx.Err()
	}
	e, err := oap.ParseError(s.payload)
	if err != nil {
		return o.unknown(err.Error())
	}
	return e
}
