package driver

import "time"

// Usage is how much of its bounds a queue uses.
type Usage struct {
	// Shards are the shards of the queue, in order.
	Shards []ShardUsage
	// DedupKeys is how many dedup keys are remembered.
	DedupKeys int
	// UniqueKeys is how many unique keys messages hold.
	UniqueKeys int
}

// ShardUsage is how much of its part of the bounds a shard uses.
type ShardUsage struct {
	Stats
	// Bytes are those of the bodies that Config.MaxBytes bounds.
	Bytes int
	// OldestReady is the age that Config.RetainReady bounds, of the oldest
	// message that waits. It is 0 without such a bound.
	OldestReady time.Duration
	// OldestDead is the time since the oldest dead letter died.
	OldestDead time.Duration
}
