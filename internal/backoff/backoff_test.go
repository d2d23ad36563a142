package backoff_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/backoff"
)

func TestPausesGrowToTheirCeiling(t *testing.T) {
	for n, most := range map[int]time.Duration{
		-1: backoff.Shortest, 0: backoff.Shortest, 1: backoff.Shortest, 2: 2 * backoff.Shortest,
		4: 8 * backoff.Shortest, 8: backoff.Longest, 100: backoff.Longest, 1 << 40: backoff.Longest,
	} {
		shortest, longest := time.Hour, time.Duration(0)
		for range 1000 {
			wait := backoff.AfterError(n, driver.ErrUnavailable)
			shortest, longest = min(shortest, wait), max(longest, wait)
		}
		if shortest < most/2 || longest > most {
			t.Errorf("pauses after error %d are %v to %v, want %v to %v", n, shortest, longest, most/2, most)
		}
		if longest-shortest < most/4 {
			t.Errorf("pauses after error %d are %v to %v: all who wait come back together", n, shortest, longest)
		}
	}
}

func TestHintsAreFollowedWithinReason(t *testing.T) {
	for hint, want := range map[time.Duration]time.Duration{20 * time.Second: 20 * time.Second, 24 * time.Hour: 30 * time.Second} {
		if got := backoff.AfterError(1, &driver.Error{Code: driver.ErrFull, RetryAfter: hint}); got != want {
			t.Errorf("a hint of %v makes a pause of %v, want %v", hint, got, want)
		}
	}
}

func TestPauseEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		_ = backoff.Pause(t.Context(), time.Minute)
		if took := time.Since(began); took != time.Minute {
			t.Errorf("it took %v", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_ = backoff.Pause(ctx, time.Hour)
		if took := time.Since(began); took != time.Minute+time.Second {
			t.Errorf("it took %v", took)
		}
	})
}
