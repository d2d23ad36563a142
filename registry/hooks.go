package registry

import (
	"context"
	"time"
)

// Hooks are functions that a Registry calls, for metrics and logs. A nil hook
// costs nothing. They are called synchronously, from many goroutines at once. Identifiers
// are without passwords.
type Hooks struct {
	// Resolved is called for each attempt to resolve an identifier. The share of events
	// with SourceCached is the hit rate.
	Resolved func(ctx context.Context, event ResolvedEvent)
	// Opened is called for each attempt of the fallback to open a queue.
	Opened func(ctx context.Context, event OpenedEvent)
	// Evicted is called after a queue was evicted from the cache and closed.
	Evicted func(event EvictedEvent)
}

// ResolvedEvent is one resolution.
type ResolvedEvent struct {
	ID string
	// Source says where the queue was found; empty if it was not.
	Source   Source
	Duration time.Duration
	Err      error
}

// OpenedEvent is one call of the fallback.
type OpenedEvent struct {
	ID       string
	Duration time.Duration
	Err      error
}

// EvictedEvent is the eviction of a queue from the cache.
type EvictedEvent struct {
	ID     string
	Reason EvictReason
	// Err is the error of closing it.
	Err error
}

// A Source says where a registry found a queue.
type Source string

// The sources.
const (
	SourceRegistered Source = "registered"
	SourceCached     Source = "cached"
	SourceOpened     Source = "opened"
	SourceSlot       Source = "slot"
)

// An EvictReason says why a queue was evicted.
type EvictReason string

// The reasons.
const (
	// EvictedForRoom: the cache was full, and it was the least recently used.
	EvictedForRoom EvictReason = "room"
	// EvictedAsIdle: it was not used for the cache's TTL.
	EvictedAsIdle EvictReason = "idle"
	// EvictedAsBroken: a call or a health check found it closed, deleted or unavailable.
	EvictedAsBroken EvictReason = "broken"
	// EvictedOnRequest: the program called Evict.
	EvictedOnRequest EvictReason = "request"
	// EvictedByClose: the registry was closed.
	EvictedByClose EvictReason = "close"
)

// Stats count the queues of a Registry.
type Stats struct {
	Registered int
	// Cached are the queues in the cache.
	Cached int
	// InUse are the queues with calls under way, including registered and evicted ones.
	InUse int
}
