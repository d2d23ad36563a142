package store

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/storetest"
)

func TestH8NewDataIsRefusedBeforeTheDiskIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := vfs.NewMem()
		o := memOptions(mem)
		o.ReserveBytes = 5000
		const total = 100_000
		set := func(free uint64) {
			mem.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: free, TotalBytes: total, UsedBytes: total - free})
			time.Sleep(spaceEvery)
		}
		set(total / 2)
		s := mustOpen(t, testDir, o)
		defer mustClose(t, s)
		if err := s.Admit(); err != nil {
			t.Errorf("half empty: %v", err)
		}
		set(total/20 - 1)
		err := s.Admit()
		wantError(t, err, driver.ErrFull, testDir, "4999", "5000", "free some space")
		if driver.RetryAfter(err) <= 0 {
			t.Error("no hint when to try again")
		}
		if h := s.Health(); !h.WritesRefused || h.DiskFull || h.FreeBytes != total/20-1 || h.TotalBytes != total || h.Ready() {
			t.Errorf("health: %+v", h)
		}
		put(t, s, "ack", "goes on")
		set(total / 20)
		if s.Admit() == nil {
			t.Error("at the edge it should not change its mind yet")
		}
		set(total / 10)
		if err := s.Admit(); err != nil {
			t.Errorf("after space was freed: %v", err)
		}
	})
}

func TestH8FreeSpaceIsAskedForRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counting := &usageCountingFS{FS: vfs.NewMem()}
		o := memOptions(counting)
		o.ReserveBytes = 1000
		s := mustOpen(t, testDir, o)
		defer mustClose(t, s)
		counting.asked.Store(0)
		for range 1000 {
			_ = s.Admit()
			_ = s.Health()
		}
		if n := counting.asked.Load(); n > 1 {
			t.Errorf("asked %d times at one moment", n)
		}
		counting.asked.Store(0)
		b := s.NewBatch()
		b.Set([]byte("large"), make([]byte, spaceBytes))
		if err := s.Commit(b, true); err != nil {
			t.Fatal(err)
		}
		if counting.asked.Load() == 0 {
			t.Error("not asked after much was written")
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		counting.asked.Store(0)
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := counting.asked.Load(); n != 0 {
			t.Errorf("asked %d times while idle", n)
		}
	})
}

type usageCountingFS struct {
	vfs.FS
	asked atomic.Int64
}

func (fs *usageCountingFS) GetDiskUsage(string) (vfs.DiskUsage, error) {
	fs.asked.Add(1)
	return vfs.DiskUsage{AvailBytes: 1 << 40, TotalBytes: 1 << 41}, nil
}

// fullDisk makes writes fail while the ballast exists, or always.
func fullDisk(disk *storetest.Disk, withoutBallastToo bool) (full *atomic.Bool) {
	full = new(atomic.Bool)
	disk.Before(func(op storetest.Operation) error {
		if !full.Load() || op.Kind != storetest.Write && op.Kind != storetest.Create {
			return nil
		}
		if _, err := disk.Mem().Stat(disk.Mem().PathJoin(testDir, ballastFile)); err == nil || withoutBallastToo {
			return syscall.ENOSPC
		}
		return nil
	})
	return full
}

func TestH8TheBallastKeepsAFullDiskFromStoppingTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := storetest.NewDisk()
		o := memOptions(disk.FS())
		o.BallastBytes = 100_000
		s := mustOpen(t, testDir, o)
		ballast := disk.Mem().PathJoin(testDir, ballastFile)
		if info, err := disk.Mem().Stat(ballast); err != nil || info.Size() != o.BallastBytes {
			t.Fatalf("ballast: %v, %v", info, err)
		}
		full := fullDisk(disk, false)
		put(t, s, "a", "1")
		full.Store(true)
		put(t, s, "b", "2")
		if _, err := disk.Mem().Stat(ballast); err == nil {
			t.Error("the ballast is still there")
		}
		if h := s.Health(); !h.DiskFull || !h.WritesRefused || h.Failed != nil {
			t.Errorf("health: %+v", h)
		}
		wantError(t, s.Admit(), driver.ErrFull)
		put(t, s, "ack", "goes on")
		full.Store(false)
		time.Sleep(fullFor)
		if err := s.Admit(); err != nil {
			t.Errorf("after space was freed: %v", err)
		}
		mustClose(t, s)
		s = mustOpen(t, testDir, o)
		defer mustClose(t, s)
		wantValue(t, s, "b", "2")
		if info, err := disk.Mem().Stat(ballast); err != nil || info.Size() != o.BallastBytes {
			t.Errorf("the ballast is not back: %v", err)
		}
	})
}

