package store

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/storetest"
)

func TestCommitsArePresentAfterReopening(t *testing.T) {
	o := memOptions(vfs.NewMem())
	s := mustOpen(t, testDir, o)
	put(t, s, "a", "1")
	put(t, s, "b", "2")
	mustClose(t, s)
	s = mustOpen(t, testDir, o)
	defer mustClose(t, s)
	wantValue(t, s, "a", "1")
	wantValue(t, s, "b", "2")
	wantMissing(t, s, "c")
}

func TestBatchIsAppliedInOrderAndEmptied(t *testing.T) {
	s := mustOpen(t, testDir, memOptions(vfs.NewMem()))
	defer mustClose(t, s)
	for i := range 6 {
		put(t, s, numbered("k", i), "old")
	}
	b := s.NewBatch()
	b.Set([]byte(numbered("k", 1)), []byte("first"))
	b.Set([]byte(numbered("k", 1)), []byte("second"))
	b.Delete([]byte(numbered("k", 2)))
	b.DeleteSized([]byte(numbered("k", 3)), len("old"))
	b.DeleteRange([]byte(numbered("k", 4)), []byte(numbered("k", 6)))
	b.Set([]byte(numbered("k", 5)), []byte("after the range"))
	if b.Len() != 6 || b.Size() == 0 {
		t.Errorf("Len %d, Size %d", b.Len(), b.Size())
	}
	if err := s.Commit(b, true); err != nil {
		t.Fatal(err)
	}
	if b.Len() != 0 {
		t.Errorf("Len %d after Commit", b.Len())
	}
	wantValue(t, s, numbered("k", 0), "old")
	wantValue(t, s, numbered("k", 1), "second")
	wantMissing(t, s, numbered("k", 2))
	wantMissing(t, s, numbered("k", 3))
	wantMissing(t, s, numbered("k", 4))
	wantValue(t, s, numbered("k", 5), "after the range")
	b.Set([]byte("x"), []byte("1"))
	b.Reset()
	if err := s.Commit(b, true); err != nil {
		t.Errorf("an empty batch: %v", err)
	}
	wantMissing(t, s, "x")
}

func TestReusedBatchDoesNotAllocate(t *testing.T) {
	s := mustOpen(t, testDir, &Options{FS: vfs.NewMem(), BallastBytes: -1})
	defer mustClose(t, s)
	b := s.NewBatch()
	key, value := []byte("key"), make([]byte, 100)
	commit := func() {
		b.Set(key, value)
		b.Delete(key)
		if err := s.Commit(b, false); err != nil {
			t.Fatal(err)
		}
	}
	commit()
	// The engine allocates now and then, when a block of its log is full.
	if n := testing.AllocsPerRun(1000, commit); n > 1 {
		t.Errorf("%v allocations per commit", n)
	}
}

func TestReservedKeysAreRefused(t *testing.T) {
	s := mustOpen(t, testDir, memOptions(vfs.NewMem()))
	defer mustClose(t, s)
	for _, key := range [][]byte{nil, {}, {0}, bootKey} {
		b := s.NewBatch()
		b.Set(key, []byte("x"))
		b.Set([]byte("fine"), []byte("x"))
		wantError(t, s.Commit(b, true), driver.ErrInvalid, "key")
		b.Reset()
		b.DeleteRange(key, []byte("z"))
		wantError(t, s.Commit(b, true), driver.ErrInvalid, "key")
		wantError(t, s.DropRange(t.Context(), key, []byte("z")), driver.ErrInvalid)
		it := s.Iterate(key, nil)
		if it.Next() {
			t.Errorf("Iterate(%q) shows %q", key, it.Key())
		}
		_ = it.Close()
	}
	wantMissing(t, s, "fine")
	wantError(t, s.DropRange(t.Context(), []byte("b"), []byte("a")), driver.ErrInvalid)
}

func TestTooLargeBatchIsRefused(t *testing.T) {
	s := mustOpen(t, testDir, memOptions(vfs.NewMem()))
	defer mustClose(t, s)
	b := s.NewBatch()
	b.Set([]byte("a"), []byte("1"))
	b.Set([]byte("b"), make([]byte, MaxBatchBytes))
	wantError(t, s.Commit(b, true), driver.ErrTooLarge)
	wantMissing(t, s, "a")
}

