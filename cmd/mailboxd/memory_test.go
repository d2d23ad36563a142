package main

import "testing"

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
