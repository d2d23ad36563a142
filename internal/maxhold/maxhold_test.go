package maxhold_test

import (
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/maxhold"
)

func TestStoredMultipleReadsAsTwelveHours(t *testing.T) {
	for n, want := range map[int64]time.Duration{
		0: 0, -1: driver.Off,
		1: 12 * time.Hour, 10: 12 * time.Hour, 1 << 16: 12 * time.Hour, 1 << 20: 12 * time.Hour,
		int64(2 * time.Millisecond): 2 * time.Millisecond, int64(time.Hour): time.Hour,
	} {
		if got := maxhold.Read(n); got != want {
			t.Errorf("max hold stored as %d: got %v, want %v", n, got, want)
		}
	}
	if err := (driver.Config{MaxHold: 1 << 20}).Validate(); err == nil {
		t.Error("the highest multiple is a valid time")
	}
}
