package store

import (
	"errors"
	"log/slog"
	"syscall"
	"testing"
	"testing/synctest"
)

// TestFailureAsOpenReturnsIsReported blows a fuse before and after it is armed: OnFail is called
// once, and not before Open has returned.
func TestFailureAsOpenReturnsIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []error
		f := &fuse{log: slog.New(slog.DiscardHandler), onFail: func(err error) { told = append(told, err) }}
		f.blow("000002.log", "a write", syscall.EIO)
		synctest.Wait()
		if len(told) > 0 {
			t.Errorf("OnFail was called before Open has returned: %v", told)
		}
		f.arm()
		f.blow("000002.log", "a sync", syscall.ENOSPC)
		synctest.Wait()
		if len(told) != 1 || !errors.Is(told[0], ErrFailed) || !errors.Is(f.blown(), ErrFailed) {
			t.Errorf("OnFail was called with %v", told)
		}
	})
}
