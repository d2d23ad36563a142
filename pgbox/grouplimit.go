package pgbox

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// limitColumns returns the limits of a valid configuration as the function set_limits takes them: the
// groups, of which an empty one stands for all, and three numbers for each.
func limitColumns(config driver.Config) (groups [][]byte, numbers []int64) {
	groups, numbers = [][]byte{}, []int64{}
	if config.GroupLimits == "" {
		return groups, numbers
	}
	all, byGroup, _ := config.ParseGroupLimits()
	add := func(group string, limit driver.GroupLimit) {
		spacing := int64(0)
		if limit.Rate > 0 {
			spacing = max(int64(math.Ceil(1e6/limit.Rate)), 1) // rounded up: never faster than the rate
		}
		groups = append(groups, []byte(group))
		numbers = append(numbers, int64(limit.MaxInFlight), spacing, int64(max(limit.Burst-1, 0))*spacing)
	}
	add("", all)
	for _, group := range slices.Sorted(maps.Keys(byGroup)) {
		add(group, byGroup[group])
	}
	return groups, numbers
}

// maxThrottled is how many groups of a queue the function throttle accepts at a time.
const maxThrottled = 1000

// Throttle delivers no message of a group for a time, in all processes; see driver.Queue. It blocks
// for a round trip.
func (h *handle) Throttle(ctx context.Context, group string, wait time.Duration) error {
	const op = "throttle"
	if err := h.check(ctx, op); err != nil {
		return err
	}
	if !h.Traits().GroupLimits {
		return h.failure(driver.ErrUnsupported, op)
	}
	if err := driver.CheckThrottle(group, wait); err != nil {
		return h.named(err, op)
	}
	for {
		var first int64
		var code, woken, endings *string
		var version *int64
		r := request{
			sql:  "SELECT * FROM mailbox.throttle($1, $2, $3, $4, $5)",
			args: []any{h.shardOf(group), []byte(group), micros(wait), false}, wide: 4, repeatable: true,
		}
		if err := h.call(ctx, r, one(&first, &code, &version, &woken, &endings)); err != nil {
			return h.outcome(err, op)
		}
		h.backend.happened(ctx, endings, woken)
		switch {
		case code == nil:
			continue
		case *code == "f":
			return &driver.Error{
				Code: driver.ErrFull, Op: op, Queue: h.name, Field: "group", RetryAfter: time.Duration(first) * time.Microsecond,
				Detail: fmt.Sprintf("%d groups of the queue are throttled, and no more can be at a time", maxThrottled),
			}
		}
		h.note(ctx, *version)
		h.queue.changed(ctx, h.waiters.Len())
		return nil
	}
}
