package diskbox

import (
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

// TestDelayedMessagesTakeNoMoreMemoryThanWaiting compares the heap of a backend whose messages
// wait with that of one whose messages are delayed, with due times in any order. It allows a tenth
// more, and what the caches of two stores differ by.
func TestDelayedMessagesTakeNoMoreMemoryThanWaiting(t *testing.T) {
	volume.Measures(t)
	const mostRatio, slack = 1.1, 2 << 20
	n := volume.Count(t, 20_000, 1_000_000)
	rng := rand.New(rand.NewPCG(1, 0))
	waiting := heapWith(t, n, func() time.Duration { return 0 })
	delayed := heapWith(t, n, func() time.Duration { return time.Hour + time.Duration(rng.Int64N(int64(300*24*time.Hour))) })
	t.Logf("%d waiting messages take %.1f MB of heap, and %d delayed ones %.1f MB", n, float64(waiting)/1e6, n, float64(delayed)/1e6)
	if most := mostRatio*float64(waiting) + slack; float64(delayed) > most {
		t.Errorf("delayed messages take %.1f MB, want at most %.1f MB", float64(delayed)/1e6, most/1e6)
	}
}

// heapWith returns by how much the heap has grown with a backend that has n messages.
func heapWith(t *testing.T, n int, delay func() time.Duration) int64 {
	t.Helper()
	before := heapInUse()
	b, err := Open(t.Context(), t.TempDir(), &Options{Sync: SyncNone})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Close() }()
	if err := b.ConfigureQueue(t.Context(), "orders", driver.Config{MaxMessages: n + 1}); err != nil {
		t.Fatal(err)
	}
	q := openQueue(t, b, "orders")
	batch := make([]driver.Outgoing, 100)
	for sent := 0; sent < n; sent += len(batch) {
		for i := range batch {
			batch[i] = driver.Outgoing{Body: make([]byte, 100), Delay: delay()}
		}
		if _, err := q.Send(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
	}
	stats, err := q.Stats(t.Context())
	if err != nil || stats.Waiting() != n {
		t.Fatalf("%+v, %v; want %d messages", stats, err, n)
	}
	grown := heapInUse() - before
	runtime.KeepAlive(q)
	return grown
}

func heapInUse() int64 {
	for range 2 { // finalizers run after the first
		debug.FreeOSMemory()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
