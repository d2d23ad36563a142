package sabotage

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/driver/drivertest"
)

// limitFaults are faults of limits by group that clients notice: they check the time of a throttle
// themselves. The faults of backends alone are in package drivertest.
var limitFaults = []struct {
	name  string
	spoil limits
}{
	{"ignores-group-limits", limits{config: func(c *driver.Config) {
		if c.GroupLimits != "" {
			c.GroupLimits = "none"
		}
	}}},
	{"ignores-limits-of-single-groups", limits{config: func(c *driver.Config) { c.GroupLimits, _, _ = strings.Cut(c.GroupLimits, ";") }}},
	{"counts-no-throttled-messages", limits{stats: func(s *driver.Stats) { s.Throttled = 0 }}},
	{"throttled-messages-are-not-ready", limits{stats: func(s *driver.Stats) { s.Ready -= s.Throttled }}},
	{"forgets-to-throttle", limits{throttle: func(driver.Queue, context.Context, string, time.Duration) error { return nil }}},
	{"throttles-half-as-long", limits{throttle: func(q driver.Queue, ctx context.Context, group string, wait time.Duration) error {
		return q.Throttle(ctx, group, wait/2)
	}}},
	{"a-throttle-cannot-be-ended", limits{throttle: func(q driver.Queue, ctx context.Context, group string, wait time.Duration) error {
		if wait == 0 {
			return nil
		}
		return q.Throttle(ctx, group, wait)
	}}},
}

// ExpectLimitsCaught checks that the suite sees faults of limits by group through a wire.
// backend.Open must pass the backend of its daemon through spoil.
func ExpectLimitsCaught(t *testing.T, backend func(spoil func(Backend) Backend) drivertest.Backend) {
	t.Helper()
	faults := make([]Fault, len(limitFaults))
	for i := range limitFaults {
		faults[i] = Fault{limitFaults[i].name, "FLOW-6"}
	}
	ExpectCaught(t, faults, func(fault int) {
		drivertest.Run(t, backend(func(inner Backend) Backend { return &limitedBackend{inner, &limitFaults[fault].spoil} }))
	})
}

// limits is a fault. Functions that are nil change nothing.
type limits struct {
	config   func(*driver.Config)
	stats    func(*driver.Stats)
	throttle func(q driver.Queue, ctx context.Context, group string, wait time.Duration) error
}

// limitedBackend is a backend with a fault.
type limitedBackend struct {
	Backend
	fault *limits
}

func (b *limitedBackend) ConfigureQueue(ctx context.Context, name string, config driver.Config) error {
	if b.fault.config != nil && config.Validate() == nil {
		b.fault.config(&config)
	}
	return b.Backend.ConfigureQueue(ctx, name, config)
}

func (b *limitedBackend) OpenQueue(ctx context.Context, name string) (driver.Queue, error) {
	q, err := b.Backend.OpenQueue(ctx, name)
	if err != nil {
		return nil, err
	}
	return &limitedQueue{q, b.fault}, nil
}

type limitedQueue struct {
	driver.Queue
	fault *limits
}

func (q *limitedQueue) Throttle(ctx context.Context, group string, wait time.Duration) error {
	if q.fault.throttle != nil {
		return q.fault.throttle(q.Queue, ctx, group, wait)
	}
	return q.Queue.Throttle(ctx, group, wait)
}

func (q *limitedQueue) Stats(ctx context.Context) (driver.Stats, error) {
	stats, err := q.Queue.Stats(ctx)
	if q.fault.stats != nil {
		q.fault.stats(&stats)
	}
	return stats, err
}
