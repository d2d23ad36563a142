package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/storetest"
)

// backupWhileBusy takes backups while writers write, and checks each of them like a crash
// image: every commit acknowledged before is present, and every commit entirely or not at all.
func backupWhileBusy(t *testing.T, s *Store, backups int, target func(n int) string, open func(dir string) *Store) {
	t.Helper()
	r := &crashRun{ctx: t.Context(), rng: rand.New(rand.NewPCG(1, 1))}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for w := range crashWriters {
		wg.Go(func() {
			b := s.NewBatch()
			for n := int64(1); ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				b.Set(writerKey(w, n), writerValue(w, n))
				b.Set(writerLast(w), strconv.AppendInt(nil, n, 10))
				b.Delete(writerKey(w, n-crashKept))
				r.writers[w].issued.Store(n)
				if err := s.Commit(b, true); err != nil {
					t.Error(err)
					return
				}
				r.writers[w].acked.Store(n)
			}
		})
	}
	for n := range backups {
		e := r.before()
		if err := s.Backup(t.Context(), target(n)); err != nil {
			t.Errorf("backup %d: %v", n, err)
			break
		}
		r.after(&e)
		copied := open(target(n))
		if err := r.compare(copied, &e); err != nil {
			t.Errorf("backup %d: %v", n, err)
		}
		if err := copied.Verify(t.Context()); err != nil {
			t.Errorf("backup %d: %v", n, err)
		}
		put(t, copied, "goes", "on")
		mustClose(t, copied)
	}
	close(stop)
	wg.Wait()
}

func TestBackupUnderLoadIsConsistent(t *testing.T) {
	t.Run("memory", func(t *testing.T) {
		fs := vfs.NewMem()
		s := mustOpen(t, testDir, memOptions(fs))
		defer mustClose(t, s)
		backupWhileBusy(t, s, 8, func(n int) string { return fmt.Sprintf("/backup/%d", n) },
			func(dir string) *Store { return mustOpen(t, dir, memOptions(fs)) })
	})
	t.Run("disk", func(t *testing.T) {
		dir := t.TempDir()
		s := mustOpen(t, filepath.Join(dir, "store"), diskOptions())
		defer mustClose(t, s)
		backupWhileBusy(t, s, 3, func(n int) string { return filepath.Join(dir, "backup", strconv.Itoa(n)) },
			func(dir string) *Store { return mustOpen(t, dir, diskOptions()) })
	})
}

func TestBackupDoesNotOverwrite(t *testing.T) {
	mem := vfs.NewMem()
	s := mustOpen(t, testDir, memOptions(mem))
	defer mustClose(t, s)
	if err := s.Backup(t.Context(), "/backup"); err != nil {
		t.Fatal(err)
	}
	wantError(t, s.Backup(t.Context(), "/backup"), driver.ErrConflict, "/backup", "choose another")
	wantError(t, s.Backup(t.Context(), testDir), driver.ErrInvalid, testDir)
	wantError(t, s.Backup(t.Context(), testDir+"/db/below/it"), driver.ErrInvalid, testDir)
	writeFile(t, mem, "/file", []byte("x"))
	wantError(t, s.Backup(t.Context(), "/file"), driver.ErrInvalid, "/file")
	mustClose(t, mustOpen(t, "/backup", memOptions(mem)))
}

// A failed backup does not affect the store.
func TestFailedBackupLeavesNothingAndStoreContinues(t *testing.T) {
	for _, errno := range []error{syscall.EIO, syscall.ENOSPC} {
		for n := int64(1); ; n++ {
			disk := storetest.NewDisk()
			o := memOptions(disk.FS())
			o.BallastBytes = 1000
			s := mustOpen(t, testDir, o)
			put(t, s, "a", "1")
			var seen atomic.Int64
			disk.Before(func(op storetest.Operation) error {
				// A failed link becomes a copy, and a failed removal leaves the file.
				optional := op.Kind == storetest.Link || op.Kind == storetest.Remove
				if strings.HasPrefix(op.Path, "/backup") && !optional && seen.Add(1) == n {
					return errno
				}
				return nil
			})
			err := s.Backup(t.Context(), "/backup")
			over := seen.Load() < n
			if !over && err == nil {
				t.Fatalf("operation %d failed with %v and Backup returned nil", n, errno)
			}
			if err != nil && !isDriverError(err) {
				t.Errorf("%T is not an *driver.Error: %v", err, err)
			}
			disk.Before(func(storetest.Operation) error { return nil })
			put(t, s, "b", "2")
			if h := s.Health(); h.Failed != nil || h.DiskFull {
				t.Errorf("operation %d: health: %+v", n, h)
			}
			mustClose(t, s)
			if over {
				break
			}
			if names, _ := disk.Mem().List("/backup"); len(names) > 1 {
				t.Errorf("operation %d: left behind: %v", n, names)
			}
		}
	}
}

func TestBackupCanBeCancelled(t *testing.T) {
	disk := storetest.NewDisk()
	s := mustOpen(t, testDir, memOptions(disk.FS()))
	defer mustClose(t, s)
	for i := range 100 {
		put(t, s, numbered("k", i), strings.Repeat("x", 3000))
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	disk.Before(func(op storetest.Operation) error {
		if strings.HasPrefix(op.Path, "/backup") && strings.Contains(op.Path, "OPTIONS") {
			cancel()
		}
		return nil
	})
	if err := s.Backup(ctx, "/backup"); !errors.Is(err, context.Canceled) || isDriverError(err) {
		t.Errorf("Backup: %v", err)
	}
	if names, _ := disk.Mem().List("/backup"); len(names) != 0 {
		t.Errorf("left behind: %v", names)
	}
	if err := s.Backup(t.Context(), "/backup"); err != nil {
		t.Error(err)
	}
}

func TestCrashDuringBackupHarmsNeitherSide(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	disk := storetest.NewDisk()
	s := mustOpen(t, testDir, memOptions(disk.FS()))
	defer mustClose(t, s)
	for i := range 30 {
		put(t, s, numbered("k", i), strings.Repeat("x", 3000))
	}
	check := func(image *vfs.MemFS, dir string) {
		copied := mustOpen(t, dir, memOptions(image))
		for i := range 30 {
			wantValue(t, copied, numbered("k", i), strings.Repeat("x", 3000))
		}
		mustClose(t, copied)
	}
	disk.Before(func(op storetest.Operation) error {
		if strings.HasPrefix(op.Path, "/backup") && op.Kind.Durability() {
			image := disk.Image(rng)
			check(image, testDir)
			if names, err := image.List("/backup/" + engineDir); err == nil && len(names) > 0 {
				check(image, "/backup")
			}
		}
		return nil
	})
	if err := s.Backup(t.Context(), "/backup"); err != nil {
		t.Fatal(err)
	}
	disk.Before(func(storetest.Operation) error { return nil })
	check(disk.Mem().CrashClone(vfs.CrashCloneCfg{}), "/backup")
}
