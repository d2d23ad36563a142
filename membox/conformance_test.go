package membox_test

import (
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/driver/drivertest"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
	"github.com/mailboxmq/mailbox/membox"
)

var backend = drivertest.Backend{
	Open:          func(testing.TB) driver.Opener { return membox.New(nil) }, // the suite closes it
	OpenWithClock: func(_ testing.TB, wall func() time.Time) driver.Opener { return membox.NewWithClock(wall) },
	Virtual:       true,
}

func TestConformance(t *testing.T) {
	volume.Repeats(t)
	drivertest.Run(t, backend)
}

func BenchmarkConformance(b *testing.B) { drivertest.Benchmark(b, backend) }
