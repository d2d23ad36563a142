package worker_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/worker"
)

// TestThrottleLetsGroupWait: a handler that returns Throttle lets its group wait, and no other;
// the delivery does not count. Without limits by group the message waits alone.
func TestThrottleLetsGroupWait(t *testing.T) {
	for name, c := range map[string]struct {
		config driver.Config
		want   []string // of the group, with the seconds when they are handled again
	}{
		"fair groups":   {driver.Config{FairGroups: true, MaxDeliveries: 1}, []string{"a0", "b0", "a60", "a60"}},
		"strict groups": {driver.Config{StrictGroups: true, MaxDeliveries: 1}, []string{"a0", "b0", "a60", "a60"}},
		"no limits":     {driver.Config{MaxDeliveries: 1}, []string{"a0", "a0", "b0", "a60"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				backend := membox.New(nil)
				if err := backend.ConfigureQueue(ctx, "calls", c.config); err != nil {
					t.Fatal(err)
				}
				calls, err := mailbox.Open[string](ctx, backend, "calls", nil)
				if err != nil {
					t.Fatal(err)
				}
				for _, group := range []string{"a", "a", "b"} {
					if _, err := calls.Send(ctx, "call", mailbox.WithGroup(group)); err != nil {
						t.Fatal(err)
					}
				}
				start := time.Now()
				var handled []string
				first := true
				done := make(chan error, 1)
				loop := worker.New(calls, func(_ context.Context, m *mailbox.Message[string]) error {
					handled = append(handled, m.Group+time.Since(start).Truncate(time.Second).String())
					if first {
						first = false
						return worker.Throttle(time.Minute, errors.New("busy"))
					}
					return nil
				}, nil)
				go func() { done <- loop.Run(ctx) }()
				time.Sleep(2 * time.Minute)
				cancel()
				<-done
				var want []string
				for _, text := range c.want {
					seconds, _ := time.ParseDuration(text[1:] + "s")
					want = append(want, text[:1]+seconds.String())
				}
				if len(handled) != len(want) {
					t.Fatalf("got %q, want %q", handled, want)
				}
				for i := range want {
					if handled[i] != want[i] {
						t.Errorf("got %q, want %q", handled, want)
						break
					}
				}
				stats, err := calls.Stats(t.Context())
				if err != nil || stats.Waiting() != 0 || stats.Dead != 0 {
					t.Errorf("got %+v, %v; want an empty queue", stats, err)
				}
				if err := calls.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestThrottleSaysWhy: the error of Throttle has the time and the cause.
func TestThrottleSaysWhy(t *testing.T) {
	cause := errors.New("busy")
	err := worker.Throttle(time.Minute, cause)
	if !errors.Is(err, cause) || err.Error() != "throttle for 1m0s: busy" {
		t.Errorf("got %v", err)
	}
}
