package engine

import (
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// rules are what a shard needs of its queue's configuration. There are many shards,
// and most of them rest, so the rest of it is left out.
type rules struct {
	MaxDeliveries, MaxMessages, MaxBytes, MaxInFlight, MaxDead int
	MaxHold                                                    time.Duration
	RetainReady, RetainDead                                    driver.Retention
	StrictGroups, FairGroups, DropExpired                      bool
}

func rulesOf(config *driver.Config) rules {
	return rules{
		MaxDeliveries: config.MaxDeliveries, MaxMessages: config.MaxMessages, MaxBytes: config.MaxBytes,
		MaxInFlight: config.MaxInFlight, MaxDead: config.MaxDead, MaxHold: config.MaxHold,
		RetainReady: config.RetainReady, RetainDead: config.RetainDead,
		StrictGroups: config.StrictGroups, FairGroups: config.FairGroups, DropExpired: config.DropExpired,
	}
}
