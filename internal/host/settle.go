package host

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/engine"
)

func (h *handle) Ack(ctx context.Context, receipts []driver.Receipt) error {
	if err := h.check(ctx, "ack"); err != nil {
		return err
	}
	batch := settleBatch{run: run{queue: h.queue}, op: "ack", length: len(receipts)}
	for i, receipt := range receipts {
		if delivery, ok := batch.locate(i, receipt); ok {
			now := h.now()
			e, err := batch.shard.engine.StageAck(now, delivery)
			batch.staged(i, now, e, err, receipt)
		}
	}
	return batch.finish(h.frees())
}

// AckLate finds a waiting message by the number in its receipt, without an index of ids.
func (h *handle) AckLate(ctx context.Context, receipts []driver.Receipt) error {
	if err := h.check(ctx, "ack"); err != nil {
		return err
	}
	batch := settleBatch{run: run{queue: h.queue}, op: "ack", length: len(receipts)}
	withdrawn := false
	for i, receipt := range receipts {
		delivery, ok := batch.locate(i, receipt)
		if !ok {
			continue
		}
		now := h.now()
		e, err := batch.shard.engine.StageLateAck(now, delivery)
		if e == nil && err == nil {
			withdrawn = true
			continue
		}
		batch.staged(i, now, e, err, receipt)
	}
	err := batch.finish(true)
	if withdrawn {
		if failed := h.backend.barrier(); failed != nil {
			return h.named(failed, "ack")
		}
	}
	return err
}

func (h *handle) Nack(ctx context.Context, nacks []driver.Nack) error {
	if err := h.check(ctx, "nack"); err != nil {
		return err
	}
	traits := h.settings.Load().traits
	batch := settleBatch{run: run{queue: h.queue}, op: "nack", length: len(nacks)}
	for i, nack := range nacks {
		if err := driver.CheckVisibility("nack", "Delay", nack.Delay, traits); err != nil {
			batch.fail(i, h.named(err, "nack"))
			continue
		}
		if delivery, ok := batch.locate(i, nack.Receipt); ok {
			now := h.now()
			e, err := batch.shard.engine.StageNack(now, delivery, nack.Delay, driver.TrimCause(nack.Cause))
			batch.staged(i, now, e, err, nack.Receipt)
		}
	}
	return batch.finish(true)
}

// Extend does not wait for the journal: a lease that is lost in a crash means an early
// redelivery, which at-least-once allows.
func (h *handle) Extend(ctx context.Context, extensions []driver.Extension) ([]time.Duration, error) {
	return h.extend(ctx, extensions, (*engine.Shard).Extend)
}

func (h *handle) ExtendLate(ctx context.Context, extensions []driver.Extension) error {
	_, err := h.extend(ctx, extensions, (*engine.Shard).ExtendLate)
	return err
}

func (h *handle) extend(
	ctx context.Context, extensions []driver.Extension,
	extend func(*engine.Shard, engine.Moment, engine.Delivery, time.Duration) (time.Duration, error),
) ([]time.Duration, error) {
	if err := h.check(ctx, "extend"); err != nil {
		return nil, err
	}
	granted := make([]time.Duration, len(extensions))
	traits := h.settings.Load().traits
	batch := settleBatch{run: run{queue: h.queue}, op: "extend", length: len(extensions)}
	for i, extension := range extensions {
		if err := driver.CheckVisibility("extend", "Visibility", extension.Visibility, traits); err != nil {
			batch.fail(i, h.named(err, "extend"))
			continue
		}
		if delivery, ok := batch.locate(i, extension.Receipt); ok {
			var err error
			if granted[i], err = extend(batch.shard.engine, h.now(), delivery, extension.Visibility); err != nil {
				batch.fail(i, h.expired("extend", extension.Receipt))
			}
		}
	}
	err := batch.finish(true)
	if _, ok := errors.AsType[*driver.BatchError](err); err != nil && !ok {
		return nil, err
	}
	return granted, err
}

// settleBatch is the state of one call of Ack, Nack, Extend or DeadLetter.
type settleBatch struct {
	run
	op       string
	length   int
	failures failures
	failure  error // of the whole call
}

func (s *settleBatch) fail(i int, err error) { s.failures.add(s.length, i, err) }

// locate locks the shard of a receipt. A receipt of an unknown shard has expired.
func (s *settleBatch) locate(i int, receipt driver.Receipt) (engine.Delivery, bool) {
	number := receipt.Place >> placeBits
	if number >= uint64(len(s.queue.shards)) {
		s.fail(i, s.queue.expired(s.op, receipt))
		return engine.Delivery{}, false
	}
	s.use(s.queue.shards[number])
	return engine.Delivery{
		Seq:   receipt.Place & (1<<placeBits - 1),
		Nonce: receipt.Nonce,
		ID:    receipt.Handle,
	}, true
}

// staged publishes a staged operation, or records why staging failed.
func (s *settleBatch) staged(i int, now engine.Moment, e *engine.Entry, err error, receipt driver.Receipt) {
	switch {
	case err == nil:
		s.publish(now, e)
		// A message that returns can make another one expire, and both may be of this
		// batch: then one has to be published before the next is staged.
		if s.queue.journal != nil && s.queue.settings.Load().config.RetainReady.Count > 0 {
			s.failure = cmp.Or(s.failure, s.run.finish())
		}
	case errors.Is(err, driver.ErrFull):
		s.fail(i, s.queue.named(s.queue.full("the dead letters are full", driver.DeadRetry), s.op))
	default:
		s.fail(i, s.queue.expired(s.op, receipt))
	}
}

// finish ends the call. frees says that other messages may have become deliverable.
func (s *settleBatch) finish(frees bool) error {
	if err := cmp.Or(s.failure, s.run.finish()); err != nil {
		return s.queue.named(err, s.op)
	}
	if frees {
		s.queue.refresh()
	}
	return s.failures.err()
}

// frees reports whether settling a message can make others deliverable.
func (q *queue) frees() bool {
	config := &q.settings.Load().config
	return config.StrictGroups || config.MaxInFlight > 0
}

func (q *queue) expired(op string, receipt driver.Receipt) error {
	return &driver.Error{Code: driver.ErrReceiptExpired, Op: op, Queue: q.name, MessageID: receipt.Handle}
}

func idText(id ulid.ULID) string { return id.String() }

// failures collects the errors of a batch at their positions. It allocates only when
// there is one.
type failures []error

func (f *failures) add(length, i int, err error) {
	if *f == nil {
		*f = make([]error, length)
	}
	(*f)[i] = err
}

func (f failures) err() error {
	if f == nil {
		return nil
	}
	return driver.NewBatchError(f)
}
