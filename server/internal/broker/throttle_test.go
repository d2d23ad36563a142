package broker_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// TestThrottleNeedsItsOwnOperation: neither admin nor * allows it (FLOW-6).
func TestThrottleNeedsItsOwnOperation(t *testing.T) {
	b := memory(t, broker.Limits{})
	admin := b.as("", capability.Operations(capability.OpAdmin))
	for name, config := range map[string]driver.Config{"orders": {FairGroups: true}, "plain": {}} {
		if err := admin.Configure(t.Context(), name, config); err != nil {
			t.Fatal(err)
		}
	}
	for what, without := range map[string]broker.Caller{"admin": admin, "*": b.as("", capability.AllOperations())} {
		expectCode(t, without.Throttle(t.Context(), "orders", "g", time.Minute), driver.ErrForbidden, "a throttle with a token for "+what)
	}
	with := b.as("", capability.Operations(capability.OpThrottle))
	if err := with.Throttle(t.Context(), "orders", "g", time.Minute); err != nil {
		t.Errorf("a throttle with a token for throttle: %v", err)
	}
	expectCode(t, with.Throttle(t.Context(), "plain", "g", time.Minute), driver.ErrUnsupported, "a throttle of a queue without groups")
	expectCode(t, with.Throttle(t.Context(), "orders", "g", 25*time.Hour), driver.ErrInvalid, "a throttle of more than a day")
	elsewhere := b.as("", capability.Operations(capability.OpThrottle), capability.Queues(capability.Queue("others")))
	expectCode(t, elsewhere.Throttle(t.Context(), "orders", "g", 0), driver.ErrForbidden, "a throttle with a token for another queue")
}

// TestThrottledMessagesAreMeasured: the gauge has the ready messages of groups at their limit.
func TestThrottledMessagesAreMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory(t, broker.Limits{})
		c := b.as("", capability.EveryOperation())
		b.configure(c, "orders", driver.Config{FairGroups: true, Shards: 2})
		for _, group := range []string{"g", "g", "h"} {
			if _, err := c.Send(t.Context(), "orders", []broker.Outgoing{{Outgoing: driver.Outgoing{Group: group}}}); err != nil {
				t.Fatal(err)
			}
		}
		for _, step := range []struct {
			wait time.Duration
			want float64
		}{{time.Hour, 2}, {0, 0}} {
			if err := c.Throttle(t.Context(), "orders", "g", step.wait); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second)
			if got := b.figure("mailbox_queue_throttled", "queue=orders"); got != step.want {
				t.Errorf("throttled for %v: mailbox_queue_throttled is %v, want %v", step.wait, got, step.want)
			}
		}
	})
}
