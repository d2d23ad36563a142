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

// handle is one opening of a queue.
type handle struct {
	*queue
	isClosed atomic.Bool
}

var _ driver.Queue = (*handle)(nil)

// Identity is made of the number of the queue, which no other gets for as long as the
// journal lives, and of the secret, which tells journals apart.
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

// named adds the queue and the operation to an error that may belong to
// others.
func (q *queue) named(err error, op string) error {
	e, ok := errors.AsType[*driver.Error](err)
	if !ok {
		return err
	}
	named := *e
	named.Queue, named.Op = q.name, op
	return &named
}

// retryAfter is the hint that goes with a full queue: nobody knows when a
// consumer will ack, so it is only a pace.
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
	sending := sending{run: run{queue: h.queue}, sent: make([]driver.Sent, len(msgs))}
	sending.all(msgs)
	if err := sending.finish(); err != nil {
		return nil, h.named(err, "send")
	}
	if h.journal == nil { // with one, publishing wakes
		h.waiters.wake(sending.ready)
		if sending.delayed || h.waiters.elsewhere.Load() {
			h.refresh()
		}
	}
	return sending.sent, sending.failures.err()
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
		return h.handOut(taken)
	}
	if err := h.broken("receive"); err != nil {
		return nil, err
	}
	if req.Wait == 0 {
		return nil, h.ceiling(taken.blocked)
	}
	return h.await(ctx, req)
}

// handOut ends a receive that has taken something.
func (h *handle) handOut(t taken) ([]driver.Delivery, error) {
	h.refresh() // others may wait for these deadlines
	if t.survivors {
		if err := h.backend.barrier(); err != nil {
			return nil, h.named(err, "receive")
		}
	}
	return t.deliveries, nil
}

// await takes messages when there are some, for as long as the request says.
func (h *handle) await(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	w := h.waiters.join(h, req.Wait)
	expired, woken := false, false
	for {
		if err := h.check(ctx, "receive"); err != nil {
			h.waiters.leave(w, true)
			if woken { // for something that it does not look for any more
				h.waiters.wake(1)
			}
			return nil, err
		}
		taken := h.take(ctx, req)
		if len(taken.deliveries) > 0 {
			h.waiters.leave(w, false) // first: nobody needs to be woken for one who has something
			return h.handOut(taken)
		}
		if err := h.broken("receive"); err != nil || expired {
			h.waiters.leave(w, true)
			return nil, cmp.Or(err, h.ceiling(taken.blocked))
		}
		h.refresh()
		woken = false
		select {
		case <-w.signal: // closing the handle, or the end of the queue, is one too
			h.waiters.rest(w)
			woken = true
		case <-w.patience.C:
			expired = true // one last look: what was in the way may be gone
		case <-ctx.Done():
			h.waiters.leave(w, true)
			return nil, ctx.Err()
		}
	}
}

// taken is what a receive has leased.
type taken struct {
	deliveries []driver.Delivery
	// blocked: only the in-flight ceiling kept it from taking anything.
	blocked bool
	// survivors: some of it was there when an earlier process ended without
	// closing, and may be what ended it. That it was delivered must not be
	// forgotten if that happens again: nobody gets it before the disk has its lease.
	survivors bool
}

// take leases what is ready.
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

// take leases what is ready in one shard. searching says that it found nothing in
// what it looked at, and there is more: it lets others have the shard before it is
// called again.
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

// ceiling is the error for a receive that found the in-flight ceiling reached.
func (q *queue) ceiling(blocked bool) error {
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

// clear empties every shard with purge, and writes that down.
func (h *handle) clear(ctx context.Context, op string, purge func(*engine.Shard, engine.Moment) int, record func(Journal, ShardID)) (removed int, err error) {
	if err := h.check(ctx, op); err != nil {
		return 0, err
	}
	for _, sh := range h.shards {
		if err := sh.lockSettled(); err != nil {
			return removed, h.named(err, op)
		}
		now := h.now()
		sh.engine.Advance(now)
		var reached []*shard
		if sh.target != nil || h.journal != nil {
			reached = sh.actLocked() // what happened before must be written before
		}
		if h.journal != nil { // and what comes of the room it makes, after
			h.journal.Lock()
			record(h.journal, sh.id)
			h.journal.Unlock()
		}
		removed += purge(sh.engine, now)
		sh.settled()
		sh.unlock()
		for _, to := range reached {
			to.lock()
			to.unlock()
		}
	}
	return removed, h.named(h.backend.barrier(), op)
}

// lockSettled locks the shard at a moment at which nothing is staged in it, and
// keeps others from staging anything until then, or it might never come. If it
// succeeds, settled must follow.
func (sh *shard) lockSettled() error {
	sh.lock()
	sh.settlers++
	for sh.staged > 0 {
		sh.unlock()
		err := sh.queue.backend.barrier()
		sh.lock()
		if err != nil {
			sh.settled()
			sh.unlock()
			return err
		}
	}
	return nil
}

// settled lets others stage again. The shard is locked.
func (sh *shard) settled() {
	sh.settlers--
	if sh.settlers == 0 && sh.calm != nil {
		close(sh.calm)
		sh.calm = nil
	}
}

func (h *handle) Usage(ctx context.Context) (driver.Usage, error) {
	if err := h.check(ctx, "measure"); err != nil {
		return driver.Usage{}, err
	}
	usage := driver.Usage{Shards: make([]driver.ShardUsage, len(h.shards)), DedupKeys: h.dedup.keys(h.now())}
	for i, sh := range h.shards {
		sh.lock()
		if sh.target != nil { // what died just now is about to leave
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
		if sh.target != nil { // what died just now is about to leave
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
