package store

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/storetest"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

// The engine's defaults are not safe enough for messages that must not be lost. Each test here
// is named after one point of the list in the package documentation.

func TestH1NewestFormatIsAsserted(t *testing.T) {
	fs := vfs.NewMem()
	s := mustOpen(t, testDir, memOptions(fs))
	if have := s.db.FormatMajorVersion(); have != pebble.FormatNewest {
		t.Errorf("format %d, want %d", have, pebble.FormatNewest)
	}
	// DeleteSized panics on the engine's default format.
	b := s.NewBatch()
	b.Set([]byte("a"), []byte("1"))
	b.DeleteSized([]byte("a"), 1)
	if err := s.Commit(b, true); err != nil {
		t.Error(err)
	}
	mustClose(t, s)
	desc, err := pebble.Peek(fs.PathJoin(testDir, engineDir), fs)
	if err != nil || desc.FormatMajorVersion != pebble.FormatNewest {
		t.Errorf("on disk: %v, %v", desc, err)
	}
}

// chunkKinds returns the kinds of the chunks in a log, up to its end.
func chunkKinds(log []byte) (kinds []byte) {
	for len(log) >= chunkHeader && log[chunkKindAt] != 0 {
		kinds = append(kinds, log[chunkKindAt])
		size := int(binary.LittleEndian.Uint16(log[chunkSizeAt:]))
		log = log[min(len(log), chunkHeader+size):]
	}
	return kinds
}

func TestH2FirstLogOfANewStoreHasSyncOffsets(t *testing.T) {
	fs := vfs.NewMem()
	s := mustOpen(t, testDir, memOptions(fs))
	defer mustClose(t, s)
	put(t, s, "a", "1")
	kinds := chunkKinds(readFile(t, fs, slices.Max(engineFiles(t, fs, isLog))))
	if len(kinds) == 0 {
		t.Fatal("no chunk")
	}
	for _, kind := range kinds {
		if kind != chunkKindFull {
			t.Errorf("a chunk of kind %d, want %d", kind, chunkKindFull)
		}
	}
}

// lastWatermark returns the watermark of the latest log that covers most of it.
func lastWatermark(t *testing.T, s *Store) watermark {
	t.Helper()
	highest := make(map[uint64]watermark)
	for _, name := range engineFiles(t, s.options.FS, isLog) {
		if err := findWatermarks(s.options.FS, name, s.id, highest, make([]byte, 1<<10)); err != nil {
			t.Fatal(err)
		}
	}
	return highest[slices.Max(slices.Collect(maps.Keys(highest)))]
}

func TestH3IdleStoreIsSealed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := mustOpen(t, testDir, memOptions(vfs.NewMem()))
		defer mustClose(t, s)
		for i := range 20 {
			put(t, s, numbered("k", i), strings.Repeat("x", 5000))
			time.Sleep(s.options.SealAfter - time.Millisecond)
			synctest.Wait()
		}
		durable := s.tracker.get()
		if mark := lastWatermark(t, s); mark.length >= durable.length {
			t.Fatalf("sealed while busy: watermark at %d, durable %d", mark.length, durable.length)
		}
		time.Sleep(s.options.SealAfter)
		synctest.Wait()
		if mark := lastWatermark(t, s); mark.length < durable.length {
			t.Errorf("watermark at %d, durable were %d", mark.length, durable.length)
		}
	})
}

func TestH3CommitsThatDoNotWaitAreSealedToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := storetest.NewDisk()
		s := mustOpen(t, testDir, memOptions(disk.FS()))
		defer mustClose(t, s)
		b := s.NewBatch()
		b.Set([]byte("lease"), []byte("1"))
		if err := s.Commit(b, false); err != nil {
			t.Fatal(err)
		}
		time.Sleep(s.options.SealAfter)
		synctest.Wait()
		log := readFile(t, disk.Mem(), slices.Max(engineFiles(t, disk.Mem(), isLog)))
		if mark, at := lastWatermark(t, s), bytes.Index(log, []byte("lease")); at < 0 || mark.length <= uint64(at) {
			t.Errorf("watermark at %d, the commit is at %d", mark.length, at)
		}
		after := mustOpen(t, testDir, memOptions(disk.Mem().CrashClone(vfs.CrashCloneCfg{})))
		defer mustClose(t, after)
		wantValue(t, after, "lease", "1")
	})
}