func TestIteratorWalksItsRangeBothWays(t *testing.T) {
	s := mustOpen(t, testDir, memOptions(vfs.NewMem()))
	defer mustClose(t, s)
	for i := range 10 {
		put(t, s, numbered("k", i), fmt.Sprint(i))
	}
	lo, hi := []byte(numbered("k", 2)), []byte(numbered("k", 8))
	it := s.Iterate(lo, hi)
	lo[0], hi[0] = 'x', 'x' // the caller may reuse them
	put(t, s, numbered("k", 3), "changed")
	var got []string
	for _, value := range it.All() {
		got = append(got, string(value))
	}
	if want := []string{"2", "3", "4", "5", "6", "7"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if !it.Last() || string(it.Value()) != "7" {
		t.Errorf("Last: %q", it.Value())
	}
	if !it.Prev() || string(it.Key()) != numbered("k", 6) {
		t.Errorf("Prev: %q", it.Key())
	}
	if !it.Seek([]byte(numbered("k", 4))) || string(it.Value()) != "4" {
		t.Errorf("Seek: %q", it.Value())
	}
	if it.Seek([]byte(numbered("k", 8))) {
		t.Errorf("Seek went beyond the range, to %q", it.Key())
	}
	if err := errors.Join(it.Close(), it.Close()); err != nil {
		t.Error(err)
	}
	if it.Next() {
		t.Error("Next after Close")
	}
}

func TestCloseWaitsForCallsAndIterators(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := mustOpen(t, testDir, memOptions(vfs.NewMem()))
		put(t, s, "a", "1")
		it := s.Iterate(nil, nil)
		closed := make(chan error, 1)
		go func() { closed <- s.Close() }()
		synctest.Wait()
		select {
		case <-closed:
			t.Fatal("Close did not wait for the iterator")
		default:
		}
		if !it.Next() || string(it.Key()) != "a" {
			t.Errorf("the iterator does not work any more: %v", it.Err())
		}
		// Other calls are refused, so that the owner of the iterator cannot wait for Close
		// while Close waits for it.
		if _, err := s.Get([]byte("a"), nil); !errors.Is(err, driver.ErrClosed) {
			t.Errorf("Get: %v", err)
		}
		_ = it.Close()
		if err := <-closed; err != nil {
			t.Error(err)
		}
		for call, err := range map[string]error{
			"Commit":  s.Commit(&Batch{}, true),
			"Sync":    s.Sync(),
			"Iterate": s.Iterate(nil, nil).Close(),
			"Drop":    s.DropRange(t.Context(), []byte("a"), []byte("b")),
			"Backup":  s.Backup(t.Context(), "/backup"),
			"Verify":  s.Verify(t.Context()),
			"Admit":   s.Admit(),
		} {
			if !errors.Is(err, driver.ErrClosed) {
				t.Errorf("%s after Close: %v", call, err)
			}
		}
		if err := s.Close(); err != nil {
			t.Errorf("Close again: %v", err)
		}
		_ = s.Health()
	})
}

// logSyncs counts the syncs of logs.
func logSyncs(disk *storetest.Disk) *atomic.Int64 {
	count := new(atomic.Int64)
	disk.Before(func(op storetest.Operation) error {
		if op.Kind == storetest.Sync && strings.HasSuffix(op.Path, logSuffix) {
			count.Add(1)
		}
		return nil
	})
	return count
}

func TestSyncIntervalSyncsOnceAndInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := storetest.NewDisk()
		o := memOptions(disk.FS())
		o.MemTableBytes = 16 << 20
		o.Sync = SyncInterval(time.Second)
		s := mustOpen(t, testDir, o)
		defer mustClose(t, s)
		time.Sleep(time.Minute)
		syncs := logSyncs(disk)
		for i := range 100 { // without an idle time that seals
			put(t, s, numbered("k", i), "v")
			time.Sleep(9 * time.Millisecond)
		}
		if n := syncs.Load(); n != 0 {
			t.Errorf("%d syncs within the interval", n)
		}
		put(t, s, numbered("k", 100), "v")
		time.Sleep(49 * time.Millisecond)
		put(t, s, numbered("k", 101), "v")
		time.Sleep(49 * time.Millisecond)
		put(t, s, numbered("k", 102), "v")
		time.Sleep(3 * time.Millisecond) // a second has passed since the first one
		synctest.Wait()
		if n := syncs.Load(); n != 1 {
			t.Errorf("%d syncs after the interval, want 1", n)
		}
		after := mustOpen(t, testDir, memOptions(disk.Mem().CrashClone(vfs.CrashCloneCfg{})))
		wantValue(t, after, numbered("k", 102), "v")
		mustClose(t, after)
		syncs.Store(0)
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := syncs.Load(); n > 2 {
			t.Errorf("%d syncs while idle, want one seal", n)
		}
	})
}

func TestSyncNoneSyncsOnlyWhenTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := storetest.NewDisk()
		o := memOptions(disk.FS())
		o.Sync = SyncNone()
		s := mustOpen(t, testDir, o)
		syncs := logSyncs(disk)
		put(t, s, "a", "1")
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := syncs.Load(); n != 0 {
			t.Errorf("%d syncs", n)
		}
		if err := s.Sync(); err != nil {
			t.Fatal(err)
		}
		if n := syncs.Load(); n != 1 {
			t.Errorf("%d syncs after Sync", n)
		}
		after := mustOpen(t, testDir, memOptions(disk.Mem().CrashClone(vfs.CrashCloneCfg{})))
		wantValue(t, after, "a", "1")
		mustClose(t, after)
		put(t, s, "b", "2")
		mustClose(t, s)
		after = mustOpen(t, testDir, memOptions(disk.Mem().CrashClone(vfs.CrashCloneCfg{})))
		wantValue(t, after, "b", "2")
		mustClose(t, after)
	})
}

// With every policy, the operating system has a durable commit when it returns: the end of the
// process does not lose it.
func TestLazyCommitsSurviveTheProcess(t *testing.T) {
	for _, policy := range []SyncPolicy{SyncInterval(time.Hour), SyncNone()} {
		disk := storetest.NewDisk()
		o := memOptions(disk.FS())
		o.Sync = policy
		s := mustOpen(t, testDir, o)
		for i := range 50 {
			put(t, s, numbered("k", i), strings.Repeat("x", 700))
		}
		// All writes, synced or not: what a killed process leaves.
		rng := rand.New(rand.NewPCG(1, 1))
		left := disk.Mem().CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rng})
		mustClose(t, s)
		after := mustOpen(t, testDir, memOptions(left))
		for i := range 50 {
			wantValue(t, after, numbered("k", i), strings.Repeat("x", 700))
		}
		mustClose(t, after)
	}
}

func TestUnsyncedCommitIsSyncedWithinSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := storetest.NewDisk()
		s := mustOpen(t, testDir, memOptions(disk.FS()))
		defer mustClose(t, s)
		time.Sleep(time.Minute)
		syncs := logSyncs(disk)
		b := s.NewBatch()
		for i := range 45 { // never idle long enough to seal
			b.Set([]byte(numbered("lease", i)), []byte("v"))
			if err := s.Commit(b, false); err != nil {
				t.Fatal(err)
			}
			time.Sleep(s.options.SealAfter / 2)
		}
		if n := syncs.Load(); n != 1 && n != 2 {
			t.Errorf("%d syncs in a good second", n)
		}
	})
}

func TestDropRangeRemovesFromMemoryAndDisk(t *testing.T) {
	o := memOptions(vfs.NewMem())
	s := mustOpen(t, testDir, o)
	for i := range 100 {
		put(t, s, numbered("q1/", i), strings.Repeat("x", 3000))
		put(t, s, numbered("q2/", i), "kept")
	}
	if err := s.DropRange(t.Context(), []byte("q1/"), []byte("q10")); err != nil {
		t.Fatal(err)
	}
	put(t, s, "q1/new", "1")
	mustClose(t, s)
	s = mustOpen(t, testDir, o)
	defer mustClose(t, s)
	it := s.Iterate([]byte("q1/"), []byte("q10"))
	for key := range it.All() {
		if string(key) != "q1/new" {
			t.Errorf("%q is still there", key)
		}
	}
	if err := it.Close(); err != nil {
		t.Error(err)
	}
	wantValue(t, s, "q1/new", "1")
	wantValue(t, s, numbered("q2/", 99), "kept")
	if err := s.Verify(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestStoreIsSafeForConcurrentUse(t *testing.T) {
	s := mustOpen(t, testDir, memOptions(vfs.NewMem()))
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			prefix := fmt.Sprintf("w%d/", w)
			b := s.NewBatch()
			for i := range 100 {
				b.Set([]byte(numbered(prefix, i)), make([]byte, 500))
				if i > 0 {
					b.DeleteSized([]byte(numbered(prefix, i-1)), 500)
				}
				if err := s.Commit(b, i%2 == 0); err != nil {
					t.Error(err)
				}
				it := s.Iterate([]byte(prefix), []byte(prefix+"~"))
				n := 0
				for range it.All() {
					n++
				}
				if err := it.Close(); err != nil || n != 1 {
					t.Errorf("%d keys, %v", n, err)
				}
				_, _ = s.Health(), s.Admit()
			}
		})
	}
	wg.Wait()
	mustClose(t, s)
}
