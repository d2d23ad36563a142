package engine

import (
	"encoding/binary"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
	"runtime"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func digest(n int) (d Digest) {
	// Spread the keys over the whole table, as the keyed hash does.
	binary.LittleEndian.PutUint64(d[:], uint64(n)*0x9e3779b97f4a7c15)
	binary.LittleEndian.PutUint64(d[8:], uint64(n))
	return d
}

func dedupID(n int) (id [16]byte) {
	binary.LittleEndian.PutUint64(id[:], uint64(n))
	return id
}

// TestDedupAgreesWithAMap compares the table with a Go map.
func TestDedupAgreesWithAMap(t *testing.T) {
	type remembered struct {
		payload Digest
		id      [16]byte
		ends    Instant
	}
	rapid.Check(t, func(t *rapid.T) {
		window, most := 10*time.Second, rapid.IntRange(1, 40).Draw(t, "max")
		d := NewDedup(window, most)
		d.first = rapid.SampledFrom([]uint64{dedupChunkLen, 1<<32 - dedupChunkLen, 1<<33 - 2*dedupChunkLen}).Draw(t, "start")
		d.next = d.first
		for range rapid.SampledFrom([]int{0, dedupChunkLen - 3, 2*dedupChunkLen - 100}).Draw(t, "past") {
			d.append(dedupEntry{}) // it ends at once
		}
		model := map[Digest]remembered{}
		now, ids := Instant(0), 0
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 3).Draw(t, "pause")) * time.Second)
			if rapid.IntRange(0, 60).Draw(t, "reconfigure") == 0 {
				window = time.Duration(rapid.IntRange(1, 20).Draw(t, "window")) * time.Second
				d.Configure(window, most)
			}
			key, payload := digest(rapid.IntRange(0, 60).Draw(t, "key")), digest(rapid.IntRange(0, 1).Draw(t, "payload"))
			got, id, wait := d.Lookup(now, key, payload)
			known, ok := model[key]
			if ok && known.ends <= now {
				ok = false
			}
			switch {
			case ok && known.payload == payload:
				if got != Repeated || id != known.id {
					t.Fatalf("repeat: got %d %v", got, id)
				}
			case ok:
				if got != Conflicting {
					t.Fatalf("conflict: got %d", got)
				}
			case got == Crowded:
				if wait <= 0 || d.Len() < most {
					t.Fatalf("crowded with %d of %d, wait %v", d.Len(), most, wait)
				}
			case got == Fresh:
				ids++
				d.Remember(now, key, payload, dedupID(ids))
				model[key] = remembered{payload, dedupID(ids), now.Add(window)}
			default:
				t.Fatalf("free key: got %d", got)
			}
		}
	})
}

// TestDedupEntryCostsAtMost64Bytes is the memory promise of DUP-3.
func TestDedupEntryCostsAtMost64Bytes(t *testing.T) {
	volume.InFull(t)
	for _, n := range []int{10_000, 100_000, 260_000} {
		before := heapInUse()
		d := NewDedup(time.Hour, n)
		for i := range n {
			d.Remember(Instant(i), digest(i), digest(0), dedupID(i))
		}
		each := float64(heapInUse()-before) / float64(n)
		runtime.KeepAlive(d)
		t.Logf("%d entries: %.1f bytes each", n, each)
		if each > 64 {
			t.Errorf("%d entries cost %.1f bytes each", n, each)
		}
	}
}

func heapInUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestDedupWithFewKeysIsSmall: every queue that ever had a key has a table, and most
// see few keys.
func TestDedupWithFewKeysIsSmall(t *testing.T) {
	const tables, keys = 1000, 100
	before := heapInUse()
	kept := make([]*Dedup, tables)
	for i := range kept {
		kept[i] = NewDedup(time.Minute, 1000)
		for n := range keys { // one at a time
			now := Instant(0).Add(time.Duration(n) * time.Hour)
			if verdict, _, _ := kept[i].Lookup(now, digest(n), digest(i)); verdict != Fresh {
				t.Fatalf("key %d is not fresh: %v", n, verdict)
			}
			kept[i].Remember(now, digest(n), digest(i), dedupID(n))
		}
	}
	each := (heapInUse() - before) / tables
	runtime.KeepAlive(kept)
	t.Logf("%d bytes each", each)
	if each > 512 {
		t.Error("that is too much")
	}
}

func TestDedupForgetsExactlyAtWindowEnd(t *testing.T) {
	d := NewDedup(5*time.Minute, 10)
	d.Remember(0, digest(1), digest(0), dedupID(1))
	end := Instant(5 * time.Minute)
	if got, _, _ := d.Lookup(end-1, digest(1), digest(0)); got != Repeated {
		t.Fatalf("one nanosecond before the end: %d", got)
	}
	if got, _, _ := d.Lookup(end, digest(1), digest(0)); got != Fresh {
		t.Fatalf("at the end: %d", got)
	}
}

func BenchmarkDedup(b *testing.B) {
	d := NewDedup(time.Second, 1_000_000)
	now, i := Instant(0), 0
	b.ReportAllocs()
	for b.Loop() {
		now += Instant(10 * time.Microsecond)
		i++
		if v, _, _ := d.Lookup(now, digest(i), digest(0)); v == Fresh {
			d.Remember(now, digest(i), digest(0), dedupID(i))
		}
	}
}
