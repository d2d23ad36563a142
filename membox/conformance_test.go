package membox_test

import (
	"testing"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/driver/drivertest"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
	"github.com/mailboxmq/mailbox/membox"
)

var backend = drivertest.Backend{
	Open:    func(testing.TB) driver.Opener { return membox.New(nil) }, // the suite closes it
	Virtual: true,
}

func TestConformance(t *testing.T) {
	volume.Repeats(t)
	drivertest.Run(t, backend)
}

func BenchmarkConformance(b *testing.B) { drivertest.Benchmark(b, backend) }
