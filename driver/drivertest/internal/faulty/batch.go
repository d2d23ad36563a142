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

// sendEach sends a batch message by message.
func sendEach(msgs []driver.Outgoing, send func(driver.Outgoing) (driver.Sent, error)) ([]driver.Sent, error) {
	sent := make([]driver.Sent, 0, len(msgs))
	err := each(msgs, func(msg driver.Outgoing) error {
		result, err := send(msg)
		sent = append(sent, result)
		return err
	})
	if err != nil && !ofBatch(err) {
		return nil, err
	}
	return sent, err
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

// eachExtension is each for extensions. It returns the granted durations.
func eachExtension(extensions []driver.Extension, do func(driver.Extension) ([]time.Duration, error)) ([]time.Duration, error) {
	granted := make([]time.Duration, 0, len(extensions))
	err := each(extensions, func(extension driver.Extension) error {
		got, err := do(extension)
		granted = append(granted, driver.GrantedAsAsked([]driver.Extension{{Visibility: first(got)}}, err)...)
		return err
	})
	if err != nil && !ofBatch(err) {
		return nil, err
	}
	return granted, err
}

// first returns the grant of a single extension, or 0 if it failed.
func first(granted []time.Duration) time.Duration {
	if len(granted) == 0 {
		return 0
	}
	return granted[0]
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
