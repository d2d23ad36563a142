package main

import (
	"runtime/debug"
	"runtime/metrics"
	"testing"
)

// residentHeap returns the bytes of the heap that the system has not got back.
func residentHeap() uint64 {
	samples := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/unused:bytes"}, {Name: "/memory/classes/heap/free:bytes"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64() + samples[1].Value.Uint64() + samples[2].Value.Uint64()
}

var garbage []byte

func TestQuietDaemonReleasesItsGarbage(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(-1))
	var k keeper
	for k.keep() { // what other tests have left
	}
	const size = 64 << 20
	garbage = make([]byte, size)
	for i := range garbage {
		garbage[i] = 1
	}
	busy := residentHeap()
	garbage = nil
	if k.keep() {
		t.Error("a busy daemon has given memory back")
	}
	if !k.keep() {
		t.Error("a quiet daemon has not given its garbage back")
	}
	if left := residentHeap(); left > busy-size/2 { // the runtime itself may have grown a little
		t.Errorf("%d MiB of %d MiB are left", left>>20, busy>>20)
	}
	if k.keep() {
		t.Error("memory was given back again without need")
	}
}

func TestMemoryLimitLeavesCollectorRoom(t *testing.T) {
	for _, live := range []uint64{0, 100 << 20, 300 << 20, 4 << 30} {
		limit := memoryLimit(live)
		if limit < smallMemory || limit < int64(live)*13/10 {
			t.Errorf("%d MiB for %d MiB in use", limit>>20, live>>20)
		}
	}
	if memoryLimit(200<<20) != smallMemory {
		t.Error("a small daemon may grow large")
	}
	if liveBytes() == 0 {
		t.Error("nothing is in use")
	}
}

func TestCollectorWaitsForLeastGarbage(t *testing.T) {
	for _, live := range []uint64{0, 4 << 20, 16 << 20, 32 << 20, 100 << 20, 4 << 30} {
		percent := gcPercent(live)
		if percent < 100 || live >= leastGarbage && percent != 100 {
			t.Errorf("%d %% for %d MiB in use", percent, live>>20)
		}
		if garbage := live * uint64(percent) / 100; live >= 1<<20 && garbage < leastGarbage*9/10 {
			t.Errorf("collects at %d MiB of garbage with %d MiB in use", garbage>>20, live>>20)
		}
	}
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(-1))
	defer debug.SetGCPercent(debug.SetGCPercent(77))
	k := keeper{}
	k.keep()
	if percent := debug.SetGCPercent(77); percent != 77 {
		t.Errorf("the pace of the environment was replaced by %d %%", percent)
	}
	k.paces = true
	k.keep()
	if percent := debug.SetGCPercent(77); percent < 100 {
		t.Errorf("the pace is still %d %%", percent)
	}
}
