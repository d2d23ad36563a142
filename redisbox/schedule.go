package redisbox

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/redisbox/internal/shard"
)

// Fire changes a schedule and sends its messages; see driver.Queue. It blocks for a round trip.
func (h *handle) Fire(ctx context.Context, f driver.Firing) (now driver.Schedule, done bool, err error) {
	const op = "fire"
	if err := h.check(ctx, op); err != nil {
		return driver.Schedule{}, false, err
	}
	if err := f.Check(&h.Settings.Load().Traits); err != nil {
		return driver.Schedule{}, false, h.named(err, op)
	}
	code, now, err := h.ShardOfSchedule(f.Name).Fire(ctx, &f)
	switch {
	case err != nil:
		return driver.Schedule{}, false, h.outcome(err, op)
	case code == "f":
		return driver.Schedule{}, false, h.named(h.full("the queue is full", shard.RetryAfter), op)
	case code == "m":
		return driver.Schedule{}, false, h.named(h.full(fmt.Sprintf("queue has %d schedules, which is the limit", driver.MaxSchedules), 0), op)
	}
	return now, code == "1", nil
}

// schedulesPage is how many schedules one call reads.
const schedulesPage = 16

// Schedules reads schedules; see driver.Queue. It blocks for a round trip, and for one more for each
// 16 if no name is given.
func (h *handle) Schedules(ctx context.Context, name string) iter.Seq2[driver.Schedule, error] {
	const op = "list schedules"
	return func(yield func(driver.Schedule, error) bool) {
		names, err := []string{name}, h.check(ctx, op)
		if err == nil && name == "" {
			names, err = h.scheduleNames(ctx)
		}
		for page := range slices.Chunk(names, schedulesPage) {
			var found []driver.Schedule
			if err == nil {
				found, err = h.schedulePage(ctx, page)
			}
			if err == nil {
				err = h.check(ctx, op)
			}
			if err != nil {
				break
			}
			for _, s := range found {
				if !yield(s, nil) {
					return
				}
			}
		}
		if err != nil {
			yield(driver.Schedule{}, h.outcome(err, op))
		}
	}
}

// scheduleNames returns the names of all schedules, in order.
func (h *handle) scheduleNames(ctx context.Context) (names []string, err error) {
	parts, err := onShards(h.queue, func(s *shard.Shard) ([]string, error) { return s.ScheduleNames(ctx) })
	names = slices.Concat(parts...)
	slices.Sort(names)
	return names, err
}

// schedulePage reads schedules of one or more shards, in the order of the names.
func (h *handle) schedulePage(ctx context.Context, names []string) (all []driver.Schedule, err error) {
	parts, err := onShards(h.queue, func(s *shard.Shard) ([]driver.Schedule, error) {
		own := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return h.ShardOfSchedule(name) != s })
		if len(own) == 0 {
			return nil, nil
		}
		return s.Schedules(ctx, own)
	})
	all = slices.Concat(parts...)
	slices.SortFunc(all, func(a, b driver.Schedule) int {
		return slices.Index(names, a.Name) - slices.Index(names, b.Name)
	})
	return all, err
}
