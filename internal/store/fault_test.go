package store

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/storetest"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

// A faultRun makes one operation on the disk fail and checks the reaction of the store.
type faultRun struct {
	disk    *storetest.Disk
	fails   atomic.Int64 // how often OnFail was called
	done    chan struct{}
	injured atomic.Bool // the fault has happened
	commits int
	acked   int
	opened  bool
}

func faultValue(n int) string {
	return strings.Repeat(string(rune('a'+n%26)), 100+n%11*700)
}

// run uses a store for a short time and returns the first error.
func (r *faultRun) run(t *testing.T) error {
	o := memOptions(r.disk.FS())
	o.OnFail = func(error) {
		r.fails.Add(1)
		close(r.done)
	}
	s, err := Open(t.Context(), testDir, o)
	if err != nil {
		return err
	}
	r.opened = true
	b := s.NewBatch()
	for n := range r.commits {
		b.Set([]byte(numbered("k", n)), []byte(faultValue(n)))
		err = s.Commit(b, true)
		if err == nil && n%15 == 14 {
			err = s.DropRange(t.Context(), []byte("x"), []byte("y"))
		}
		if err != nil {
			break
		}
		r.acked = n + 1
	}
	if err != nil {
		again := s.NewBatch()
		again.Set([]byte("after"), []byte("failure"))
		for call, later := range map[string]error{"Commit": s.Commit(again, true), "Sync": s.Sync(), "Admit": s.Admit()} {
			if !errors.Is(later, ErrFailed) {
				return fmt.Errorf("%s after a failure (%w) says %v", call, err, later)
			}
		}
	}
	if closeErr := s.Close(); err == nil {
		err = closeErr
	}
	return err
}

// judge checks the state after the run. mustTell reports whether the fault must be reported.
func (r *faultRun) judge(t *testing.T, err error, mustTell bool) error {
	switch {
	case err != nil && !isDriverError(err):
		return fmt.Errorf("%T is not an *driver.Error: %w", err, err)
	case r.opened && err != nil && !errors.Is(err, ErrFailed):
		return fmt.Errorf("not ErrFailed: %w", err)
	case mustTell && r.injured.Load() && err == nil:
		return errors.New("OnFail was not called")
	}
	if r.opened && errors.Is(err, ErrFailed) {
		<-r.done
		if n := r.fails.Load(); n != 1 {
			return fmt.Errorf("OnFail was called %d times", n)
		}
	}
	r.disk.Before(func(storetest.Operation) error { return nil })
	for _, image := range []*vfs.MemFS{r.disk.Mem().CrashClone(vfs.CrashCloneCfg{}), r.disk.Mem()} {
		s, err := Open(t.Context(), testDir, memOptions(image))
		if err != nil {
			return fmt.Errorf("cannot be opened again: %w", err)
		}
		for n := range r.acked {
			got, err := s.Get([]byte(numbered("k", n)), nil)
			if err != nil || string(got) != faultValue(n) {
				return errors.Join(fmt.Errorf("commit %d of %d: %w", n, r.acked, err), s.Close())
			}
		}
		if _, err := s.Get([]byte("after"), nil); !errors.Is(err, driver.ErrNotFound) {
			return errors.Join(errors.New("a commit after the failure took place"), s.Close())
		}
		if err := s.Close(); err != nil {
			return err
		}
	}
	return nil
}

func TestFailedDiskOperationIsReportedAndLosesNothing(t *testing.T) {
	volume.Repeats(t)
	for _, kind := range []storetest.Kind{storetest.Sync, storetest.SyncDir, storetest.Write, storetest.Create, storetest.Rename, storetest.Reuse, storetest.Remove} {
		commits := 40
		if kind == storetest.Sync && stride() == 1 {
			commits = 130 // enough for 200 syncs
		}
		t.Run(string(kind), func(t *testing.T) {
			happened := 0
			for n := 0; n < 200; n += stride() {
				r := &faultRun{disk: storetest.NewDisk(), done: make(chan struct{}), commits: commits}
				var seen atomic.Int64
				r.disk.Before(func(op storetest.Operation) error {
					if op.Kind != kind || seen.Add(1) != int64(n+1) {
						return nil
					}
					r.injured.Store(true)
					return syscall.EIO
				})
				err := r.run(t)
				if err := r.judge(t, err, kind != storetest.Remove); err != nil {
					t.Fatalf("%s number %d: %v", kind, n+1, err)
				}
				if !r.injured.Load() {
					break // the run ended before
				}
				happened++
			}
			t.Logf("%d operations failed", happened)
			if happened == 0 && kind != storetest.Reuse {
				t.Error("no operation failed")
			}
		})
	}
}
