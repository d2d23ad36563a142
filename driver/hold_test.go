package driver_test

import (
	"errors"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// VIS-5: never less than ten times the visibility asked for.
func TestHoldBoundIsAtLeastTenVisibilities(t *testing.T) {
	for _, test := range []struct{ maxHold, visibility, want time.Duration }{
		{0, time.Hour, 0},
		{driver.Off, time.Hour, 0},
		{12 * time.Hour, 30 * time.Second, 12 * time.Hour},
		{12 * time.Hour, 2 * time.Hour, 20 * time.Hour},
		{time.Second, 0, time.Second},
		{1<<63 - 1, time.Hour, 1 << 62},
	} {
		if got := driver.HoldBound(test.maxHold, test.visibility); got != test.want {
			t.Errorf("hold bound of %v with visibility %v: got %v, want %v", test.maxHold, test.visibility, got, test.want)
		}
	}
}

func TestConfigRefusesMultipleAsMaxHold(t *testing.T) {
	for _, hold := range []time.Duration{1, 10, 1 << 20, driver.MinMaxHold - 1} {
		if err := (driver.Config{MaxHold: hold}).Validate(); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("MaxHold %d: got %v, want ErrInvalid", hold, err)
		}
	}
	if err := (driver.Config{MaxHold: driver.MinMaxHold}).Validate(); err != nil {
		t.Errorf("least MaxHold: got %v", err)
	}
}
