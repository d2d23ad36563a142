package faulty

import (
	"context"
	"errors"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// sendOne sends one message, as a batch of one.
func (q *queue) sendOne(ctx context.Context, msg driver.Outgoing) (driver.Sent, error) {
	sent, err := q.Send(ctx, []driver.Outgoing{msg})
	if len(sent) != 1 {
		return driver.Sent{}, err
	}
	return sent[0], err
}

// each calls do for each element of a batch and keeps the positions of those that fail.
func each[E any](batch []E, do func(E) error) error {
	errs := make([]error, len(batch))
	for i, element := range batch {
		err := do(element)
		if detail, ok := errors.AsType[*driver.Error](err); err != nil && !ofBatch(err) && (!ok || concernsCall(detail)) {
			return err
		}
		errs[i] = driver.At(err, 0)
	}
	return driver.NewBatchError(errs)
}

// extended returns the error of an extension.
func extended(_ []time.Duration, err error) error { return err }

// yieldToOthers splits an operation that should be atomic into two steps. In virtual time all
// goroutines at the same point run first.
func yieldToOthers() { <-time.After(time.Microsecond) }

func ofBatch(err error) bool {
	_, ok := errors.AsType[*driver.BatchError](err)
	return ok
}

// concernsCall reports whether the whole batch failed, not one position.
func concernsCall(e *driver.Error) bool {
	return e.Code == driver.ErrClosed || e.Code == driver.ErrNotFound || e.Code == driver.ErrUnavailable
}

func (q *queue) ackOne(ctx context.Context, receipt driver.Receipt) error {
	return q.Ack(ctx, []driver.Receipt{receipt})
}

func (q *queue) ackOneLate(ctx context.Context, receipt driver.Receipt) error {
	return q.AckLate(ctx, []driver.Receipt{receipt})
}

func (q *queue) nackOne(ctx context.Context, nack driver.Nack) error {
	return q.Nack(ctx, []driver.Nack{nack})
}

func (q *queue) deadLetterOne(ctx context.Context, request driver.DeadLetterRequest) error {
	return q.DeadLetter(ctx, []driver.DeadLetterRequest{request})
}

func (q *queue) extendOne(ctx context.Context, extension driver.Extension) ([]time.Duration, error) {
	return q.Extend(ctx, []driver.Extension{extension})
}

// release ends a lease.
func (q *queue) release(ctx context.Context, receipt driver.Receipt) error {
	return extended(q.extendOne(ctx, driver.Extension{Receipt: receipt}))
}

// oneByOne settles a batch one by one.
func oneByOne[E any](settle func(q *queue, ctx context.Context, element E) error) settleFunc[E] {
	return func(q *queue, ctx context.Context, batch []E) error {
		return each(batch, func(element E) error { return settle(q, ctx, element) })
	}
}

// sendOneByOne sends a batch message by message.
func sendOneByOne(send func(q *queue, ctx context.Context, msg driver.Outgoing) (driver.Sent, error)) sendFunc {
	return func(q *queue, ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
		return withResults(msgs, func(msg driver.Outgoing) (driver.Sent, error) { return send(q, ctx, msg) })
	}
}

// extendOneByOne extends a batch one by one.
func extendOneByOne(extend func(q *queue, ctx context.Context, extension driver.Extension) ([]time.Duration, error)) extendFunc {
	return func(q *queue, ctx context.Context, extensions []driver.Extension) ([]time.Duration, error) {
		return withResults(extensions, func(extension driver.Extension) (time.Duration, error) {
			granted, err := extend(q, ctx, extension)
			if len(granted) == 0 || err != nil {
				return 0, err
			}
			return granted[0], nil
		})
	}
}

// withResults is each for calls with results.
func withResults[E, R any](batch []E, do func(E) (R, error)) ([]R, error) {
	results := make([]R, 0, len(batch))
	err := each(batch, func(element E) error {
		result, err := do(element)
		results = append(results, result)
		return err
	})
	if err != nil && !ofBatch(err) {
		return nil, err
	}
	return results, err
}

// changed returns a copy of a batch with each element changed.
func changed[E any](q *queue, batch []E, change func(*queue, *E)) []E {
	batch = append([]E(nil), batch...)
	for i := range batch {
		change(q, &batch[i])
	}
	return batch
}

// alterEach changes the elements of a batch before the backend gets them.
func alterEach[E any](pass settleFunc[E], change func(*queue, *E)) settleFunc[E] {
	return func(q *queue, ctx context.Context, batch []E) error { return pass(q, ctx, changed(q, batch, change)) }
}

// alterSent changes each message before the backend gets it.
func alterSent(change func(q *queue, msg *driver.Outgoing)) sendFunc {
	return func(q *queue, ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
		return q.Send(ctx, changed(q, msgs, change))
	}
}

// alterExtensions changes each extension before the backend gets it.
func alterExtensions(change func(q *queue, extension *driver.Extension)) extendFunc {
	return func(q *queue, ctx context.Context, extensions []driver.Extension) ([]time.Duration, error) {
		return q.Extend(ctx, changed(q, extensions, change))
	}
}

// afterEach passes a batch on and calls then for each element that succeeded.
func afterEach[E any](pass settleFunc[E], then func(q *queue, element E)) settleFunc[E] {
	return func(q *queue, ctx context.Context, batch []E) error {
		err := pass(q, ctx, batch)
		for i, element := range batch {
			if driver.At(err, i) == nil {
				then(q, element)
			}
		}
		return err
	}
}

// alterError returns a copy of err with changed details, if it has any.
func alterError(err error, change func(*driver.Error)) error {
	detail, ok := errors.AsType[*driver.Error](err)
	if !ok {
		return err
	}
	other := *detail
	change(&other)
	return &other
}

// unless returns err, or nil if ignored.
func unless(ignored bool, err error) error {
	if ignored {
		return nil
	}
	return err
}

// shiftErrors moves the errors of a batch one position up.
func shiftErrors[E any](pass settleFunc[E]) settleFunc[E] {
	return func(q *queue, ctx context.Context, batch []E) error { return shifted(pass(q, ctx, batch), len(batch)) }
}

// shifted moves the errors of a batch one position up.
func shifted(err error, n int) error {
	return replaced(err, n, func(i int) int { return (i + 1) % n })
}

// replaced moves the errors of a batch to other positions.
func replaced(err error, n int, position func(int) int) error {
	if !ofBatch(err) || n < 2 {
		return err
	}
	errs := make([]error, n)
	for i := range errs {
		errs[position(i)] = driver.At(err, i)
	}
	return driver.NewBatchError(errs)
}
