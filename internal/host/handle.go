package host

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/engine"
)

// handle is an open queue of a caller.
type handle struct {
	*queue
	isClosed atomic.Bool
}

var _ driver.Queue = (*handle)(nil)

// Identity is derived from the number of the queue, which is unique over the life of a
// journal, and from the secret, which differs between journals.
func (h *handle) Identity() string {
	text := binary.BigEndian.AppendUint32([]byte("identity of a queue"), h.id)
	sum := sha256.Sum256(append(text, h.backend.options.Secret[:]...))
	return base64.RawURLEncoding.EncodeToString(sum[:12])
}

func newHandle(q *queue) *handle { return &handle{queue: q} }

// check returns why an operation cannot start, or nil.
func (h *handle) check(ctx context.Context, op string) error {
	if h.isClosed.Load() {
		return h.failure(driver.ErrClosed, op)
	}
	if h.isEnded.Load() {
		return h.failure(h.code, op)
	}
	if h.journal != nil {
		if err := h.journal.Failed(); err != nil {
			return h.named(err, op)
		}
	}
	return ctx.Err()
}

func (q *queue) failure(code driver.Code, op string) error {
	return &driver.Error{Code: code, Op: op, Queue: q.name}
}

// named returns a copy of err with the queue and the operation.
func (q *queue) named(err error, op string) error {
	e, ok := errors.AsType[*driver.Error](err)
	if !ok {
		return err
	}
	named := *e
	named.Queue, named.Op = q.name, op
	return &named
}

// retryAfter is the RetryAfter of a full queue. It is a pace, not a prediction: the time of the
// next ack is unknown.
const retryAfter = time.Second

func (h *handle) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	if err := h.check(ctx, "send"); err != nil {
		return nil, err
	}
	if len(msgs) == 0 {
		return nil, nil
	}
	if h.journal != nil {
		if err := h.journal.Admit(); err != nil {
			return nil, h.named(err, "send")
		}
	}
	batch := sendBatch{run: run{queue: h.queue}, sent: make([]driver.Sent, len(msgs))}
	batch.all(msgs)
	if err := batch.finish(); err != nil {
		return nil, h.named(err, "send")
	}
	if h.journal == nil { // otherwise publishing wakes receivers
		h.waiters.wake(batch.ready)
		if batch.delayed || h.waiters.elsewhere.Load() {
			h.refresh()
		}
	}
	return batch.sent, batch.failures.err()
}

// noRoomLocked returns the error for a message that does not fit in the shard, and names the
// limit that it meets.
func (q *queue) noRoomLocked(sh *shard) error {
	config := &q.settings.Load().config
	field, limit := "MaxBytes", config.MaxBytes
	if !sh.engine.Fits(0) {
		field, limit = "MaxMessages", config.MaxMessages
	}
	return &driver.Error{
		Code: driver.ErrFull, Queue: q.name, Field: field, Detail: fmt.Sprintf("queue is full (%s %d)", field, limit), RetryAfter: retryAfter,
	}
}

func (q *queue) full(detail string, wait time.Duration) error {
	return &driver.Error{Code: driver.ErrFull, Queue: q.name, Detail: detail, RetryAfter: wait}
}

func (h *handle) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	if err := h.check(ctx, "receive"); err != nil {
		return nil, err
	}
	req, err := req.Check(h.settings.Load().traits)
	if err != nil {
		return nil, h.named(err, "receive")
	}
	taken := h.take(ctx, req)
	if len(taken.deliveries) > 0 {
		return h.deliverTaken(taken)
	}
	if err := h.broken("receive"); err != nil {
		return nil, err
	}
	if req.Wait == 0 {
		return nil, h.inFlightFull(taken.blocked)
	}
	return h.await(ctx, req)
}

// deliverTaken ends a receive that has leased messages.
func (h *handle) deliverTaken(t taken) ([]driver.Delivery, error) {
	h.refresh() // waiting receivers may depend on the new deadlines
	if t.survivors {
		if err := h.backend.barrier(); err != nil {
			return nil, h.named(err, "receive")
		}
	}
	return t.deliveries, nil
}

// await waits for messages for as long as the request says.
func (h *handle) await(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	w := h.waiters.join(h, req.Wait)
	expired, woken := false, false
	for {
		if err := h.check(ctx, "receive"); err != nil {
			h.waiters.leave(w, true)
			if woken { // pass the wake-up on
				h.waiters.wake(1)
			}
			return nil, err
		}
		taken := h.take(ctx, req)
		if len(taken.deliveries) > 0 {
			h.waiters.leave(w, false) // first, so that it is not woken although it has messages
			return h.deliverTaken(taken)
		}
		if err := h.broken("receive"); err != nil || expired {
			h.waiters.leave(w, true)
			return nil, cmp.Or(err, h.inFlightFull(taken.blocked))
		}
		h.refresh()
		woken = false
		select {
		case <-w.signal: // also sent when the handle or the queue is closed
			h.waiters.rest(w)
			woken = true
		case <-w.patience.C:
			expired = true // try once more
		case <-ctx.Done():
			h.waiters.leave(w, true)
			return nil, ctx.Err()
		}
	}
}

// taken is the result of leasing messages for a receive.
type taken struct {
	deliveries []driver.Delivery
	// blocked: messages were ready, but MaxInFlight is reached.
	blocked bool
	// survivors: some of the messages existed when an earlier process ended without
	// closing, and may have crashed it. Their leases must be durable before they are
	// delivered, so that the deliveries count even if the process crashes again.
	survivors bool
}