// A log that cannot be written stops the store; a table that cannot be written does not.
func TestH8FullDiskIsFatalForLogOnly(t *testing.T) {
	t.Run("log", func(t *testing.T) {
		disk := storetest.NewDisk()
		s := mustOpen(t, testDir, memOptions(disk.FS()))
		put(t, s, "a", "1")
		fullDisk(disk, true).Store(true)
		b := s.NewBatch()
		b.Set([]byte("b"), []byte("2"))
		err := s.Commit(b, true)
		if !errors.Is(err, ErrFailed) || !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("Commit: %v", err)
		}
		_ = s.Close()
		again := mustOpen(t, testDir, memOptions(disk.Mem().CrashClone(vfs.CrashCloneCfg{})))
		defer mustClose(t, again)
		wantValue(t, again, "a", "1")
	})
	// In real time: the engine holds a lock while it waits for room in memory, and a goroutine at
	// a lock keeps virtual time from going on.
	t.Run("table", func(t *testing.T) {
		disk := storetest.NewDisk()
		s := mustOpen(t, testDir, memOptions(disk.FS()))
		var full atomic.Bool
		full.Store(true)
		refused := make(chan struct{}, 1)
		disk.Before(func(op storetest.Operation) error {
			if full.Load() && strings.HasSuffix(op.Path, ".sst") {
				select {
				case refused <- struct{}{}:
				default:
				}
				return syscall.ENOSPC
			}
			return nil
		})
		var wg sync.WaitGroup
		for w := range 4 {
			wg.Go(func() {
				for i := range 40 { // more than fits in memory
					put(t, s, numbered(fmt.Sprintf("w%d/", w), i), strings.Repeat("x", 5000))
				}
			})
		}
		for range 5 { // the engine keeps retrying
			<-refused
		}
		if h := s.Health(); h.Failed != nil || !h.DiskFull {
			t.Errorf("health: %+v", h)
		}
		full.Store(false)
		wg.Wait()
		for w := range 4 {
			for i := range 40 {
				wantValue(t, s, numbered(fmt.Sprintf("w%d/", w), i), strings.Repeat("x", 5000))
			}
		}
		mustClose(t, s)
	})
}

func TestH8OpenOnFullDiskReturnsErrFull(t *testing.T) {
	disk := storetest.NewDisk()
	fullDisk(disk, true).Store(true)
	_, err := Open(t.Context(), testDir, memOptions(disk.FS()))
	wantError(t, err, driver.ErrFull, testDir, "free some space")
}

func TestH10SingleDeleteIsNotOfferedAndSizedDeletesAreUnderstood(t *testing.T) {
	// mustClose fails if the engine suspects a wrong delete.
	s := mustOpen(t, testDir, memOptions(vfs.NewMem()))
	b := s.NewBatch()
	for i := range 400 {
		key := []byte(numbered("k", i))
		b.Set(key, make([]byte, i))
		if err := s.Commit(b, true); err != nil {
			t.Fatal(err)
		}
		b.DeleteSized(key, i)
		if i%3 == 0 {
			b.Set(key, make([]byte, i/2))
		}
		if err := s.Commit(b, false); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.db.Compact(t.Context(), []byte("a"), []byte("z"), false); err != nil {
		t.Fatal(err)
	}
	for i := range 400 {
		if i%3 == 0 {
			wantValue(t, s, numbered("k", i), string(make([]byte, i/2)))
		} else {
			wantMissing(t, s, numbered("k", i))
		}
	}
	mustClose(t, s)
}

func TestH10WrongSizeIsLoggedAndHarmless(t *testing.T) {
	s := mustOpen(t, testDir, memOptions(vfs.NewMem()))
	put(t, s, "kept", "1")
	put(t, s, "k", "12345")
	b := s.NewBatch()
	b.DeleteSized([]byte("k"), 5)
	b.DeleteSized([]byte("k"), 5) // again: the key is gone
	if err := s.Commit(b, true); err != nil {
		t.Fatal(err)
	}
	if err := s.db.Compact(t.Context(), []byte("a"), []byte("z"), false); err != nil {
		t.Fatal(err)
	}
	wantMissing(t, s, "k")
	wantValue(t, s, "kept", "1")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if len(s.misuse.found) == 0 {
		t.Error("not suspected: the other tests would not notice either")
	}
}

// Pipelining with ApplyNoSyncWait is experimental in the engine. This package does not need it:
// concurrent commits share syncs, and a second record syncs operations that must be readable
// before they are durable.
func TestH11ConcurrentCommitsShareSyncs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := storetest.NewDisk()
		s := mustOpen(t, testDir, memOptions(disk.FS()))
		defer mustClose(t, s)
		var syncs atomic.Int64
		disk.Before(func(op storetest.Operation) error {
			if op.Kind == storetest.Sync && strings.HasSuffix(op.Path, logSuffix) {
				syncs.Add(1)
				time.Sleep(time.Millisecond) // the time of a disk
			}
			return nil
		})
		const callers = 64
		done := make(chan error)
		for i := range callers {
			go func() {
				b := s.NewBatch()
				b.Set([]byte(numbered("k", i)), []byte("v"))
				done <- s.Commit(b, true)
			}()
		}
		for range callers {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if n := syncs.Load(); n > 8 {
			t.Errorf("%d commits took %d syncs", callers, n)
		}
		// Close syncs the log while it holds locks of the engine, and waiting for a mutex
		// stops virtual time.
		disk.Before(func(storetest.Operation) error { return nil })
	})
}

