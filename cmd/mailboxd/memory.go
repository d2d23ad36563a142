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
	smallMemory = 400 << 20
	// memoryHeadroom is the memory limit in percent of the live memory
	// above that: enough to keep the collector cheap.
	memoryHeadroom = 130
	// leastGarbage is how much garbage the daemon may have before it collects. A daemon
	// with little live memory would collect many times a second without it.
	leastGarbage = 32 << 20
	memoryEvery  = time.Second
	// quietBytes is more than a daemon that has nothing to do allocates in memoryEvery.
	quietBytes = 64 << 10
	// leastRelease is the least garbage that is worth a collection.
	leastRelease = 4 << 20
)

// keepSmall adjusts the collector's memory limit and pace to the live memory until ctx ends.
// Without it the heap grows to twice the largest live memory, and a
// client with large requests makes the daemon large. When the daemon has become quiet,
// keepSmall gives the memory of its garbage back. With GOMEMLIMIT in the environment it
// does nothing, and with GOGC it leaves the pace alone.
func keepSmall(ctx context.Context) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	ticker := time.NewTicker(memoryEvery)
	defer ticker.Stop()
	k := keeper{paces: os.Getenv("GOGC") == ""}
	for {
		k.keep()
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// keeper does the work of keepSmall. last and released are figures of allocatedBytes.
type keeper struct {
	paces    bool   // it sets how much garbage there may be
	last     uint64 // when keep was last called
	released uint64 // when memory was last given back
}

// keep adjusts the memory limit, and gives memory back if the daemon has allocated little
// since the last call. What it allocated before that bounds how often, so that the cost is in
// proportion to the work that made it necessary. keep reports whether it gave memory back.
func (k *keeper) keep() bool {
	live, allocated := liveBytes(), allocatedBytes()
	debug.SetMemoryLimit(memoryLimit(live))
	if k.paces {
		debug.SetGCPercent(gcPercent(live))
	}
	quiet := allocated-k.last < quietBytes
	k.last = allocated
	if !quiet || allocated-k.released < max(leastRelease, live/8) {
		return false
	}
	debug.FreeOSMemory()
	k.released = allocated
	return true
}

// memoryLimit returns the limit for this much live memory.
func memoryLimit(live uint64) int64 {
	return max(smallMemory, int64(live)*memoryHeadroom/100)
}

// gcPercent returns the pace for this much live memory: the garbage at which the collector
// starts, in percent of it.
func gcPercent(live uint64) int {
	return max(100, int(leastGarbage*100/max(live, 1<<20)))
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
