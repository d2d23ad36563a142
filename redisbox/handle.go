package redisbox

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/redisbox/internal/shard"
	"github.com/mailboxmq/mailbox/redisbox/internal/transfer"
)

// handle is one opening of a queue.
type handle struct {
	*queue
	closed    chan struct{}
	isClosed  atomic.Bool // whether closed is closed, cheaper to read
	closeOnce sync.Once
}

var _ driver.Queue = (*handle)(nil)

func newHandle(q *queue) *handle { return &handle{queue: q, closed: make(chan struct{})} }

// check returns the error of an operation that cannot start, or nil.
func (h *handle) check(ctx context.Context, op string) error {
	if h.isClosed.Load() {
		return h.failure(driver.ErrClosed, op)
	}
	if h.isEnded.Load() {
		return h.failure(h.code, op)
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

func (h *handle) Traits() driver.Traits { return h.Settings.Load().Traits }

func (h *handle) Identity() string { return h.queue.Incarnation }

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
	parts, err := onShards(h.queue, func(s *shard.Shard) (shard.Usage, error) { return h.usage(ctx, s, "0") })
	var total driver.Stats
	for _, part := range parts {
		total = total.Plus(part.Stats)
	}
	return total, h.outcome(err, "stats")
}

func (h *handle) Usage(ctx context.Context) (driver.Usage, error) {
	if err := h.check(ctx, "measure"); err != nil {
		return driver.Usage{}, err
	}
	parts, err := onShards(h.queue, func(s *shard.Shard) (shard.Usage, error) { return h.usage(ctx, s, "-1") })
	if err != nil {
		return driver.Usage{}, h.outcome(err, "measure")
	}
	var total driver.Usage
	for _, part := range parts {
		total.Shards = append(total.Shards, part.ShardUsage)
		total.DedupKeys += part.Keys
		total.UniqueKeys += part.UniqueKeys
	}
	return total, nil
}

// usage counts the messages of a shard, after dead letters that are being forwarded have left.
func (q *queue) usage(ctx context.Context, s *shard.Shard, wants string) (shard.Usage, error) {
	limit := time.Now().Add(shard.MaxAttempt)
	for before := math.MaxInt; ; {
		u, toForward, err := s.Usage(ctx, wants)
		if err != nil || toForward <= 0 || (toForward >= before && !q.forwarders[s.Number].Await(ctx, limit)) {
			return u, err
		}
		before = toForward // they have left meanwhile, or a forwarding is moving them
	}
}

func (h *handle) Purge(ctx context.Context) (removed int, err error) {
	return h.clear(ctx, "purge", "waiting")
}

func (h *handle) PurgeDead(ctx context.Context) (removed int, err error) {
	return h.clear(ctx, "purge dead letters", "dead")
}

func (h *handle) ForgetDedup(ctx context.Context) error {
	_, err := h.clear(ctx, "forget dedup keys", "dedup")
	return err
}

// Throttle returns ErrUnsupported.
func (h *handle) Throttle(context.Context, string, time.Duration) error {
	return h.failure(driver.ErrUnsupported, "throttle")
}

// Pause stops deliveries; see driver.Queue. It blocks for a round trip, or for three and more if
// there are several shards. Processes of versions that do not know of pauses get ErrUnsupported,
// for sends too, until the queue is resumed.
func (h *handle) Pause(ctx context.Context) error { return h.setPaused(ctx, "pause", true) }

// Resume ends a pause. It blocks for as long as Pause.
func (h *handle) Resume(ctx context.Context) error { return h.setPaused(ctx, "resume", false) }

// setPaused pauses or resumes the first shard, which decides, and then makes the others
// follow. It looks at the first again afterwards, because another process may have changed it
// meanwhile: of Pause and Resume at the same time, one holds in all shards.
func (h *handle) setPaused(ctx context.Context, op string, paused bool) error {
	if err := h.check(ctx, op); err != nil {
		return err
	}
	first := h.Shards[0]
	err := first.SetPaused(ctx, paused)
	for isSet := len(h.Shards) == 1; err == nil && !isSet; {
		_, err = onShards(h.queue, func(s *shard.Shard) (struct{}, error) {
			if s == first {
				return struct{}{}, nil
			}
			return struct{}{}, s.SetPaused(ctx, paused)
		})
		if err == nil {
			var decided shard.Usage
			decided, err = h.usage(ctx, first, "0")
			isSet, paused = decided.Paused == paused, decided.Paused
		}
	}
	return h.outcome(err, op)
}

// clear removes messages, dead letters or dedup keys of every shard.
func (h *handle) clear(ctx context.Context, op, which string) (removed int, err error) {
	if err := h.check(ctx, op); err != nil {
		return 0, err
	}
	parts, err := onShards(h.queue, func(s *shard.Shard) (int, error) { return s.Purge(ctx, which) })
	for _, part := range parts {
		removed += part
	}
	return removed, h.outcome(err, op)
}

// onShards calls do for all shards concurrently. It returns the results, and the first
// error.
func onShards[R any](q *queue, do func(s *shard.Shard) (R, error)) ([]R, error) {
	results := make([]R, len(q.Shards))
	if len(q.Shards) == 1 {
		var err error
		results[0], err = do(q.Shards[0])
		return results, err
	}
	errs := make([]error, len(q.Shards))
	var group sync.WaitGroup
	for i, s := range q.Shards {
		group.Go(func() { results[i], errs[i] = do(s) })
	}
	group.Wait()
	for _, err := range errs {
		if err != nil {
			return results, err
		}
	}
	return results, nil
}

// Move moves ready messages to another queue; see driver.Queue. It blocks for four round
// trips per hundred messages. Cancelling ctx ends it at once; messages whose transfer has
// begun are moved, and not counted.
//
// It moves the messages that were ready when it began, so that it ends although more
// arrive.
func (h *handle) Move(ctx context.Context, to string, limit int) (moved int, err error) {
	if err := h.check(ctx, "move"); err != nil {
		return 0, err
	}
	moved, err = transfer.Move(ctx, h.Queue, transfers{h.backend}, to, limit, func() error { return h.check(ctx, "move") })
	return moved, h.outcome(err, "move")
}
