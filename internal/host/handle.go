package host

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"sync/atomic"

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
	if err := h.usable(op); err != nil {
		return err
	}
	return ctx.Err()
}

// usable returns why no operation is possible, or nil.
func (h *handle) usable(op string) error {
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
	return nil
}

func (q *queue) failure(code driver.Code, op string) error {
	return &driver.Error{Code: code, Op: op, Queue: q.name}
}

// named returns a copy of err with the queue and the operation.
func (q *queue) named(err error, op string) error {
	return driver.Annotate(err, q.name, op)
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

func (h *handle) Pause(ctx context.Context) error { return h.setPaused(ctx, "pause", true) }

func (h *handle) Resume(ctx context.Context) error { return h.setPaused(ctx, "resume", false) }

// setPaused records whether the queue is paused, and then applies it.
func (h *handle) setPaused(ctx context.Context, op string, paused bool) error {
	h.backend.setup.Lock()
	defer h.backend.setup.Unlock()
	if err := h.check(ctx, op); err != nil {
		return err
	}
	config := h.settings.Load().config
	err := h.backend.durably(func(journal Journal) { journal.Configured(h.id, h.name, config, paused, h.throttled) })
	if err != nil {
		return h.named(err, op)
	}
	h.setPausedLocked(paused)
	h.serve(nil)
	return nil
}

// setPausedLocked pauses or resumes all shards. Setup is locked.
func (q *queue) setPausedLocked(paused bool) {
	q.paused = paused
	for _, sh := range q.shards {
		sh.lock()
		sh.engine.SetPaused(paused)
		sh.unlock()
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
		usage.UniqueKeys += sh.engine.KeysHeld()
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
		total = total.Plus(part)
	}
	return total, nil
}

func (h *handle) Traits() driver.Traits { return *h.settings.Load().traits }

func (h *handle) Close() error {
	if !h.isClosed.Swap(true) {
		h.waiters.dismiss(h, func(*handle) error { return h.failure(driver.ErrClosed, "receive") })
	}
	return nil
}
