package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

func TestCheckedTextSurvivesAnySingleBit(t *testing.T) {
	const body = "mailbox disk format 1\nstore 00112233445566778899aabbccddeeff\n"
	data := encodeChecked(body)
	if got, ok := decodeChecked(data); !ok || got != body {
		t.Fatalf("%q, %v", got, ok)
	}
	for i := range data {
		for bit := range 8 {
			data[i] ^= 1 << bit
			if got, ok := decodeChecked(data); !ok || got != body {
				t.Errorf("bit %d of byte %d: %q, %v", bit, i, got, ok)
			}
			data[i] ^= 1 << bit
		}
	}
	for n := range data {
		if got, ok := decodeChecked(data[:n]); ok && got != body {
			t.Errorf("the first %d bytes decode to %q", n, got)
		}
	}
	// Damage in both copies is detected.
	data[3] ^= 1
	data[len(data)/2+5] ^= 1
	if got, ok := decodeChecked(data); ok {
		t.Errorf("decoded %q from two damaged copies", got)
	}
}

func TestWholeWatermarksAreFound(t *testing.T) {
	id, other := newStoreID(), newStoreID()
	rng := rand.New(rand.NewPCG(1, 1))
	var log []byte
	add := func(w watermark, id storeID) {
		log = append(log, noise(rng, rng.IntN(3000))...)
		log = w.append(log, id)
	}
	add(watermark{log: 7, length: 10}, id)
	add(watermark{log: 7, length: 500, crc: 5}, id)
	add(watermark{log: 6, length: 900}, id)    // from an earlier use of the file
	add(watermark{log: 7, length: 900}, other) // part of a message
	add(watermark{log: 7, length: 800}, id)
	log[len(log)-1] ^= 1 // damaged
	add(watermark{log: 7, length: 400}, id)
	log = append(log, id[:]...) // cut off
	want := []watermark{{log: 7, length: 10}, {log: 7, length: 500, crc: 5}, {log: 6, length: 900}, {log: 7, length: 400}}
	for _, size := range []int{watermarkBytes, watermarkBytes + 1, 100, 1000, 1 << 20} {
		var got []watermark
		err := scanWatermarks(bytes.NewReader(log), id, make([]byte, size), func(w watermark) { got = append(got, w) })
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("with a buffer of %d: %v, %v", size, got, err)
		}
	}
	broken := errors.New("broken")
	if err := scanWatermarks(iotest.ErrReader(broken), id, make([]byte, 100), func(watermark) {}); !errors.Is(err, broken) {
		t.Errorf("a read error became %v", err)
	}
}

// A message body that contains a watermark must not be treated as one.
func TestForgedWatermarkChangesNothing(t *testing.T) {
	o := memOptions(vfs.NewMem())
	s := mustOpen(t, testDir, o)
	forged := watermark{log: s.tracker.get().log, length: 10, crc: 1}.append(nil, newStoreID())
	put(t, s, "a", string(forged))
	mustClose(t, s)
	s = mustOpen(t, testDir, o)
	wantValue(t, s, "a", string(forged))
	mustClose(t, s)
}

func TestWithdrawingPromisesKeepsChunksValid(t *testing.T) {
	// Chunks as the engine writes them: packed, not across blocks.
	rng := rand.New(rand.NewPCG(2, 2))
	var log []byte
	for len(log) < 5*logBlockBytes {
		room := logBlockBytes - len(log)%logBlockBytes
		if room < chunkHeader {
			log = append(log, make([]byte, room)...)
			continue
		}
		payload := noise(rng, min(room-chunkHeader, rng.IntN(9000)))
		chunk := make([]byte, chunkHeader, chunkHeader+len(payload))
		binary.LittleEndian.PutUint16(chunk[chunkSizeAt:], uint16(len(payload)))
		chunk[chunkKindAt] = chunkKindFull
		binary.LittleEndian.PutUint64(chunk[chunkPromiseAt:], uint64(len(log)))
		chunk = append(chunk, payload...)
		binary.LittleEndian.PutUint32(chunk, chunkChecksum(chunk[chunkKindAt:]))
		log = append(log, chunk...)
	}
	withdrawPromises(log, 0)
	for offset := 0; offset < len(log); {
		room := logBlockBytes - offset%logBlockBytes
		if room < chunkHeader {
			offset += room
			continue
		}
		chunk := log[offset:]
		size := chunkHeader + int(binary.LittleEndian.Uint16(chunk[chunkSizeAt:]))
		if promise := binary.LittleEndian.Uint64(chunk[chunkPromiseAt:]); promise != 0 {
			t.Fatalf("the chunk at %d promises %d", offset, promise)
		}
		if binary.LittleEndian.Uint32(chunk) != chunkChecksum(chunk[chunkKindAt:size]) {
			t.Fatalf("the chunk at %d has a wrong checksum", offset)
		}
		offset += size
	}
}

