package store

import (
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
)

// ExitCode is what the process exits with when a write fails and
// Options.OnFail is nil: EX_IOERR of sysexits.h. It is distinct from the codes
// of a panic (2) and of an ordinary error (1), so that a supervisor can tell.
const ExitCode = 74

// A fuse blows once, at the first write or sync that fails, and stays blown.
// Linux marks the pages of a failed fsync clean, so a second fsync would lie;
// the only honest state after the first failure is "stopped".
type fuse struct {
	log    *slog.Logger
	onFail func(error)
	// armed is set when Open has returned: before that a failure is Open's
	// result, and no caller needs to be told twice.
	armed atomic.Bool
	state atomic.Pointer[blownFuse]
}

type blownFuse struct {
	failure error // what callers get
	file    string
	cause   error // what the file system said
}

// blown returns nil while all is well.
func (f *fuse) blown() error {
	if state := f.state.Load(); state != nil {
		return state.failure
	}
	return nil
}

// blownAtOpen returns the same as an error of Open: no caller has been promised
// anything yet, so the plain error says more.
func (f *fuse) blownAtOpen(op string) error {
	if state := f.state.Load(); state != nil {
		return ioError(op, state.file, state.cause)
	}
	return nil
}

// blow stops the store. It returns when the state is set; only then may the
// operation that failed be allowed to return to the engine.
func (f *fuse) blow(file, what string, cause error) {
	failure := failedError(file, what, cause)
	if !f.state.CompareAndSwap(nil, &blownFuse{failure: failure, file: file, cause: cause}) || !f.armed.Load() {
		return
	}
	f.log.Error("store failed", "file", file, "operation", what, "error", cause)
	if f.onFail == nil {
		fmt.Fprintln(os.Stderr, failure)
		os.Exit(ExitCode) // the messages in memory are worthless now, and OnFail is nil
	}
	// In a goroutine of its own, because the caller may hold locks that the
	// callback needs: it is allowed to close the store.
	go f.onFail(failure)
}

// Infof, Errorf and Fatalf make a fuse the engine's logger.
func (f *fuse) Infof(format string, args ...any) {
	f.log.Debug("engine", "message", fmt.Sprintf(format, args...))
}

func (f *fuse) Errorf(format string, args ...any) {
	f.log.Warn("engine", "message", fmt.Sprintf(format, args...))
}

// Fatalf is what the engine calls when it cannot go on. It expects not to
// return, but every place that calls it copes when it does, and returning is
// what keeps the engine's locks from being held for ever: by then the disk is
// cut off (see guardFS) and no caller is told ok.
func (f *fuse) Fatalf(format string, args ...any) {
	f.blow("engine", "an operation", fmt.Errorf(format, args...))
}
