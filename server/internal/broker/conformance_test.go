package broker_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/driver/drivertest"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
	"github.com/mailboxmq/mailbox/membox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func brokerOverMemory(tenant string) drivertest.Backend {
	return drivertest.Backend{
		Open:    func(t testing.TB) driver.Opener { return newDirect(t, membox.New(nil), tenant) },
		Virtual: true,
	}
}

// TestConformance runs the whole suite through the broker, without a wire.
func TestConformance(t *testing.T) {
	volume.Repeats(t)
	drivertest.Run(t, brokerOverMemory(""))
}

func TestAgreesWithTheModel(t *testing.T) {
	volume.Repeats(t)
	drivertest.RunRandom(t, brokerOverMemory("acme"), volume.Of(5_000))
}

func TestKeepsItsPromisesUnderLoad(t *testing.T) {
	volume.Repeats(t)
	drivertest.RunConcurrent(t, brokerOverMemory(""), drivertest.Load{
		Config: driver.Config{MaxDeliveries: 3}, Messages: volume.Of(10_000),
	})
}
