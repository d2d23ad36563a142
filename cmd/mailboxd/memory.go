package main

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// smallMemory is the memory limit of the daemon while its live memory
	// is well below it: garbage is collected earlier instead.
	smallMemory = 352 << 20
	// memoryHeadroom is the memory limit in percent of the live memory
	// above that: enough to keep the collector cheap.
	memoryHeadroom = 140
	memoryEvery    = time.Second
)

// keepSmall adjusts the collector's memory limit to the live memory until ctx ends.
// Without it the heap grows to twice the largest live memory, and a
// client with large requests makes the daemon large. GOMEMLIMIT in the
// environment wins.
func keepSmall(ctx context.Context) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	ticker := time.NewTicker(memoryEvery)
	defer ticker.Stop()
	for {
		debug.SetMemoryLimit(memoryLimit(liveBytes()))
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// memoryLimit returns the limit for this much live memory.
func memoryLimit(live uint64) int64 {
	return max(smallMemory, int64(live)/100*memoryHeadroom)
}

// liveBytes returns the live memory after the last collection: heap and stacks.
func liveBytes() uint64 {
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
	metrics.Read(samples)
	total := uint64(0)
	for _, s := range samples {
		if s.Value.Kind() == metrics.KindUint64 {
			total += s.Value.Uint64()
		}
	}
	return total
}

const (
	collectEvery = 5 * time.Second
	// collectAbove is more than an idle daemon allocates in that time.
	collectAbove = 32 << 10
)

// collectOften collects garbage every few seconds while there is some, until ctx ends. With
// amnesia, a collection overwrites the messages that are gone.
func collectOften(ctx context.Context) {
	ticker := time.NewTicker(collectEvery)
	defer ticker.Stop()
	collected := allocatedBytes()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if allocatedBytes()-collected > collectAbove {
			runtime.GC()
			collected = allocatedBytes()
		}
	}
}

// allocatedBytes returns how much was allocated since the start.
func allocatedBytes() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
