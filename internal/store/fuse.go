package store

import (
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
)

// ExitCode is the exit code of the process when a write fails and Options.OnFail is nil:
// EX_IOERR of sysexits.h. It differs from the codes of a panic (2) and of an ordinary error
// (1), so that a supervisor can react.
const ExitCode = 74

// A fuse blows once, at the first failed write or sync, and stays blown. Linux marks the pages
// of a failed fsync clean, so a second fsync would succeed wrongly; the only safe state after
// the first failure is "stopped".
type fuse struct {
	log    *slog.Logger
	onFail func(error)
	// armed is set when Open has returned: before that a failure is the result of Open, and
	// OnFail is not called.
	armed atomic.Bool
	told  atomic.Bool // the failure was reported
	state atomic.Pointer[blownFuse]
}

type blownFuse struct {
	failure   error // returned to callers
	file      string
	operation string
	cause     error // of the file system
}

// blown returns the error of a blown fuse, or nil.
func (f *fuse) blown() error {
	if state := f.state.Load(); state != nil {
		return state.failure
	}
	return nil
}

// blownAtOpen is blown for Open: no commit has succeeded yet, so the plain error says more.
func (f *fuse) blownAtOpen(op string) error {
	if state := f.state.Load(); state != nil {
		return ioError(op, state.file, state.cause)
	}
	return nil
}

// blow stops the store. The failed operation may return to the engine only after blow has
// returned.
func (f *fuse) blow(file, what string, cause error) {
	state := &blownFuse{failure: failedError(file, what, cause), file: file, operation: what, cause: cause}
	if f.state.CompareAndSwap(nil, state) && f.armed.Load() {
		f.tell(state)
	}
}

// arm lets failures be reported from now on, and reports one that happened since Open has last
// looked for it.
func (f *fuse) arm() {
	f.armed.Store(true)
	if state := f.state.Load(); state != nil {
		f.tell(state)
	}
}

// tell reports a failure, once.
func (f *fuse) tell(state *blownFuse) {
	if !f.told.CompareAndSwap(false, true) {
		return
	}
	f.log.Error("store failed", "file", state.file, "operation", state.operation, "error", state.cause)
	if f.onFail == nil {
		fmt.Fprintln(os.Stderr, state.failure)
		os.Exit(ExitCode) // the state in memory is invalid, and OnFail is nil
	}
	// In a goroutine, because the caller may hold locks that the callback needs: it is allowed
	// to close the store.
	go f.onFail(state.failure)
}

// Infof, Errorf and Fatalf make a fuse the logger of the engine.
func (f *fuse) Infof(format string, args ...any) {
	f.log.Debug("engine", "message", fmt.Sprintf(format, args...))
}

func (f *fuse) Errorf(format string, args ...any) {
	f.log.Warn("engine", "message", fmt.Sprintf(format, args...))
}

// Fatalf is called when the engine cannot continue. The engine expects it not to return, but
// every call site works if it does, and returning releases the engine's locks. By then no write
// reaches the disk (see guardFS) and no call succeeds.
func (f *fuse) Fatalf(format string, args ...any) {
	f.blow("engine", "an operation", fmt.Errorf(format, args...))
}
