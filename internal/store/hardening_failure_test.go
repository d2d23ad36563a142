package store

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
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
	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

func TestH5ACrashWhileCreatingLeavesAnOpenableDirectory(t *testing.T) {
	volume.InFull(t)
	for _, existing := range []bool{false, true} {
		disk := storetest.NewDisk()
		if existing {
			if err := disk.Mem().MkdirAll(testDir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		var mu sync.Mutex
		rng := rand.New(rand.NewPCG(5, 5))
		images := 0
		disk.Before(func(op storetest.Operation) error {
			mu.Lock()
			defer mu.Unlock()
			if !op.Kind.Durability() {
				return nil
			}
			images++
			s, err := Open(t.Context(), testDir, memOptions(disk.Image(rng)))
			if err != nil {
				t.Errorf("after a cut before %s of %s: %v", op.Kind, op.Path, err)
				return nil
			}
			mustClose(t, s)
			return nil
		})
		s := mustOpen(t, testDir, memOptions(disk.FS()))
		disk.Before(func(storetest.Operation) error { return nil })
		mustClose(t, s)
		if images < 40 {
			t.Errorf("only %d images", images)
		}
		if names, _ := disk.Mem().List(testDir); len(names) != 2 {
			t.Errorf("the directory holds %v, want %s and %s", names, engineDir, lockFile)
		}
	}
}

// A durable commit returns after the sync, but others can read it before. So a caller that
// answers from the store must wait for Commit.
func TestH6DurableCommitReturnsAfterItsSync(t *testing.T) {
	disk := storetest.NewDisk()
	s := mustOpen(t, testDir, memOptions(disk.FS()))
	defer mustClose(t, s)
	syncing, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	disk.Before(func(op storetest.Operation) error {
		if op.Kind == storetest.Sync && strings.HasSuffix(op.Path, logSuffix) {
			once.Do(func() {
				close(syncing)
				<-release
			})
		}
		return nil
	})
	done := make(chan error, 1)
	go func() {
		b := s.NewBatch()
		b.Set([]byte("a"), []byte("1"))
		done <- s.Commit(b, true)
	}()
	<-syncing
	// Visible before it is durable: this is why the rule exists.
	for {
		if _, err := s.Get([]byte("a"), nil); err == nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	select {
	case err := <-done:
		t.Fatalf("Commit returned %v before the sync did", err)
	default:
	}
	lost := mustOpen(t, testDir, memOptions(disk.Mem().CrashClone(vfs.CrashCloneCfg{})))
	wantMissing(t, lost, "a")
	mustClose(t, lost)
	close(release)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	kept := mustOpen(t, testDir, memOptions(disk.Mem().CrashClone(vfs.CrashCloneCfg{})))
	wantValue(t, kept, "a", "1")
	mustClose(t, kept)
}

func TestH7FailedSyncStopsTheStore(t *testing.T) {
	disk := storetest.NewDisk()
	failures := make(chan error, 2)
	o := memOptions(disk.FS())
	o.OnFail = func(err error) { failures <- err }
	s := mustOpen(t, testDir, o)
	put(t, s, "before", "1")
	it := s.Iterate(nil, nil)
	var broken atomic.Bool
	disk.Before(func(op storetest.Operation) error {
		if op.Kind == storetest.Sync && strings.HasSuffix(op.Path, logSuffix) && broken.CompareAndSwap(false, true) {
			return syscall.EIO // once: the next sync would succeed wrongly
		}
		return nil
	})
	b := s.NewBatch()
	b.Set([]byte("lost"), []byte("1"))
	err := s.Commit(b, true)
	wantError(t, err, driver.ErrUnavailable, logSuffix, "sync")
	if !errors.Is(err, ErrFailed) || !errors.Is(err, syscall.EIO) {
		t.Errorf("%v does not wrap ErrFailed and EIO", err)
	}
	for call, err := range map[string]error{
		"Commit":  s.Commit(b, true),
		"Commit2": s.Commit(s.NewBatch(), false),
		"Sync":    s.Sync(),
		"Get":     func() error { _, err := s.Get([]byte("before"), nil); return err }(),
		"Get2":    func() error { _, err := s.Get([]byte("lost"), nil); return err }(),
		"Iterate": s.Iterate(nil, nil).Close(),
		"Next":    func() error { it.Next(); return it.Err() }(),
		"Drop":    s.DropRange(t.Context(), []byte("a"), []byte("z")),
		"Backup":  s.Backup(t.Context(), "/backup"),
		"Verify":  s.Verify(t.Context()),
		"Admit":   s.Admit(),
		"Health":  s.Health().Failed,
	} {
		if !errors.Is(err, ErrFailed) {
			t.Errorf("%s after the failure: %v", call, err)
		}
	}
	_ = it.Close()
	if err := s.Close(); !errors.Is(err, ErrFailed) {
		t.Errorf("Close: %v", err)
	}
	if err := <-failures; !errors.Is(err, ErrFailed) {
		t.Errorf("OnFail got %v", err)
	}
	if len(failures) != 0 {
		t.Error("OnFail was called twice")
	}
	again := mustOpen(t, testDir, memOptions(disk.Mem().CrashClone(vfs.CrashCloneCfg{})))
	defer mustClose(t, again)
	wantValue(t, again, "before", "1")
	wantMissing(t, again, "lost")
}

// A caller that waits for a failing disk gets the error; none hangs.
func TestH7NoCallerHangsWhenTheDiskFails(t *testing.T) {
	disk := storetest.NewDisk()
	o := memOptions(disk.FS())
	closed := make(chan error, 1)
	var s *Store
	o.OnFail = func(error) { closed <- s.Close() }
	s = mustOpen(t, testDir, o)
	var syncs atomic.Int64
	disk.Before(func(op storetest.Operation) error {
		if op.Kind == storetest.Sync && syncs.Add(1) > 40 {
			return syscall.EIO
		}
		return nil
	})
	var wg sync.WaitGroup
	for w := range 16 {
		wg.Go(func() {
			b := s.NewBatch()
			for i := 0; ; i++ {
				b.Set([]byte(numbered(fmt.Sprintf("w%d/", w), i)), make([]byte, 3000))
				if err := s.Commit(b, i%3 != 0); err != nil {
					if !errors.Is(err, ErrFailed) && !errors.Is(err, driver.ErrClosed) {
						t.Errorf("Commit: %v", err)
					}
					return
				}
			}
		})
	}
	wg.Wait()
	if err := <-closed; !errors.Is(err, ErrFailed) {
		t.Errorf("Close: %v", err)
	}
}

func TestH7DamagedTablesAreReportedNotFatal(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	fs := vfs.NewMem()
	s := mustOpen(t, testDir, memOptions(fs))
	for i := range 100 {
		put(t, s, numbered("k", i), string(noise(rng, 500)))
	}
	if err := s.db.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := s.db.Compact(t.Context(), []byte("k"), []byte("l"), false); err != nil {
		t.Fatal(err)
	}
	mustClose(t, s)
	tables := engineFiles(t, fs, func(base string) bool { return classOf(base) == classTable })
	largest := slices.MaxFunc(tables, func(a, b string) int {
		return len(readFile(t, fs, a)) - len(readFile(t, fs, b))
	})
	data, err := fs.UnsafeGetFileDataBuffer(largest)
	if err != nil {
		t.Fatal(err)
	}
	data[100] ^= 1 // in the first block of the table
	reports := make(chan Corruption, 10)
	o := memOptions(fs)
	o.OnCorruption = func(c Corruption) { reports <- c }
	s = mustOpen(t, testDir, o)
	_, err = s.Get([]byte(numbered("k", 0)), nil)
	wantError(t, err, driver.ErrIntegrity)
	it := s.Iterate(nil, nil)
	for it.Next() {
	}
	wantError(t, it.Close(), driver.ErrIntegrity)
	wantError(t, s.Verify(t.Context()), driver.ErrIntegrity)
	report := <-reports
	if report.File != largest || string(report.First) > numbered("k", 0) || report.Err == nil {
		t.Errorf("report: %+v", report)
	}
	if h := s.Health(); len(h.Corruptions) != 1 || h.Failed != nil || h.Ready() {
		t.Errorf("health: %+v", h)
	}
	put(t, s, "still", "working")
	wantValue(t, s, "still", "working")
	mustClose(t, s)
}

// The engine gives up for other reasons than failed writes, too.
func TestH7FatalErrorOfTheEngineStopsTheStore(t *testing.T) {
	failures := make(chan error, 1)
	o := memOptions(vfs.NewMem())
	o.OnFail = func(err error) { failures <- err }
	s := mustOpen(t, testDir, o)
	put(t, s, "before", "1")
	s.fuse.Fatalf("cannot go on: %d", 42) // the logger of the engine
	b := s.NewBatch()
	b.Set([]byte("after"), []byte("1"))
	err := s.Commit(b, true)
	wantError(t, err, driver.ErrUnavailable, "cannot go on: 42")
	if !errors.Is(err, ErrFailed) || !errors.Is(<-failures, ErrFailed) {
		t.Errorf("%v does not wrap ErrFailed", err)
	}
	if err := s.Close(); !errors.Is(err, ErrFailed) {
		t.Errorf("Close: %v", err)
	}
	again := mustOpen(t, testDir, memOptions(o.FS))
	defer mustClose(t, again)
	wantValue(t, again, "before", "1")
	wantMissing(t, again, "after")
}

// A caller can stop the store like a failing disk.
func TestH7CallerCanStopTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := storetest.NewDisk()
		o := memOptions(disk.FS())
		var told atomic.Int64
		o.OnFail = func(error) { told.Add(1) }
		s := mustOpen(t, testDir, o)
		put(t, s, "a", "1")
		cause := errors.New("my own reason")
		s.Fail(cause)
		s.Fail(cause)
		synctest.Wait()
		if told.Load() != 1 {
			t.Errorf("OnFail was called %d times", told.Load())
		}
		b := s.NewBatch()
		b.Set([]byte("b"), []byte("2"))
		_, getErr := s.Get([]byte("a"), nil)
		for call, err := range map[string]error{"commit": s.Commit(b, true), "get": getErr, "admit": s.Admit(), "close": s.Close()} {
			if !errors.Is(err, ErrFailed) || !errors.Is(err, cause) || !errors.Is(err, driver.ErrUnavailable) {
				t.Errorf("%s: %v", call, err)
			}
		}
		s = mustOpen(t, testDir, memOptions(disk.FS()))
		defer mustClose(t, s)
		wantValue(t, s, "a", "1")
		wantMissing(t, s, "b")
	})
}
