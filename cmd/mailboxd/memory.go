package main

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// smallMemory is what the daemon's memory is kept below while what it needs
	// leaves room for that: garbage is collected earlier instead.
	smallMemory = 352 << 20
	// memoryHeadroom is how much memory there may be, in percent of what is in use,
	// beyond that: as much as the collector needs to be cheap.
	memoryHeadroom = 140
	memoryEvery    = time.Second
)

// keepSmall moves the collector's memory limit with what is in use until ctx ends.
// Without it the heap grows to twice of what is in use at the worst moment, and a
// client that asks for much at once makes the daemon large. GOMEMLIMIT in the
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

// memoryLimit is the limit for this much memory in use.
func memoryLimit(live uint64) int64 {
	return max(smallMemory, int64(live)/100*memoryHeadroom)
}

// liveBytes is what was in use after the last collection: heap and stacks.
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
