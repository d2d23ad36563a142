package broker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// hoard receives from a queue until that is refused, and returns how many messages
// it got and the refusal.
func (b *bench) hoard(c broker.Caller, topic string, wait time.Duration) (held int, refusal error) {
	b.t.Helper()
	for range 1000 {
		got, err := c.Receive(b.t.Context(), topic, driver.ReceiveRequest{Max: 10, Visibility: 12 * time.Hour, Wait: wait})
		if held += len(got); err != nil {
			return held, err
		}
		if len(got) == 0 {
			b.t.Fatal("there were not enough messages")
		}
	}
	b.t.Fatal("it was never refused")
	return held, nil
}

func TestTenantWithLongLeasesLeavesOthersRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory(t, broker.Limits{MaxInFlight: 80})
		hostile, sibling, victim := b.as("hostile"), b.as("hostile"), b.as("victim")
		for i := range 100 {
			b.send(hostile, "jobs", fmt.Sprint(i))
			b.send(victim, "jobs", fmt.Sprint(i))
		}
		held, refusal := b.hoard(hostile, "jobs", 0)
		if held > 70 {
			t.Errorf("one tenant alone took %d of 80", held)
		}
		expectCode(t, refusal, driver.ErrFull, "a tenant that has used up its share")
		if e, ok := errors.AsType[*driver.Error](refusal); !ok || !strings.Contains(e.Detail, "share of") ||
			!strings.Contains(e.Detail, "global_inflight 80") || e.RetryAfter <= 0 {
			t.Errorf("the refusal does not name the share: %v", refusal)
		}
		if got := b.receive(sibling, "jobs", 1); len(got) != 1 {
			t.Error("another token of the same tenant gets nothing")
		}
		for range 300 { // it takes its turn, however long the other holds what it has
			got := b.receive(victim, "jobs", 1)
			if len(got) != 1 {
				t.Fatal("another tenant gets nothing")
			}
			if err := victim.Ack(t.Context(), "jobs", []string{got[0].Receipt}); err != nil {
				t.Fatal(err)
			}
			b.send(victim, "jobs", "x")
		}
	})
}

func TestWaitingReceivesAreDividedAmongTenants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory(t, broker.Limits{MaxWaiting: 16})
		hostile, victim := b.as("hostile"), b.as("victim")
		b.send(hostile, "jobs", "x")
		b.send(victim, "jobs", "x")
		b.receive(hostile, "jobs", 1)
		b.receive(victim, "jobs", 1)
		ctx, cancel := context.WithCancel(t.Context())
		var waiting sync.WaitGroup
		for range 100 {
			waiting.Go(func() {
				_, _ = hostile.Receive(ctx, "jobs", driver.ReceiveRequest{Max: 1, Visibility: time.Minute, Wait: time.Hour})
			})
		}
		synctest.Wait()
		if _, err := victim.Receive(ctx, "jobs", driver.ReceiveRequest{Max: 1, Visibility: time.Minute, Wait: time.Second}); err != nil {
			t.Errorf("a receive that waits beside a hundred of another tenant: %v", err)
		}
		cancel()
		waiting.Wait()
		for _, s := range b.Shares() {
			if s.Resource == "waiting receives" && s.Used != 0 {
				t.Errorf("%d receives count as waiting", s.Used)
			}
		}
	})
}
