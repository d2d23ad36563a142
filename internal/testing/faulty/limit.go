package faulty

import (
	"context"
	"strings"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var limitFaults = []Saboteur{
	{Name: "ignores-group-limits", Breaks: "FLOW-6",
		What: "Limits by group are accepted, and have no effect.",
		on:   hooks{config: func(c *driver.Config) { set(c.GroupLimits != "", &c.GroupLimits, "none") }}},
	{Name: "ignores-limits-of-single-groups", Breaks: "FLOW-6",
		What: "Every group has the limit of the queue.",
		on:   hooks{config: func(c *driver.Config) { c.GroupLimits, _, _ = strings.Cut(c.GroupLimits, ";") }}},
	{Name: "ignores-rates", Breaks: "FLOW-6",
		What: "Groups are limited by what is in flight only.",
		on: hooks{config: func(c *driver.Config) {
			set(strings.Contains(c.GroupLimits, "rate"), &c.GroupLimits, "none")
		}}},
	{Name: "limits-have-no-burst", Breaks: "FLOW-6",
		What: "A group gets its deliveries one by one.",
		on:   alterLimits("burst=3", "burst=1")},
	{Name: "lets-groups-exceed-their-limit", Breaks: "FLOW-6",
		What: "A group has one message more in flight than it may.",
		on:   alterLimits("in-flight=1", "in-flight=2")},
	{Name: "counts-no-throttled-messages", Breaks: "FLOW-6",
		What: "Stats does not count messages of groups at their limit.",
		on:   hooks{stats: alterStats(func(_ *queue, stats *driver.Stats) { stats.Throttled = 0 })}},
	{Name: "throttled-messages-are-not-ready", Breaks: "FLOW-6",
		What: "Messages of groups at their limit are not counted as ready.",
		on:   hooks{stats: alterStats(func(_ *queue, stats *driver.Stats) { stats.Ready -= stats.Throttled })}},
	{Name: "a-group-at-its-limit-holds-up-all", Breaks: "FLOW-6",
		What: "While a group is at its limit, no message is delivered.",
		on: hooks{receive: func(q *queue, ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
			if stats, err := q.Stats(ctx); err == nil && stats.Throttled > 0 {
				return nil, nil
			}
			return q.Receive(ctx, req)
		}}},
	{Name: "a-release-keeps-its-token", Breaks: "FLOW-6",
		What: "A delivery that is given back does not give its token back.",
		on: hooks{nack: alterEach((*queue).Nack, func(q *queue, nack *driver.Nack) {
			set(strings.Contains(q.config().GroupLimits, "rate"), &nack.Mode, driver.NackFailed)
		})}},
	{Name: "forgets-to-throttle", Breaks: "FLOW-6",
		What: "Throttling a group has no effect.",
		on:   hooks{throttle: func(*queue, context.Context, string, time.Duration) error { return nil }}},
	{Name: "throttles-half-as-long", Breaks: "FLOW-6",
		What: "A group is throttled for half of the time.",
		on: hooks{throttle: func(q *queue, ctx context.Context, group string, wait time.Duration) error {
			return q.Throttle(ctx, group, wait/2)
		}}},
	{Name: "a-throttle-cannot-be-ended", Breaks: "FLOW-6",
		What: "A throttle of 0 has no effect.",
		on: hooks{throttle: func(q *queue, ctx context.Context, group string, wait time.Duration) error {
			if wait == 0 {
				return nil
			}
			return q.Throttle(ctx, group, wait)
		}}},
	{Name: "the-last-throttle-wins", Breaks: "FLOW-6",
		What: "A throttle shortens an earlier one.",
		on: hooks{throttle: func(q *queue, ctx context.Context, group string, wait time.Duration) error {
			if err := q.Throttle(ctx, group, 0); err != nil {
				return err
			}
			return q.Throttle(ctx, group, wait)
		}}},
	{Name: "throttles-for-any-time", Breaks: "FLOW-6",
		What: "A throttle that is too long is cut.",
		on: hooks{throttle: func(q *queue, ctx context.Context, group string, wait time.Duration) error {
			return q.Throttle(ctx, group, min(wait, driver.MaxThrottle))
		}}},
	{Name: "a-purge-ends-throttles", Breaks: "FLOW-6",
		What: "Purging a queue ends the throttles of its groups.",
		on: hooks{purge: func(q *queue, ctx context.Context) (int, error) {
			_ = q.Throttle(ctx, "g", 0) // not all can
			return q.Purge(ctx)
		}}},
	{Name: "forgets-throttles-on-restart", Breaks: "FLOW-6",
		What: "After a restart no group is throttled.",
		restart: func(q *queue, ctx context.Context) error {
			if q.Traits().GroupLimits {
				return q.Throttle(ctx, "g", 0)
			}
			return nil
		}},
}

// alterLimits replaces a part of the limits of queues.
func alterLimits(old, replacement string) hooks {
	return hooks{config: func(c *driver.Config) { c.GroupLimits = strings.ReplaceAll(c.GroupLimits, old, replacement) }}
}
