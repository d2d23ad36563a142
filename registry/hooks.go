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
	// with the source "cached" is the hit rate.
	Resolved func(ctx context.Context, event ResolvedEvent)
	// Opened is called for each attempt of the fallback to open a queue.
	Opened func(ctx context.Context, event OpenedEvent)
	// Evicted is called after a queue was evicted from the cache and closed.
	Evicted func(event EvictedEvent)
}

// ResolvedEvent is one resolution.
type ResolvedEvent struct {
	ID string
	// Source says where the queue was found: "registered", "cached", "opened" or, for
	// reply addresses, "slot"; empty if it was not.
	Source   string
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
	ID string
	// Reason is "room" if the cache was full and the queue the least recently used, "idle"
	// after the cache's TTL, "broken" if a call or a health check found it closed, deleted
	// or unavailable, "request" after Evict, and "close".
	Reason string
	// Err is the error of closing it.
	Err error
}

// Where a registry found a queue.
const (
	sourceRegistered = "registered"
	sourceCached     = "cached"
	sourceOpened     = "opened"
	sourceSlot       = "slot"
)

// Why a queue was evicted.
const (
	evictedForRoom   = "room"
	evictedAsIdle    = "idle"
	evictedAsBroken  = "broken"
	evictedOnRequest = "request"
	evictedByClose   = "close"
)

// Stats count the queues of a Registry.
type Stats struct {
	Registered int
	// Cached are the queues in the cache.
	Cached int
	// InUse are the queues with calls under way, including registered and evicted ones.
	InUse int
}
