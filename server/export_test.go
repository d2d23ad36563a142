package server

import "github.com/mailboxmq/mailbox/driver"

// QueueDefaults returns the defaults that a daemon with this configuration gives to its
// backend.
func QueueDefaults(c Config) driver.Config {
	c = c.complete()
	return c.queueDefaults()
}

// Settings returns all settings.
func Settings() []setting { return allSettings() }
