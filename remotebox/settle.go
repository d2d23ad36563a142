package remotebox

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/oap"
)

// textOverhead is what a receipt and some numbers take at most, beside the
// receipt's own text.
const textOverhead = 64

// Ack removes messages permanently. It blocks until the daemon has answered.
func (q *queue) Ack(ctx context.Context, receipts []driver.Receipt) error {
	if answer, ok := ctx.Value(linkedAnswerKey{}).(*linkedAnswer); ok && !answer.tried && len(receipts) == 1 {
		return q.ackAnswering(ctx, answer, receipts)
	}
	return settle(ctx, q, "ack", oap.OpAck, receipts, func(c *call, part []driver.Receipt) { c.receipts = part }, oap.ParseFailures,
		func(r *driver.Receipt) int { return textOverhead + len(r.Handle) })
}

// Nack gives messages back. It blocks until the daemon has answered.
func (q *queue) Nack(ctx context.Context, nacks []driver.Nack) error {
	size := func(n *driver.Nack) int {
		return textOverhead + len(n.Receipt.Handle) + min(len(n.Cause), driver.MaxCauseBytes)
	}
	if !slices.ContainsFunc(nacks, func(n driver.Nack) bool { return n.Mode != driver.NackFailed }) {
		return settle(ctx, q, "nack", oap.OpNack, nacks, filledBy(oap.AppendNack), oap.ParseFailures, size)
	}
	if traits := q.Traits(); !traits.Release { // a daemon of an earlier version has no such request
		return q.nackWithoutRelease(ctx, nacks, &traits)
	}
	return settle(ctx, q, "nack", oap.OpRelease, nacks, filledBy(oap.AppendRelease), oap.ParseFailures, size)
}

// nackWithoutRelease nacks those messages of a batch that are not released, and refuses the
// others.
func (q *queue) nackWithoutRelease(ctx context.Context, nacks []driver.Nack, traits *driver.Traits) error {
	errs := make([]error, len(nacks))
	var failed []driver.Nack
	var positions []int
	for i := range nacks {
		if nacks[i].Mode != driver.NackFailed {
			errs[i] = nacks[i].Check(traits)
			if e, ok := errors.AsType[*driver.Error](errs[i]); ok {
				e.Queue, e.MessageID = q.name, nacks[i].Receipt.Handle
			}
			continue
		}
		failed, positions = append(failed, nacks[i]), append(positions, i)
	}
	if len(failed) > 0 {
		err := q.Nack(ctx, failed)
		if err != nil && !isBatch(err) {
			return err
		}
		for k, i := range positions {
			errs[i] = driver.At(err, k)
		}
	}
	return driver.NewBatchError(errs)
}

// Extend moves deadlines. It blocks until the daemon has answered. A daemon of an
// earlier version does not say what it granted, and is taken to have granted what
// was asked for, and one without progress does not get the reports.
func (q *queue) Extend(ctx context.Context, extensions []driver.Extension) ([]time.Duration, error) {
	if !q.backend.unreported.Load() && slices.ContainsFunc(extensions, func(e driver.Extension) bool { return e.Progress != nil }) {
		granted, err := q.extendGranted(ctx, extensions, oap.OpExtendProgress, oap.AppendExtendProgress)
		if !errors.Is(err, driver.ErrUnsupported) {
			return granted, err
		}
		q.backend.unreported.Store(true)
	}
	if !q.backend.ungranted.Load() {
		granted, err := q.extendGranted(ctx, extensions, oap.OpExtendGranted, oap.AppendExtend)
		if !errors.Is(err, driver.ErrUnsupported) {
			return granted, err
		}
		q.backend.ungranted.Store(true)
	}
	err := settle(ctx, q, "extend", oap.OpExtend, extensions, filledBy(oap.AppendExtend), oap.ParseFailures, extensionBytes)
	return driver.GrantedAsAsked(extensions, err), err
}

// extensionBytes returns what an extension takes in a request at most.
func extensionBytes(e *driver.Extension) int {
	n := textOverhead + len(e.Receipt.Handle)
	if e.Progress != nil {
		n += len(e.Progress.Text)
	}
	return n
}

// extendGranted extends with a request whose answer says what was granted.
func (q *queue) extendGranted(ctx context.Context, extensions []driver.Extension, code uint16, write func([]byte, oap.Target, []driver.Extension) []byte) ([]time.Duration, error) {
	var granted []time.Duration
	err := settle(ctx, q, "extend", code, extensions, filledBy(write), func(payload []byte, n int) (*driver.BatchError, error) {
		part, batch, err := oap.ParseGranted(payload, n)
		granted = append(granted, part...)
		return batch, err
	}, extensionBytes)
	if err != nil && !isBatch(err) {
		return nil, err
	}
	return append(granted, make([]time.Duration, len(extensions)-len(granted))...), err
}

// filledBy returns the function that gives a call its elements for the given encoder.
func filledBy[T any](write func([]byte, oap.Target, []T) []byte) func(*call, []T) {
	return func(c *call, part []T) {
		c.fill = func(dst []byte, t oap.Target) []byte { return write(dst, t, part) }
	}
}

// settle settles a batch, in as many requests as it needs. give gives a call its
// elements.
func settle[T any](ctx context.Context, q *queue, name string, code uint16, elements []T,
	give func(*call, []T), read func([]byte, int) (*driver.BatchError, error), size func(*T) int,
) error {
	if len(elements) == 0 {
		return q.ready(ctx, name)
	}
	return q.backend.inParts(len(elements), func(i int) int { return size(&elements[i]) }, func(from, to int) ([]error, error) {
		part := elements[from:to]
		c := q.backend.newCall(code, nil)
		give(c, part)
		o := operation{name: name, queue: q, call: c, numbered: true, repeatable: true}
		if err := q.backend.roundTrip(ctx, &o); err != nil {
			return nil, err
		}
		defer q.backend.free(c)
		batch, err := read(c.payload, len(part))
		if err != nil {
			return nil, o.unknown(err.Error())
		}
		if batch == nil {
			return nil, nil
		}
		if name != "extend" && o.repeated {
			o.doubtExpired(batch.Errs)
		}
		return batch.Errs, nil
	})
}

// doubtExpired replaces the errors of expired receipts after a repetition: the first attempt, whose
// answer was lost, may have settled these deliveries.
func (o *operation) doubtExpired(errs []error) {
	for i, err := range errs {
		if errors.Is(err, driver.ErrReceiptExpired) {
			errs[i] = o.unknown("the daemon that was asked first is gone, and another one finds no delivery, so it is unknown whether the first has settled it")
		}
	}
}