// A store with tickers would take minutes to sleep for a year of virtual time.
func TestH3SealedStoreSleeps(t *testing.T) {
	start := time.Now()
	var operations atomic.Int64
	synctest.Test(t, func(t *testing.T) {
		disk := storetest.NewDisk()
		s := mustOpen(t, testDir, memOptions(disk.FS()))
		defer mustClose(t, s)
		for i := range 200 {
			put(t, s, numbered("k", i), strings.Repeat("x", 5000))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		disk.Before(func(storetest.Operation) error {
			operations.Add(1)
			return nil
		})
		time.Sleep(365 * 24 * time.Hour)
		synctest.Wait()
		if n := operations.Load(); n != 0 {
			t.Errorf("%d operations on the disk while idle", n)
		}
	})
	if took := time.Since(start); took > 30*time.Second {
		t.Errorf("a year of sleep took %v: something wakes up all the time", took)
	}
}

func TestH3CloseAndBackupSeal(t *testing.T) {
	fs := vfs.NewMem()
	o := memOptions(fs)
	o.SealAfter = time.Hour
	s := mustOpen(t, testDir, o)
	put(t, s, "a", strings.Repeat("x", 5000))
	durable := s.tracker.get()
	if err := s.Backup(t.Context(), "/backup"); err != nil {
		t.Fatal(err)
	}
	if mark := lastWatermark(t, s); mark.length < durable.length {
		t.Errorf("Backup: watermark at %d, durable were %d", mark.length, durable.length)
	}
	put(t, s, "b", strings.Repeat("x", 5000))
	durable = s.tracker.get()
	mustClose(t, s)
	if mark := lastWatermark(t, s); mark.length < durable.length {
		t.Errorf("Close: watermark at %d, durable were %d", mark.length, durable.length)
	}
}

// A seal of one record longer than a block, the first idea, leaves most of a log uncovered when
// commits are large. A watermark covers all of it.
func TestH3WatermarksCoverLargeCommits(t *testing.T) {
	volume.Repeats(t)
	rng := rand.New(rand.NewPCG(3, 3))
	disk := storetest.NewDisk()
	o := memOptions(disk.FS())
	o.MemTableBytes = 16 << 20
	s := mustOpen(t, testDir, o)
	for i := range 30 {
		put(t, s, numbered("k", i), string(noise(rng, 100<<10)))
	}
	covered := s.tracker.get()
	if err := s.sealLog(); err != nil {
		t.Fatal(err)
	}
	image := disk.Mem().CrashClone(vfs.CrashCloneCfg{})
	mustClose(t, s)
	log := image.PathJoin(testDir, engineDir, fmt.Sprintf("%06d.log", covered.log))
	for range 50 / stride() {
		damaged := image.CrashClone(vfs.CrashCloneCfg{})
		data, err := damaged.UnsafeGetFileDataBuffer(log)
		if err != nil {
			t.Fatal(err)
		}
		data[rng.IntN(int(covered.length))] ^= 3 << rng.IntN(7) // one bit would be restored
		_, err = Open(t.Context(), testDir, memOptions(damaged))
		wantError(t, err, driver.ErrIntegrity, log, "restore")
	}
}

// Logs pile up while tables cannot be written. The engine treats a chunk with the next log's
// number as the end of a log, without checking its checksum, so in a log with an even number
// one bit is enough to end it early.
func TestH3DamageInOlderLogIsDetected(t *testing.T) {
	disk := storetest.NewDisk()
	o := memOptions(disk.FS())
	o.MemTableBytes = 256 << 10
	s := mustOpen(t, testDir, o)
	var full atomic.Bool
	disk.Before(func(op storetest.Operation) error {
		if full.Load() && strings.HasSuffix(op.Path, ".sst") {
			return syscall.ENOSPC
		}
		return nil
	})
	full.Store(true)
	const keys = 140
	for i := range keys {
		put(t, s, numbered("k", i), strings.Repeat("x", 5000))
	}
	image := disk.Mem().CrashClone(vfs.CrashCloneCfg{})
	full.Store(false)
	mustClose(t, s)
	logs := engineFiles(t, image, isLog)
	slices.Sort(logs)
	if len(logs) < 3 {
		t.Fatalf("logs: %v", logs)
	}
	for _, name := range logs[:len(logs)-1] {
		last := len(chunkKinds(readFile(t, image, name))) - 1
		for _, nth := range []int{min(1, last), min(20, last), last} {
			damaged := image.CrashClone(vfs.CrashCloneCfg{})
			data, err := damaged.UnsafeGetFileDataBuffer(name)
			if err != nil {
				t.Fatal(err)
			}
			at := 0
			for range nth {
				at += chunkHeader + int(binary.LittleEndian.Uint16(data[at+chunkSizeAt:]))
			}
			data[at+chunkKindAt+1] ^= 1 // the log number
			unchanged := memOptions(damaged)
			unchanged.ReadOnly = true
			if again, err := Open(t.Context(), testDir, unchanged); err == nil {
				mustClose(t, again)
				t.Errorf("damage in chunk %d of %s went unnoticed", nth, name)
				continue
			} else {
				wantError(t, err, driver.ErrIntegrity, testDir)
			}
			again := mustOpen(t, testDir, memOptions(damaged)) // restores the bit
			for i := range keys {
				wantValue(t, again, numbered("k", i), strings.Repeat("x", 5000))
			}
			mustClose(t, again)
		}
	}
}

func TestH4DamagedManifestIsRefusedAndLeftAlone(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	base := vfs.NewCrashableMem()
	s := mustOpen(t, testDir, memOptions(base))
	for i := range 200 {
		put(t, s, numbered("k", i), string(noise(rng, 2000)))
	}
	mustClose(t, s)
	image := base.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rng})
	current, err := pebble.Peek(image.PathJoin(testDir, engineDir), image)
	if err != nil {
		t.Fatal(err)
	}
	for range 30 {
		damaged := image.CrashClone(vfs.CrashCloneCfg{})
		data, err := damaged.UnsafeGetFileDataBuffer(current.ManifestFilename)
		if err != nil {
			t.Fatal(err)
		}
		data[rng.IntN(len(data))] ^= 3 << rng.IntN(7) // one bit would be restored
		before := contents(t, damaged)
		_, err = Open(t.Context(), testDir, memOptions(damaged))
		wantError(t, err, driver.ErrIntegrity, current.ManifestFilename, "nothing was changed", "restore")
		for name, content := range contents(t, damaged) {
			if before[name] != content {
				t.Fatalf("%s was changed", name)
			}
		}
	}
}

