package reply

import (
	"context"
	"iter"
	"maps"
	"slices"
	"strconv"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/replyslot"
)

// A Stream answers one message in numbered parts and an end. Make one with NewStream,
// or let HandleStream make it. The reply address of the message must be a mailbox:
// with a reply slot, sending is ErrUnsupported. A Stream does not settle the message.
// Since parts have an order, it is for one goroutine at a time.
type Stream[R any] struct {
	open  func(context.Context) (*mailbox.Mailbox[[]byte], error)
	codec mailbox.Codec[R]
	to    *mailbox.Mailbox[[]byte] // nil until the first part is sent
	next  int
	ended bool
}

// NewStream returns the stream of replies to message, encoded with codec; nil
// means JSON. It does no I/O.
func NewStream[R, T any](message *mailbox.Message[T], codec mailbox.Codec[R]) *Stream[R] {
	if codec == nil {
		codec = mailbox.JSON[R]()
	}
	return &Stream[R]{codec: codec, open: func(ctx context.Context) (*mailbox.Mailbox[[]byte], error) {
		if _, isSlot := driver.SlotID(message.ReplyTo); isSlot {
			return nil, &mailbox.Error{
				Code: mailbox.ErrUnsupported, Op: "reply", MessageID: message.ID,
				Detail: "a reply slot takes one answer, not a stream",
			}
		}
		return mailbox.ReplyMailbox(ctx, message, &mailbox.Options[[]byte]{Codec: mailbox.Bytes()})
	}}
}

// Send sends the next part. It blocks as a send does. It may be repeated after an
// error: the part then has the same number and is read once. Codes: those of
// mailbox.ReplyMailbox and Mailbox.Send, and ErrReplyAlreadySent after the end.
func (s *Stream[R]) Send(ctx context.Context, value R) error {
	body, err := s.codec.Encode(value)
	if err != nil {
		return &mailbox.Error{Code: mailbox.ErrEncoding, Op: "reply", Detail: s.codec.ContentType(), Err: err}
	}
	return s.send(ctx, body, false, nil)
}

// End ends the stream. Codes: as Send.
func (s *Stream[R]) End(ctx context.Context) error {
	return s.send(ctx, nil, true, map[string]string{replyslot.AttributeEnd: "true"})
}

// Fail ends the stream with an error, which must not be nil. Codes: as Send.
func (s *Stream[R]) Fail(ctx context.Context, cause error) error {
	if cause == nil {
		return &mailbox.Error{Code: mailbox.ErrInvalid, Op: "reply", Field: "cause", Detail: "is nil"}
	}
	failure := mailbox.NewFailure(cause)
	return s.send(ctx, nil, true, map[string]string{
		replyslot.AttributeError: failure.Text, replyslot.AttributeKind: string(failure.Kind),
	})
}

func (s *Stream[R]) send(ctx context.Context, body []byte, last bool, marks map[string]string) error {
	if s.ended {
		return &mailbox.Error{Code: mailbox.ErrReplyAlreadySent, Op: "reply", Detail: "the stream has ended"}
	}
	if s.to == nil {
		to, err := s.open(ctx)
		if err != nil {
			return err
		}
		s.to = to
	}
	number := mailbox.WithAttribute(replyslot.AttributeIndex, strconv.Itoa(s.next))
	if _, err := s.to.Send(ctx, body, number, mailbox.WithAttributes(marks)); err != nil {
		return err
	}
	s.next++
	s.ended = last
	return nil
}

// partsAhead is how far ahead of the next part a part is kept until its turn. Parts
// further ahead go back to the queue.
const partsAhead = 256

// Parts yields the parts of the reply to the request with this id, which is its
// correlation id or its message id: in order, each once, and acked when the loop
// continues. It ends at the end of the stream, and with a last error if the request
// has failed (a *mailbox.Failure), ctx has ended, or receiving fails. Replies to
// other requests are put back, as Await does.
//
// from is the first part to yield: 0, or where an earlier reader stopped, which is
// Result.Index+1 of its last part. Replies without a number, which no Stream sent,
// are yielded as they arrive. The sequence may be ranged over once.
func Parts[R any](ctx context.Context, replies *mailbox.Mailbox[Result[R]], requestID string, from int) iter.Seq2[Result[R], error] {
	return func(yield func(Result[R], error) bool) {
		p := &parts[R]{next: from, ahead: make(map[int]*mailbox.Message[Result[R]]), yield: yield}
		err := browse(ctx, replies, requestID, func(message *mailbox.Message[Result[R]]) (verdict, error) {
			return p.take(ctx, message)
		})
		// Parts ahead of their turn are for the next reader.
		putBack(ctx, nil, slices.Collect(maps.Values(p.ahead)))
		if err != nil && !p.stopped {
			yield(Result[R]{RequestID: requestID, Index: -1}, err)
		}
	}
}

// parts puts the parts of a stream in order.
type parts[R any] struct {
	next    int
	ahead   map[int]*mailbox.Message[Result[R]]
	yield   func(Result[R], error) bool
	stopped bool // the loop ended
}

func (p *parts[R]) take(ctx context.Context, message *mailbox.Message[Result[R]]) (verdict, error) {
	switch index := message.Body.Index; {
	case index < 0:
		return p.show(ctx, message)
	case index < p.next: // seen, and sent twice
		return taken, settle(ctx, message)
	case index >= p.next+partsAhead:
		return unripe, nil
	case index > p.next:
		p.ahead[index] = message // replaces an earlier delivery of the same part
		return taken, nil
	}
	for message != nil {
		delete(p.ahead, p.next)
		p.next++
		if judged, err := p.show(ctx, message); judged == sated || err != nil {
			return judged, err
		}
		message = p.ahead[p.next]
	}
	return taken, nil
}

// show yields a part and acks it.
func (p *parts[R]) show(ctx context.Context, message *mailbox.Message[Result[R]]) (verdict, error) {
	result := message.Body
	switch {
	case result.End:
		return sated, settle(ctx, message)
	case result.Err != nil:
		if err := settle(ctx, message); err != nil {
			return taken, err
		}
		return sated, result.Err
	}
	p.stopped = !p.yield(result, nil)
	if p.stopped {
		return sated, settle(ctx, message)
	}
	return taken, settle(ctx, message)
}

// settle acks a message. One whose lease was lost comes back and is recognised.
func settle[R any](ctx context.Context, message *mailbox.Message[Result[R]]) error {
	if err := message.Ack(ctx); err != nil && !lost(err) {
		return err
	}
	return nil
}
