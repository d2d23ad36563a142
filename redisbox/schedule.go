package redisbox

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"

	"github.com/redis/rueidis"

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

// ScheduledQueues lists the queues that have schedules, in the order of their names; see
// driver.ScheduleLister. It blocks for a round trip per hundred queues or so. Codes:
// ErrUnavailable, ErrClosed.
func (b *Backend) ScheduledQueues(ctx context.Context) iter.Seq2[driver.ScheduledQueue, error] {
	const op = "list schedules"
	return func(yield func(driver.ScheduledQueue, error) bool) {
		names, err := b.names(ctx)
		for page := range slices.Chunk(names, namesPage) {
			var counts []int
			if err == nil {
				counts, err = b.scheduleCounts(ctx, page)
			}
			if err != nil {
				break
			}
			for i, n := range counts {
				if n > 0 && !yield(driver.ScheduledQueue{Name: page[i], Schedules: n}, nil) {
					return
				}
			}
		}
		if err != nil {
			yield(driver.ScheduledQueue{}, driver.Annotate(err, "", op))
		}
	}
}

// scheduleCounts returns how many schedules each of these queues has.
func (b *Backend) scheduleCounts(ctx context.Context, names []string) ([]int, error) {
	b.mu.Lock()
	closed := b.closed
	b.mu.Unlock()
	if closed {
		return nil, &driver.Error{Code: driver.ErrClosed}
	}
	return shard.Request(ctx, b.server, func(ctx context.Context) ([]int, error) {
		counts := make([]int, len(names))
		var commands []rueidis.Completed
		for _, name := range names {
			commands = append(commands, b.server.Client.B().Hmget().Key(shard.Keys(b.options.Prefix, name, 0)[0]).Field("schedules", "shards").Build())
		}
		var others []rueidis.Completed // for the other shards of queues that have some
		var owners []int
		for i, result := range b.server.Client.DoMulti(ctx, commands...) {
			found, err := result.ToArray()
			if err != nil || len(found) != 2 {
				return nil, shard.UnreadableAnswer(err)
			}
			counts[i] = numberIn(&found[0])
			for n := 1; n < numberIn(&found[1]); n++ {
				others = append(others, b.server.Client.B().Hmget().Key(shard.Keys(b.options.Prefix, names[i], n)[0]).Field("schedules").Build())
				owners = append(owners, i)
			}
		}
		for i, result := range b.server.Client.DoMulti(ctx, others...) {
			found, err := result.ToArray()
			if err != nil || len(found) != 1 {
				return nil, shard.UnreadableAnswer(err)
			}
			counts[owners[i]] += numberIn(&found[0])
		}
		return counts, nil
	})
}

// numberIn returns the number in a field, or 0 if there is none.
func numberIn(field *rueidis.RedisMessage) int {
	text, err := field.ToString()
	if err != nil {
		return 0
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0
	}
	return n
}
