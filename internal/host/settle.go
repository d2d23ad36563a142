package host

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/completion"
	"github.com/mailboxmq/mailbox/internal/engine"
)

func (h *handle) Ack(ctx context.Context, receipts []driver.Receipt) error {
	if err := h.check(ctx, "ack"); err != nil {
		return err
	}
	batch := h.stageAcks(receipts)
	return batch.finish(h.frees())
}

func (h *handle) stageAcks(receipts []driver.Receipt) settleBatch {
	batch := settleBatch{run: run{queue: h.queue}, op: "ack", length: len(receipts)}
	for i, receipt := range receipts {
		if delivery, ok := batch.locate(i, receipt); ok {
			e, err := batch.shard.engine.StageAck(batch.now, delivery)
			batch.staged(i, e, err, receipt)
		}
	}
	return batch
}

// AckLate finds a waiting message by the number in its receipt, without an index of ids.
func (h *handle) AckLate(ctx context.Context, receipts []driver.Receipt) error {
	if err := h.check(ctx, "ack"); err != nil {
		return err
	}
	batch := settleBatch{run: run{queue: h.queue}, op: "ack", length: len(receipts)}
	for i, receipt := range receipts {
		delivery, ok := batch.locate(i, receipt)
		if !ok {
			continue
		}
		e, err := batch.shard.engine.StageLateAck(batch.now, delivery)
		if e == nil && err == nil {
			batch.durable = true // the effect that removes the message is recorded
			continue
		}
		batch.staged(i, e, err, receipt)
	}
	return batch.finish(true)
}

func (h *handle) Nack(ctx context.Context, nacks []driver.Nack) error {
	if err := h.check(ctx, "nack"); err != nil {
		return err
	}
	batch := h.stageNacks(nacks)
	return batch.finish(true)
}

func (h *handle) stageNacks(nacks []driver.Nack) settleBatch {
	traits := h.settings.Load().traits
	batch := settleBatch{run: run{queue: h.queue}, op: "nack", length: len(nacks)}
	for i, nack := range nacks {
		if err := nack.Check(traits); err != nil {
			batch.fail(i, h.named(err, "nack"))
			continue
		}
		if delivery, ok := batch.locate(i, nack.Receipt); ok {
			e, err := batch.shard.engine.StageNack(batch.now, delivery, nack.Delay, driver.TrimCause(nack.Cause), nack.Mode)
			batch.staged(i, e, err, nack.Receipt)
		}
	}
	return batch
}

// StartAck implements completion.Queue.
func (h *handle) StartAck(r *completion.Round, receipts []driver.Receipt, done completion.Settled) {
	startSettling(h, r, "ack", receipts, (*handle).stageAcks, (*handle).Ack, h.frees(), done)
}

// StartNack implements completion.Queue.
func (h *handle) StartNack(r *completion.Round, nacks []driver.Nack, done completion.Settled) {
	startSettling(h, r, "nack", nacks, (*handle).stageNacks, (*handle).Nack, true, done)
}

// StartDeadLetter implements completion.Queue.
func (h *handle) StartDeadLetter(r *completion.Round, requests []driver.DeadLetterRequest, done completion.Settled) {
	startSettling(h, r, "dead-letter", requests, (*handle).stageDeadLetters, (*handle).DeadLetter, h.frees(), done)
}

// startSettling starts to settle deliveries. Where each has to be published before the next
// is staged, it does so with settle on another goroutine.
func startSettling[T any](
	h *handle, r *completion.Round, op string, elements []T, stage func(*handle, []T) settleBatch,
	settle func(*handle, context.Context, []T) error, frees bool, done completion.Settled,
) {
	if err := h.usable(op); err != nil {
		done(r, err)
		return
	}
	if h.settlesOneByOne() {
		elements = slices.Clone(elements)
		completion.Begin(func() func(*completion.Round) {
			err := settle(h, context.Background(), elements) // what was started is completed
			return func(r *completion.Round) { done(r, err) }
		})
		return
	}
	s := newStartedSettle(h, frees, done)
	s.settleBatch = stage(h, elements)
	if s.end(s.durable, s.then) != nil {
		h.journal.Start(r.Alone)
		return
	}
	s.complete(r, s.failure)
}

// startedSettle is a call that settles deliveries and is not waited for.
type startedSettle struct {
	settleBatch
	handle *handle
	frees  bool // other messages may have become deliverable
	done   completion.Settled
	then   func(*completion.Round, error) // complete, made once
}

var spareSettles sync.Pool

func newStartedSettle(h *handle, frees bool, done completion.Settled) *startedSettle {
	s, ok := spareSettles.Get().(*startedSettle)
	if !ok {
		s = new(startedSettle)
		s.then = s.complete
	}
	s.handle, s.frees, s.done = h, frees, done
	return s
}

// complete ends the call. err is why it is not durable.
func (s *startedSettle) complete(r *completion.Round, err error) {
	if err != nil {
		s.done(r, s.handle.named(err, s.op))
	} else {
		if s.frees {
			s.handle.serve(r)
		}
		s.done(r, driver.NewBatchError(s.failures))
	}
	*s = startedSettle{then: s.then}
	spareSettles.Put(s)
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

// StartExtend implements completion.Queue. An extension waits for nothing.
func (h *handle) StartExtend(r *completion.Round, extensions []driver.Extension, done completion.Extended) {
	granted, err := h.Extend(context.Background(), extensions) // it does not wait
	done(r, granted, err)
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
		if err := extension.Check(traits); err != nil {
			batch.fail(i, h.named(err, "extend"))
			continue
		}
		if delivery, ok := batch.locate(i, extension.Receipt); ok {
			var err error
			if granted[i], err = extend(batch.shard.engine, batch.now, delivery, extension.Visibility); err != nil {
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
	failures []error
	durable  bool  // it depends on operations that were recorded outside of the run
	failure  error // of the whole call
}

func (s *settleBatch) fail(i int, err error) {
	s.failures = driver.FailAt(s.failures, s.length, i, err)
}

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
func (s *settleBatch) staged(i int, e *engine.Entry, err error, receipt driver.Receipt) {
	switch {
	case err == nil:
		s.publish(e)
		if s.queue.settlesOneByOne() {
			s.failure = cmp.Or(s.failure, s.run.finish(false))
		}
	case errors.Is(err, driver.ErrFull):
		s.fail(i, s.queue.named(s.queue.full("the dead letters are full", driver.DeadRetry), s.op))
	default:
		s.fail(i, s.queue.expired(s.op, receipt))
	}
}

// settlesOneByOne reports whether one message of a batch has to be published before the next
// is staged: a message that returns can make another one expire, and both may be of the batch.
func (q *queue) settlesOneByOne() bool {
	return q.journal != nil && q.settings.Load().config.RetainReady.Count > 0
}

// finish ends the call. frees says that other messages may have become deliverable.
func (s *settleBatch) finish(frees bool) error {
	if err := cmp.Or(s.failure, s.run.finish(s.durable)); err != nil {
		return s.queue.named(err, s.op)
	}
	if frees {
		s.queue.serve(nil)
	}
	return driver.NewBatchError(s.failures)
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