// take leases ready messages.
func (q *queue) take(ctx context.Context, req driver.ReceiveRequest) (t taken) {
	first := uint64(0)
	if len(q.shards) > 1 {
		first = q.nextTake.Add(1)
	}
	for i := range q.shards {
		sh := q.shards[(first+uint64(i))%uint64(len(q.shards))]
		for searching := true; searching; searching = searching && ctx.Err() == nil && !q.isEnded.Load() {
			searching = sh.take(req, &t)
		}
		if got := len(t.deliveries); got == req.Max || (got > 0 && req.MaxBytes > 0) {
			break
		}
	}
	t.blocked = t.blocked && len(t.deliveries) == 0
	return t
}

// take leases ready messages of one shard. searching reports that it has not looked at
// all messages: it unlocks the shard for others, and has to be called again.
func (sh *shard) take(req driver.ReceiveRequest, t *taken) (searching bool) {
	sh.lock()
	defer sh.unlock()
	had := len(t.deliveries)
	entries, full := sh.engine.Receive(sh.queue.now(), req.Max-had, req.MaxBytes, req.Visibility, sh.batch[:0])
	if had == 0 {
		t.deliveries = make([]driver.Delivery, len(entries))
	} else {
		t.deliveries = append(t.deliveries, make([]driver.Delivery, len(entries))...)
	}
	for i, e := range entries {
		sh.deliver(&t.deliveries[had+i], e)
		t.survivors = t.survivors || e.Seq < sh.survivors
	}
	t.blocked = t.blocked || full
	searching = len(entries) == 0 && sh.engine.Searching()
	clear(entries)
	sh.batch = entries
	return searching
}

// inFlightFull returns the error of a receive that was blocked by MaxInFlight, or nil.
func (q *queue) inFlightFull(blocked bool) error {
	if !blocked {
		return nil
	}
	wait := retryAfter
	for _, sh := range q.shards {
		sh.lock()
		if at, ok := sh.engine.NextDeadline(); ok {
			wait = min(wait, max(time.Duration(at-q.now().At), time.Millisecond))
		}
		sh.unlock()
	}
	return &driver.Error{
		Code: driver.ErrFull, Op: "receive", Queue: q.name, Field: "MaxInFlight",
		Detail: fmt.Sprintf("in-flight limit reached (MaxInFlight %d)", q.settings.Load().config.MaxInFlight), RetryAfter: wait,
	}
}

func (h *handle) Purge(ctx context.Context) (removed int, err error) {
	return h.clear(ctx, "purge", (*engine.Shard).Purge, Journal.Purged)
}

// clear empties every shard with purge, and records it.
func (h *handle) clear(ctx context.Context, op string, purge func(*engine.Shard, engine.Moment) int, record func(Journal, ShardID)) (removed int, err error) {
	if err := h.check(ctx, op); err != nil {
		return 0, err
	}
	for _, sh := range h.shards {
		if err := sh.lockUnstaged(); err != nil {
			return removed, h.named(err, op)
		}
		now := h.now()
		sh.engine.Advance(now)
		var reached []*shard
		if sh.target != nil || h.journal != nil {
			reached = sh.actLocked() // records the earlier effects first
		}
		if h.journal != nil { // before the effects of the purge
			h.journal.Lock()
			record(h.journal, sh.id)
			h.journal.Unlock()
		}
		removed += purge(sh.engine, now)
		sh.allowStaging()
		sh.unlock()
		for _, to := range reached {
			to.lock()
			to.unlock()
		}
	}
	return removed, h.named(h.backend.barrier(), op)
}

// lockUnstaged locks the shard when no operation is staged in it. It blocks new staging
// meanwhile, because a busy shard might always have staged operations. If it succeeds,
// the caller must call allowStaging.
func (sh *shard) lockUnstaged() error {
	sh.lock()
	sh.stagingBlocks++
	for sh.staged > 0 {
		sh.unlock()
		err := sh.queue.backend.barrier()
		sh.lock()
		if err != nil {
			sh.allowStaging()
			sh.unlock()
			return err
		}
	}
	return nil
}

// allowStaging ends the effect of lockUnstaged. The shard is locked.
func (sh *shard) allowStaging() {
	sh.stagingBlocks--
	if sh.stagingBlocks == 0 && sh.stagingAllowed != nil {
		close(sh.stagingAllowed)
		sh.stagingAllowed = nil
	}
}

func (h *handle) Usage(ctx context.Context) (driver.Usage, error) {
	if err := h.check(ctx, "measure"); err != nil {
		return driver.Usage{}, err
	}
	usage := driver.Usage{Shards: make([]driver.ShardUsage, len(h.shards)), DedupKeys: h.dedup.keys(h.now())}
	for i, sh := range h.shards {
		sh.lock()
		if sh.target != nil { // messages that have just died may be forwarded
			sh.engine.Advance(h.now())
			sh.actLocked()
		}
		usage.Shards[i] = sh.engine.Usage(h.now())
		sh.unlock()
	}
	return usage, nil
}

func (h *handle) Stats(ctx context.Context) (driver.Stats, error) {
	if err := h.check(ctx, "stats"); err != nil {
		return driver.Stats{}, err
	}
	var total driver.Stats
	for _, sh := range h.shards {
		sh.lock()
		part := sh.engine.Stats(h.now())
		if sh.target != nil { // messages that have just died may be forwarded
			sh.actLocked()
			part = sh.engine.Stats(h.now())
		}
		sh.unlock()
		total.Ready += part.Ready
		total.Delayed += part.Delayed
		total.InFlight += part.InFlight
		total.Dead += part.Dead
	}
	return total, nil
}

func (h *handle) Traits() driver.Traits { return *h.settings.Load().traits }

func (h *handle) Close() error {
	if !h.isClosed.Swap(true) {
		h.waiters.dismiss(h)
	}
	return nil
}
