package remotebox

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/oap"
)

// frameOverhead is what a request with a batch has beside its elements: the header,
// the target and the count.
const frameOverhead = oap.HeaderBytes + oap.MaxTargetBytes + binary.MaxVarintLen64

// maxElement is how many bytes a single element of a batch may have, so that its
// request is not longer than the daemon has announced to accept.
func (b *Backend) maxElement() int {
	return min(int(b.maxFrame.Load())-frameOverhead, oap.EarlierPayloadBytes)
}

// maxBody is the largest body that a single element can have.
func (b *Backend) maxBody() int { return b.maxElement() - oap.OutgoingBytes(&driver.Outgoing{}) }

// fitting is how many elements from the first on go into one request, at least
// one.
func (b *Backend) fitting(from, n int, size func(i int) int) (to int) {
	limit := min(b.maxElement(), oap.MaxFrameBytes-frameOverhead)
	total := 0
	for to = from; to < n; to++ {
		if total += size(to); total > limit && to > from {
			return to
		}
	}
	return to
}

// Send enqueues messages. It blocks until the daemon has answered for all of
// them; a batch that is too long for one frame is sent in parts, in order. If it
// fails because the outcome is unknown, it is not repeated. Cancelling ctx
// returns at once and may leave the messages sent.
func (q *queue) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	if len(msgs) == 0 {
		return nil, q.ready(ctx, "send")
	}
	for i := range msgs {
		if len(msgs[i].Seal) > 0 {
			return nil, &driver.Error{Code: driver.ErrUnsupported, Op: "send", Queue: q.name, Field: "Seal", Detail: "a daemon seals messages itself"}
		}
	}
	sent := make([]driver.Sent, len(msgs))
	if slot, ok := ctx.Value(linkedSlotKey{}).(*linkedSlot); ok && slot.namedBy(msgs) {
		return q.sendAsking(ctx, slot, msgs, sent)
	}
	size := func(i int) int { return oap.OutgoingBytes(&msgs[i]) }
	to := q.backend.fitting(0, len(msgs), size)
	if to == len(msgs) && (to > 1 || size(0) <= q.backend.maxElement()) { // as nearly always
		errs, err := q.sendPart(ctx, msgs, sent)
		if err != nil {
			return nil, err
		}
		if errs != nil {
			return sent, &driver.BatchError{Errs: errs}
		}
		return sent, nil
	}
	err := q.backend.inParts(len(msgs), size, func(from, to int) ([]error, error) {
		if to == from+1 && size(from) > q.backend.maxElement() {
			return []error{q.tooLarge(&msgs[from])}, nil
		}
		return q.sendPart(ctx, msgs[from:to], sent[from:to])
	})
	if err != nil && !isBatch(err) {
		return nil, err
	}
	return sent, err
}

// inParts does a long batch in parts. A failure of a whole part after the first
// concerns its elements and those that were not tried.
func (b *Backend) inParts(n int, size func(i int) int, do func(from, to int) ([]error, error)) error {
	var errs []error
	for from := 0; from < n; {
		to := b.fitting(from, n, size)
		failed, err := do(from, to)
		switch {
		case err != nil && from == 0:
			return err
		case err != nil:
			failed, to = repeatedly(err, n-from), n
		}
		if failed != nil {
			if errs == nil {
				errs = make([]error, n)
			}
			copy(errs[from:to], failed)
		}
		from = to
	}
	return driver.NewBatchError(errs)
}

func repeatedly(err error, n int) []error {
	errs := make([]error, n)
	for i := range errs {
		errs[i] = err
	}
	return errs
}

func isBatch(err error) bool {
	_, ok := errors.AsType[*driver.BatchError](err)
	return ok
}

// tooLarge says what is wrong with a message that fits in no frame.
func (q *queue) tooLarge(msg *driver.Outgoing) error {
	traits := q.Traits()
	if err := msg.Check(&traits); err != nil {
		return (&operation{name: "send", queue: q}).located(err)
	}
	return &driver.Error{
		Code: driver.ErrTooLarge, Op: "send", Queue: q.name,
		Detail: fmt.Sprintf("the message, with its attributes, is longer than the %d bytes that the daemon accepts in a frame", q.backend.maxFrame.Load()),
	}
}

// sendPart sends what fits in one request.
func (q *queue) sendPart(ctx context.Context, msgs []driver.Outgoing, sent []driver.Sent) ([]error, error) {
	keyed := true
	for i := range msgs {
		keyed = keyed && msgs[i].DedupKey != ""
	}
	c := q.backend.newCall(oap.OpSend, nil)
	c.msgs, c.kept = msgs, true
	o := operation{name: "send", queue: q, call: c, numbered: true, repeatable: keyed}
	if err := q.backend.roundTrip(ctx, &o); err != nil {
		return nil, err
	}
	defer q.backend.free(c)
	errs, err := oap.ParseSent(c.payload, sent)
	if err != nil {
		return nil, o.unknown(err.Error())
	}
	return errs, nil
}

// ready returns why an operation could not be done now, without doing any.
func (q *queue) ready(ctx context.Context, op string) error {
	if q.isClosed() {
		return closedError(op, q.name)
	}
	return ctx.Err()
}

// located adds the operation and the queue to an error.
func (o *operation) located(err error) error {
	return driver.Annotate(err, o.queueName(), o.name)
}