func TestCompactionsCatchUpWithoutTicker(t *testing.T) {
	volume.Repeats(t)
	synctest.Test(t, func(t *testing.T) {
		s := mustOpen(t, testDir, memOptions(vfs.NewMem()))
		defer mustClose(t, s)
		rng := rand.New(rand.NewPCG(3, 3))
		for range 2000 / stride() {
			put(t, s, numbered("k", rng.IntN(5000)), strings.Repeat("x", 2000))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		m := s.Metrics()
		if m.Compactions == 0 || m.Flushes == 0 {
			t.Fatalf("nothing to see: %+v", m)
		}
		// The engine merges tables of the first level when there are four of them. Its
		// estimate of the debt also counts the table that a fifth would be merged into,
		// so the estimate says nothing here.
		if m.ReadAmplification > 4 {
			t.Errorf("compactions were left undone: %+v", m)
		}
		if m.DiskBytes == 0 || m.Tables == 0 || m.LogBytes == 0 || m.MemTableBytes == 0 {
			t.Errorf("metrics: %+v", m)
		}
	})
}

func TestBackupSeesOnlyStablePartOfLog(t *testing.T) {
	mem := vfs.NewMem()
	fs := &sealFS{FS: mem, dir: "/", tracker: &logTracker{}, logs: newLogList(mem, "/", map[uint64]watermark{})}
	write := func(f vfs.File, n int) {
		if _, err := f.Write(make([]byte, n)); err != nil {
			t.Fatal(err)
		}
	}
	want := func(name string, n int) {
		t.Helper()
		if got := len(readFile(t, fs, name)); got != n {
			t.Errorf("%s has %d bytes to read, want %d", name, got, n)
		}
	}
	first, err := fs.Create("/000005.log", vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	write(first, 100)
	want("/000005.log", 0)
	if err := first.Sync(); err != nil {
		t.Fatal(err)
	}
	write(first, 50)
	want("/000005.log", 100)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second, err := fs.Create("/000006.log", vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	write(second, 10)
	want("/000005.log", 150) // complete
	want("/000006.log", 0)
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestSyncCoversOnlyCommitsThatBeganBeforeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var syncs, seals atomic.Int64
		s := &sealer{after: time.Hour, sync: func() { syncs.Add(1) }, seal: func() { seals.Add(1) }, note: func() {}}
		want := func(wantSyncs, wantSeals int64) {
			t.Helper()
			if syncs.Load() != wantSyncs || seals.Load() != wantSeals {
				t.Errorf("%d syncs and %d seals, want %d and %d", syncs.Load(), seals.Load(), wantSyncs, wantSeals)
			}
		}
		s.end(s.begin(), false, time.Now())
		durable := s.begin()                // covers the one before …
		s.end(s.begin(), false, time.Now()) // … but not this one
		s.end(durable, true, time.Now())
		time.Sleep(rideAlong)
		synctest.Wait()
		want(1, 0)
		s.end(s.begin(), false, time.Now())
		s.end(s.begin(), true, time.Now()) // covers everything
		time.Sleep(rideAlong)
		synctest.Wait()
		want(1, 0)
		time.Sleep(time.Hour)
		synctest.Wait()
		want(1, 1)
		running := s.begin()
		time.Sleep(10 * time.Hour)
		synctest.Wait()
		s.end(running, true, time.Now())
		want(1, 1) // a store is not idle while a commit is in flight
		s.stop()
	})
}