func TestH4EveryManifestOnDiskHasItsSealAndNoOther(t *testing.T) {
	fs := vfs.NewMem()
	o := memOptions(fs)
	for round := range 3 {
		s := mustOpen(t, testDir, o)
		for i := range 60 {
			put(t, s, numbered("k", round*1000+i), strings.Repeat("x", 5000))
		}
		mustClose(t, s)
		manifests := engineFiles(t, fs, func(base string) bool { return classOf(base) == classManifest })
		seals := engineFiles(t, fs, func(base string) bool { return strings.HasPrefix(base, sealPrefix+manifestPrefix) })
		if len(manifests) != len(seals) {
			t.Fatalf("manifests %v, seals %v", manifests, seals)
		}
		for _, name := range manifests {
			if _, err := readSeal(fs, name); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestH4StaleSealsAreRemoved(t *testing.T) {
	fs := vfs.NewMem()
	mustClose(t, mustOpen(t, testDir, memOptions(fs)))
	stale := fs.PathJoin(testDir, engineDir, sealPrefix+manifestPrefix+"999999")
	writeFile(t, fs, stale, []byte("old"))
	writeFile(t, fs, stale+tempSuffix, []byte("half"))
	mustClose(t, mustOpen(t, testDir, memOptions(fs)))
	for _, name := range []string{stale, stale + tempSuffix} {
		if _, err := fs.Stat(name); err == nil {
			t.Errorf("%s is still there", name)
		}
	}
}
