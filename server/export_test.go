package server

import "github.com/mailboxmq/mailbox/driver"

// TopicDefaults are the defaults that a daemon with this configuration gives to its
// backend.
func TopicDefaults(c Config) driver.Config {
	c = c.complete()
	return c.topicDefaults()
}
