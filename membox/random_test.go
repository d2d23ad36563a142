package membox_test

import (
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/driver/drivertest"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

// TestAgreesWithTheModel does ten million operations in a soak.
func TestAgreesWithTheModel(t *testing.T) {
	volume.Repeats(t)
	drivertest.RunRandom(t, backend, volume.Of(200_000))
}

func TestAgreesWithTheModelOnTheRealClock(t *testing.T) {
	volume.Repeats(t)
	realTime := backend
	realTime.Virtual = false
	drivertest.RunRandom(t, realTime, volume.Of(20_000))
}

func TestKeepsItsPromisesUnderLoad(t *testing.T) {
	volume.Repeats(t)
	for _, test := range []struct {
		name   string
		config driver.Config
	}{
		{"defaults", driver.Config{}},
		{"strict groups", driver.Config{StrictGroups: true}},
		{"fair groups", driver.Config{FairGroups: true}},
		{"several shards", driver.Config{Shards: 4}},
		{"several shards of strict groups", driver.Config{Shards: 4, StrictGroups: true}},
		{"tight bounds", driver.Config{MaxMessages: 500, MaxInFlight: 50, MaxHold: 20 * time.Second}},
		{"few deliveries", driver.Config{MaxDeliveries: 3, MaxDead: 100}},
		{"a short memory", driver.Config{DedupWindow: 5 * time.Second}},
	} {
		t.Run(test.name, func(t *testing.T) {
			drivertest.RunConcurrent(t, backend, drivertest.Load{Config: test.config, Messages: volume.Of(10_000)})
		})
	}
}
