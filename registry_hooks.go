package mailbox

import (
	"context"
	"time"
)

// RegistryHooks are called for what a Registry does, for
// metrics and logs. Any of them may be nil and then costs nothing. They are
// called synchronously, from many goroutines at once. Passwords in identifiers
// are left out.
type RegistryHooks struct {
	// Resolved is called when an identifier was resolved, or could not be. The
	// share of events whose source is the cache is the hit rate.
	Resolved func(ctx context.Context, event ResolvedEvent)
	// Opened is called when the fallback was asked to open a queue.
	Opened func(ctx context.Context, event OpenedEvent)
	// Evicted is called when a queue that left the cache was closed.
	Evicted func(event EvictedEvent)
}

// ResolvedEvent is one resolution.
type ResolvedEvent struct {
	ID string
	// Source says where the queue was found. It is empty if it was not.
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

// EvictedEvent is a queue that left the cache.
type EvictedEvent struct {
	ID     string
	Reason EvictReason
	// Err is what closing it returned.
	Err error
}

// A Source says where an identifier led.
type Source string

// The sources.
const (
	SourceRegistered Source = "registered"
	SourceCached     Source = "cached"
	SourceOpened     Source = "opened"
	SourceSlot       Source = "slot"
)

// An EvictReason says why a queue left the cache.
type EvictReason string

// The reasons.
const (
	// EvictedForRoom: it was the least recently used of too many.
	EvictedForRoom EvictReason = "room"
	// EvictedAsIdle: it was not used for the cache's TTL.
	EvictedAsIdle EvictReason = "idle"
	// EvictedAsBroken: a call or a health check said that it is closed, gone
	// or out of reach.
	EvictedAsBroken EvictReason = "broken"
	// EvictedOnRequest: the program called Evict.
	EvictedOnRequest EvictReason = "request"
	// EvictedByClose: the registry was closed.
	EvictedByClose EvictReason = "close"
)

// RegistryStats count what a Registry holds.
type RegistryStats struct {
	Registered int
	// Cached are the queues in the cache.
	Cached int
	// InUse are those with calls under way, registered and evicted ones
	// included.
	InUse int
}
