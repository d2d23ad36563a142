package pgbox

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/mailboxmq/mailbox/driver"
)

// handle is one opening of a queue.
type handle struct {
	*queue
	closed    chan struct{}
	isClosed  atomic.Bool // whether closed is closed, cheaper to read
	closeOnce sync.Once
}

var _ driver.Queue = (*handle)(nil)

// retryAfter is the hint of errors that only a settlement by another caller ends.
const retryAfter = time.Second

// check returns the error of an operation that cannot start, or nil.
func (h *handle) check(ctx context.Context, op string) error {
	if h.isClosed.Load() {
		return h.failure(driver.ErrClosed, op)
	}
	if h.isEnded.Load() {
		return h.failure(h.code, op)
	}
	if txOf(ctx) != nil && !worksInTx(op) {
		return &driver.Error{Code: driver.ErrUnsupported, Op: op, Queue: h.name, Detail: "only send, ack and nack can be part of a transaction"}
	}
	return ctx.Err()
}

// outcome returns the error of a whole operation.
func (h *handle) outcome(err error, op string) error {
	if err == nil {
		return nil
	}
	if h.isEnded.Load() && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return h.failure(h.code, op)
	}
	return h.named(err, op)
}

func (h *handle) Traits() driver.Traits {
	traits := h.settings.Load().traits
	traits.Durability = h.backend.protection.Load().durability // which a failover changes
	return traits
}

func (h *handle) Identity() string { return h.incarnation }

func (h *handle) Close() error {
	h.closeOnce.Do(func() {
		h.isClosed.Store(true)
		close(h.closed)
		h.backend.leave(h.queue)
	})
	return nil
}

func (h *handle) Stats(ctx context.Context) (driver.Stats, error) {
	if err := h.check(ctx, "stats"); err != nil {
		return driver.Stats{}, err
	}
	usage, err := h.usage(ctx, false)
	var total driver.Stats
	for _, part := range usage.Shards {
		total = total.Plus(part.Stats)
	}
	return total, h.outcome(err, "stats")
}

func (h *handle) Usage(ctx context.Context) (driver.Usage, error) {
	if err := h.check(ctx, "measure"); err != nil {
		return driver.Usage{}, err
	}
	usage, err := h.usage(ctx, true)
	return usage, h.outcome(err, "measure")
}

// usage advances the queue, and counts.
func (q *queue) usage(ctx context.Context, ages bool) (driver.Usage, error) {
	for {
		usage, done, err := q.usageOnce(ctx, ages)
		if err != nil || done {
			return usage, err
		}
	}
}

func (q *queue) usageOnce(ctx context.Context, ages bool) (usage driver.Usage, done bool, err error) {
	var version int64
	var woken, endings *string
	from := q.lowest(q.numbers())
	const sql = "SELECT m.*, CASE WHEN $2 AND m.shard = 0 THEN mailbox.keys_held($1) END FROM mailbox.measure($1, $2, $3, $4, $5, $6) m"
	r := request{sql: sql, args: []any{ages, false, from.place, from.due, from.levels}, wide: 2, repeatable: true}
	err = q.call(ctx, r, func(rows pgx.Rows) error {
		usage = driver.Usage{}
		for rows.Next() {
			var shard int32
			var part driver.ShardUsage
			var bytes, keys, uniqueKeys *int64
			var ready, dead int64
			err := rows.Scan(&shard, &done, &part.Ready, &part.Delayed, &part.InFlight, &part.Dead, &bytes, &keys, &ready, &dead, &part.Paused, &version, &woken, &endings, &part.Throttled, &uniqueKeys)
			if err != nil {
				return err
			}
			if bytes != nil {
				part.Bytes = int(*bytes)
			}
			if keys != nil {
				usage.DedupKeys += int(*keys)
			}
			if uniqueKeys != nil {
				usage.UniqueKeys += int(*uniqueKeys)
			}
			part.OldestReady, part.OldestDead = time.Duration(ready)*time.Microsecond, time.Duration(dead)*time.Microsecond
			usage.Shards = append(usage.Shards, part)
		}
		return nil
	})
	if err != nil {
		return driver.Usage{}, false, err
	}
	q.backend.happened(ctx, endings, woken)
	q.note(ctx, version)
	return usage, done, nil
}

func (h *handle) Purge(ctx context.Context) (removed int, err error) {
	return h.purge(ctx, "purge", false)
}

func (h *handle) PurgeDead(ctx context.Context) (removed int, err error) {
	return h.purge(ctx, "purge dead letters", true)
}

// purge removes the messages that are not dead, or those that are.
func (h *handle) purge(ctx context.Context, op string, dead bool) (int, error) {
	if err := h.check(ctx, op); err != nil {
		return 0, err
	}
	for {
		var removed *int
		var woken, endings *string
		r := request{sql: "SELECT * FROM mailbox.purge($1, $2, $3)", args: []any{dead, false}, wide: 2}
		if err := h.call(ctx, r, one(&removed, &woken, &endings)); err != nil {
			return 0, h.outcome(err, op)
		}
		h.backend.happened(ctx, endings, woken)
		if removed != nil {
			h.queue.changed(ctx, 0)
			return *removed, nil
		}
	}
}

// ForgetDedup forgets all dedup keys. It blocks for a round trip.
func (h *handle) ForgetDedup(ctx context.Context) error {
	if err := h.check(ctx, "forget dedup keys"); err != nil {
		return err
	}
	r := request{sql: "WITH gone AS (DELETE FROM mailbox.dedup WHERE qid = $1 RETURNING 1) SELECT count(*), mailbox.rules($1, 0) IS NULL FROM gone", wide: -1, repeatable: true}
	var n int64
	var none bool
	err := h.call(ctx, r, one(&n, &none))
	h.keyRoom.Store(0)
	return h.outcome(err, "forget dedup keys")
}

// Pause stops deliveries; see driver.Queue. It blocks for a round trip.
func (h *handle) Pause(ctx context.Context) error { return h.setPaused(ctx, "pause", true) }

// Resume ends a pause. It blocks for as long as Pause.
func (h *handle) Resume(ctx context.Context) error { return h.setPaused(ctx, "resume", false) }

func (h *handle) setPaused(ctx context.Context, op string, paused bool) error {
	if err := h.check(ctx, op); err != nil {
		return err
	}
	var done bool
	r := request{sql: "SELECT mailbox.pause($1, $2)", args: []any{paused}, wide: -1, repeatable: true}
	err := h.call(ctx, r, one(&done))
	if err == nil && !paused {
		h.queue.changed(ctx, h.waiters.Len())
	}
	return h.outcome(err, op)
}
