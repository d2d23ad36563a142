package store

import (
	"bytes"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/storetest"
)

// pileOfLogs returns the disk of a store that could not write tables for a while, so that it
// needs several logs: after a crash, and after an orderly stop.
func pileOfLogs(t *testing.T) (crashed, closed *vfs.MemFS) {
	t.Helper()
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
	for i := range 140 {
		put(t, s, numbered("k", i), strings.Repeat("x", 5000))
	}
	crashed = disk.Mem().CrashClone(vfs.CrashCloneCfg{})
	if logs := engineFiles(t, crashed, isLog); len(logs) < 3 {
		t.Fatalf("logs: %v", logs)
	}
	full.Store(false)
	mustClose(t, s)
	return crashed, disk.Mem().CrashClone(vfs.CrashCloneCfg{})
}

// wantRefused opens a store that was changed, and expects an error that names a file.
func wantRefused(t *testing.T, what string, image *vfs.MemFS, name string) {
	t.Helper()
	before := contents(t, image)
	s, err := Open(t.Context(), testDir, memOptions(image))
	if err == nil {
		t.Errorf("%s: it was opened, and the last key is %s", what, lastKey(t, s))
		mustClose(t, s)
		return
	}
	wantError(t, err, driver.ErrIntegrity, name, "restore")
	if !maps.Equal(before, contents(t, image)) {
		t.Errorf("%s: something was changed", what)
	}
}

func lastKey(t *testing.T, s *Store) string {
	t.Helper()
	it := s.Iterate(nil, nil)
	defer it.Close()
	it.Last()
	return string(it.Key())
}

func TestMissingLogIsDetectedAndNamed(t *testing.T) {
	crashed, closed := pileOfLogs(t)
	for state, image := range map[string]*vfs.MemFS{"crashed": crashed, "closed": closed} {
		for _, name := range engineFiles(t, image, isLog) {
			changed := image.CrashClone(vfs.CrashCloneCfg{})
			if err := changed.Remove(name); err != nil {
				t.Fatal(err)
			}
			wantRefused(t, fmt.Sprintf("%s, without %s", state, name), changed, name)
		}
		mustClose(t, mustOpen(t, testDir, memOptions(image)))
	}
}

// TestShortenedLogIsDetected: in the second before a crash the last log may be torn, which no
// reader can detect. The length and checksum of all others, and after an orderly stop of all
// logs, are known.
func TestShortenedLogIsDetected(t *testing.T) {
	crashed, closed := pileOfLogs(t)
	for state, image := range map[string]*vfs.MemFS{"crashed": crashed, "closed": closed} {
		logs := engineFiles(t, image, isLog)
		slices.Sort(logs)
		if state == "crashed" {
			logs = logs[:len(logs)-1]
		}
		for _, name := range logs {
			data := readFile(t, image, name)
			end := len(bytes.TrimRight(data, "\x00")) // what follows was reserved
			for _, left := range []int{0, end / 2, end - 1} {
				changed := image.CrashClone(vfs.CrashCloneCfg{})
				writeFile(t, changed, name, slices.Clone(data[:left]))
				wantRefused(t, fmt.Sprintf("%s, with %d bytes of %s", state, left, name), changed, name)
			}
		}
	}
}

// TestShortenedLastLogIsDetectedAfterASecond: the list says how far the last log was durable
// a second before the crash, while commits go on and in an idle store.
func TestShortenedLastLogIsDetectedAfterASecond(t *testing.T) {
	for _, busy := range []bool{false, true} {
		var image *vfs.MemFS
		var length int64 // of the log, a second before the crash
		synctest.Test(t, func(t *testing.T) {
			disk := storetest.NewDisk()
			s := mustOpen(t, testDir, memOptions(disk.FS()))
			defer mustClose(t, s)
			for i := range 100 {
				put(t, s, numbered("k", i), "value")
			}
			length = int64(s.tracker.get().length)
			for i := range 150 {
				if busy {
					put(t, s, numbered("l", i), "value")
				}
				time.Sleep(10 * time.Millisecond)
			}
			synctest.Wait()
			image = disk.Mem().CrashClone(vfs.CrashCloneCfg{})
		})
		logs := engineFiles(t, image, isLog)
		last := slices.Max(logs)
		data := readFile(t, image, last)
		for _, left := range []int64{0, length / 2, length - 1} {
			changed := image.CrashClone(vfs.CrashCloneCfg{})
			writeFile(t, changed, last, slices.Clone(data[:left]))
			wantRefused(t, fmt.Sprintf("busy: %v, with %d bytes of %s", busy, left, last), changed, last)
		}
		mustClose(t, mustOpen(t, testDir, memOptions(image)))
	}
}

func TestLogMissingFromBackupIsDetected(t *testing.T) {
	for what, damage := range map[string]func(mem *vfs.MemFS, name string){
		"removed": func(mem *vfs.MemFS, name string) {
			if err := mem.Remove(name); err != nil {
				t.Fatal(err)
			}
		},
		"emptied": func(mem *vfs.MemFS, name string) { writeFile(t, mem, name, nil) },
	} {
		mem := vfs.NewCrashableMem()
		s := mustOpen(t, testDir, memOptions(mem))
		put(t, s, "a", "1")
		if err := s.Backup(t.Context(), "/backup"); err != nil {
			t.Fatal(err)
		}
		mustClose(t, s)
		names, err := mem.List("/backup/" + engineDir)
		if err != nil {
			t.Fatal(err)
		}
		names = slices.DeleteFunc(names, func(name string) bool { return !isLog(name) })
		if len(names) != 1 {
			t.Fatalf("the backup has the logs %v", names)
		}
		damage(mem, path.Join("/backup", engineDir, names[0]))
		if _, err = Open(t.Context(), "/backup", memOptions(mem)); err == nil {
			t.Fatalf("a log of a backup was %s, and Open did not notice", what)
		}
		wantError(t, err, driver.ErrIntegrity, names[0], "restore")
	}
}

// TestLogListIsComplete reads the list while logs are created and removed: every needed log is
// in it, and every log in it exists.
func TestLogListIsComplete(t *testing.T) {
	disk := storetest.NewDisk()
	s := mustOpen(t, testDir, memOptions(disk.FS()))
	var reused atomic.Bool
	disk.Before(func(op storetest.Operation) error {
		if op.Kind == storetest.Reuse {
			reused.Store(true)
		}
		return nil
	})
	most := 0
	for i := range 400 {
		put(t, s, numbered("k", i), strings.Repeat("x", 3000))
		if i%10 != 0 {
			continue
		}
		image := disk.Mem().CrashClone(vfs.CrashCloneCfg{})
		list, err := readLogList(image, path.Join(testDir, engineDir))
		if err != nil {
			t.Fatal(err)
		}
		present := make(map[uint64]bool)
		for _, name := range engineFiles(t, image, isLog) {
			number, _ := logNumber(path.Base(name))
			present[number] = true
		}
		for number := range list {
			if !present[number] {
				t.Fatalf("log %d is in the list and not there", number)
			}
		}
		if current := s.tracker.get().log; present[current] && list[current].log != current {
			t.Fatalf("log %d is being written and not in the list %v", current, list)
		}
		most = max(most, len(list))
	}
	if !reused.Load() || most < 2 {
		t.Errorf("at most %d logs at a time, reused: %v; that shows nothing", most, reused.Load())
	}
	mustClose(t, s)
}
