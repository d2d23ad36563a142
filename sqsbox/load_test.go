package sqsbox_test

import (
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/driver/drivertest"
	"github.com/mailboxmq/mailbox/internal/testing/sqstest"
)

// FIFO queues are left out: they do not support delays, which the load contains.
func TestKeepsItsPromisesWhenEmulatorIsLoaded(t *testing.T) {
	t.Parallel()
	drivertest.RunConcurrent(t, drivertest.Backend{
		Open: func(t testing.TB) driver.Opener { return openSite(t, sqstest.Prefix()) },
		Tick: time.Second,
	}, drivertest.Load{Producers: 8, Consumers: 8, Messages: 300})
}
