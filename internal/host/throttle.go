package host

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// maxThrottled bounds the groups of a queue that are throttled at a time: they are in its record
// on disk.
const maxThrottled = 1000

// Throttle records until when the group is throttled, and then applies it.
func (h *handle) Throttle(ctx context.Context, group string, wait time.Duration) error {
	const op = "throttle"
	h.backend.setup.Lock()
	defer h.backend.setup.Unlock()
	if err := h.check(ctx, op); err != nil {
		return err
	}
	if !h.Traits().GroupLimits {
		return h.failure(driver.ErrUnsupported, op)
	}
	if err := driver.CheckThrottle(group, wait); err != nil {
		return h.named(err, op)
	}
	now := h.now().Wall
	throttled := maps.Clone(h.throttled)
	maps.DeleteFunc(throttled, func(_ string, until int64) bool { return until <= now })
	first := int64(driver.MaxThrottle)
	for _, until := range throttled {
		first = min(first, until-now)
	}
	until := max(throttled[group], now+int64(wait))
	switch {
	case wait == 0:
		delete(throttled, group)
	case throttled == nil:
		throttled = map[string]int64{group: until}
	case throttled[group] == 0 && len(throttled) >= maxThrottled:
		return &driver.Error{
			Code: driver.ErrFull, Op: op, Queue: h.name, Field: "group", RetryAfter: time.Duration(first),
			Detail: fmt.Sprintf("%d groups of the queue are throttled, and no more can be at a time", maxThrottled),
		}
	default:
		throttled[group] = until
	}
	config := h.settings.Load().config
	err := h.backend.durably(func(journal Journal) { journal.Configured(h.id, h.name, config, h.paused, throttled) })
	if err != nil {
		return h.named(err, op)
	}
	h.throttled = throttled
	h.throttle(group, throttled[group])
	h.serve(nil)
	return nil
}

// throttle throttles a group in its shard until a wall time, or ends that if the time is past.
func (q *queue) throttle(group string, until int64) {
	sh := q.groupShard(group)
	sh.lock()
	now := q.now()
	sh.engine.Throttle(now, group, time.Duration(max(until-now.Wall, 0)))
	sh.unlock()
}
