package mailboxtest_test

import (
	"testing"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/driver/drivertest"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
	"github.com/mailboxmq/mailbox/mailboxtest"
	"github.com/mailboxmq/mailbox/membox"
)

// administered is a double with the administration of the backend behind it.
type administered struct {
	driver.Opener
	driver.Admin
	driver.Pinger
	behind *membox.Backend
}

func (a administered) Close() error { return a.behind.Close() }

// TestConformance runs the conformance suite on doubles without faults.
func TestConformance(t *testing.T) {
	volume.Repeats(t)
	for name, double := range map[string]func(driver.Opener) driver.Opener{
		"faults":    func(behind driver.Opener) driver.Opener { return mailboxtest.NewFaults(behind) },
		"collector": func(behind driver.Opener) driver.Opener { return mailboxtest.NewCollector(behind) },
	} {
		t.Run(name, func(t *testing.T) {
			drivertest.Run(t, drivertest.Backend{
				Open: func(testing.TB) driver.Opener {
					behind := membox.New(nil)
					return administered{double(behind), behind, behind, behind}
				},
				Virtual: true,
			})
		})
	}
}
