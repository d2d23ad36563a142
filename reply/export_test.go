package reply

import "github.com/mailboxmq/mailbox/driver"

// Names for tests of the package as others see it.
const (
	DefaultTTL = defaultTTL
)

// Len returns how many slots a store in memory or on disk has, in any state.
func Len(store driver.ReplyStore) int { return store.(interface{ Len() int }).Len() }
