package drivertest

import (
	"github.com/mailboxmq/mailbox/driver"
)

// aging is a queue whose messages may wait for two ticks.
func aging(e *env) driver.Config {
	return driver.Config{RetainReady: driver.Retention{Age: 2 * e.tick}}
}