// CommitThen calls readable as soon as operations can be read, and returns when they are
// durable, with the next commit already in the log.
func TestH11ReadableIsBeforeDurableAndReturningAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := storetest.NewDisk()
		s := mustOpen(t, testDir, memOptions(disk.FS()))
		defer mustClose(t, s)
		slow := make(chan struct{})
		disk.Before(func(op storetest.Operation) error {
			if op.Kind == storetest.Sync && strings.HasSuffix(op.Path, logSuffix) {
				<-slow
			}
			return nil
		})
		readable, durable := make(chan string, 2), make(chan error, 2)
		for _, key := range []string{"first", "second"} {
			go func() {
				b := s.NewBatch()
				b.Set([]byte(key), []byte("v"))
				durable <- s.CommitThen(b, true, func() {
					wantValue(t, s, key, "v")
					readable <- key
				})
				if b.Len() > 0 {
					t.Error("the batch was not emptied")
				}
			}()
			synctest.Wait()
			if got := <-readable; got != key {
				t.Errorf("%s is readable, not %s", got, key)
			}
		}
		if len(durable) > 0 {
			t.Error("it returned before the sync")
		}
		image := disk.Mem().CrashClone(vfs.CrashCloneCfg{})
		again := mustOpen(t, testDir, memOptions(image))
		wantMissing(t, again, "first")
		mustClose(t, again)
		close(slow)
		for range 2 {
			if err := <-durable; err != nil {
				t.Error(err)
			}
		}
		image = disk.Mem().CrashClone(vfs.CrashCloneCfg{})
		again = mustOpen(t, testDir, memOptions(image))
		wantValue(t, again, "first", "v")
		wantValue(t, again, "second", "v")
		mustClose(t, again)
	})
}

// A refused commit cannot be read, and readable is not called.
func TestH11RefusedCommitIsNotReadable(t *testing.T) {
	s := mustOpen(t, testDir, memOptions(vfs.NewMem()))
	b := s.NewBatch()
	b.Set([]byte("a"), []byte("1"))
	b.Set([]byte{0}, nil)
	wantError(t, s.CommitThen(b, true, func() { t.Error("readable") }), driver.ErrInvalid)
	wantMissing(t, s, "a")
	mustClose(t, s)
	b.Reset()
	b.Set([]byte("a"), []byte("1"))
	if err := s.CommitThen(b, true, func() { t.Error("readable") }); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func TestH12SlowDiskIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := storetest.NewDisk()
		o := memOptions(disk.FS())
		o.SlowDisk = time.Second
		reports := make(chan SlowOperation, 10)
		o.OnSlowDisk = func(op SlowOperation) { reports <- op }
		s := mustOpen(t, testDir, o)
		defer mustClose(t, s)
		put(t, s, "a", "1")
		time.Sleep(time.Minute)
		if h := s.Health(); h.SlowDisk || h.DiskHangs || !h.Ready() {
			t.Errorf("health before: %+v", h)
		}
		var slow atomic.Bool
		slow.Store(true)
		disk.Before(func(op storetest.Operation) error {
			if op.Kind == storetest.Sync && slow.CompareAndSwap(true, false) {
				time.Sleep(30 * time.Second)
			}
			return nil
		})
		done := make(chan struct{})
		go func() {
			put(t, s, "b", "2")
			close(done)
		}()
		time.Sleep(5 * time.Second)
		if h := s.Health(); !h.SlowDisk || !h.DiskHangs || h.Ready() {
			t.Errorf("health meanwhile: %+v", h)
		}
		report := <-reports
		if !strings.HasSuffix(report.Path, logSuffix) || report.Operation != "sync" || report.Duration < o.SlowDisk {
			t.Errorf("report: %+v", report)
		}
		<-done
		if h := s.Health(); !h.SlowDisk || h.DiskHangs {
			t.Errorf("health after: %+v", h)
		}
		time.Sleep(slowFor)
		if s.Health().SlowDisk {
			t.Error("never forgotten")
		}
		if len(reports) != 0 {
			t.Error("reported more than once")
		}
	})
}
