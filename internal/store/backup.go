package store

import (
	"context"
	"sync"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/mailboxmq/mailbox/driver"
)

// Backup writes a complete copy of the store to dir, which must not exist or be empty, while
// the store stays in use. The copy has at least every commit before the call, and each later
// commit entirely or not at all. Open opens it like any store, in place or copied elsewhere.
//
// On the same file system tables are linked, not copied, so a backup takes little time and, at
// first, no space. When ctx ends, Backup stops and returns its error; like every error, that
// leaves nothing of the copy behind. A full or failing disk under dir is an error of the backup
// and does not stop the store. Codes: ErrConflict, ErrInvalid, ErrFull, ErrUnavailable,
// ErrClosed.
func (s *Store) Backup(ctx context.Context, dir string) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	if s.options.ReadOnly {
		return &driver.Error{Code: driver.ErrUnsupported, Op: "backup", Detail: "the store is open for reading only"}
	}
	s.backups.Lock()
	defer s.backups.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	fs := s.options.FS
	if fs == localFS {
		dir = canonical(dir)
	}
	if inside(fs, dir, s.dir) {
		return fileError(driver.ErrInvalid, "backup", dir, "is inside of the store; choose another directory", nil)
	}
	fresh, err := prepareDir(fs, dir, false)
	if err != nil {
		return err
	}
	if !fresh {
		return fileError(driver.ErrConflict, "backup", dir, "holds a store already; choose another directory", nil)
	}
	if err := tighten(fs, dir); err != nil {
		return ioError("backup", dir, err)
	}
	creating := fs.PathJoin(dir, creatingDir)
	if err := fs.RemoveAll(creating); err != nil {
		return ioError("backup", creating, err)
	}
	if err := s.copyTo(ctx, creating); err != nil {
		_ = fs.RemoveAll(creating)
		return err
	}
	if err := publish(fs, dir, s.id); err != nil {
		_ = fs.RemoveAll(creating)
		return err
	}
	return nil
}

// inside reports whether path is dir or below it.
func inside(fs vfs.FS, path, dir string) bool {
	for path != dir {
		parent := fs.PathDir(path)
		if parent == path {
			return false
		}
		path = parent
	}
	return true
}

// A backupRun is a running backup.
type backupRun struct {
	cancelled func() error
	path      string

	mu  sync.Mutex
	err error
}

// fail records the first error that is hidden from the engine.
func (r *backupRun) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = ioError("backup", r.path, err)
	}
}

// problem returns why the backup must stop, or nil.
func (r *backupRun) problem() error {
	if err := r.cancelled(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// copyTo makes the engine copy the store. The log is sealed first, so that a watermark covers
// its copy too.
func (s *Store) copyTo(ctx context.Context, path string) error {
	if err := s.sealLog(); err != nil {
		return err
	}
	run := &backupRun{cancelled: ctx.Err, path: path}
	s.guard.backup.Store(run)
	defer s.guard.backup.Store(nil)
	err := s.db.Checkpoint(path, pebble.WithFlushedWAL())
	if problem := run.problem(); problem != nil {
		return problem
	}
	if failure := s.fuse.blown(); failure != nil {
		return failure
	}
	if err == nil {
		err = listLogs(s.options.FS, path)
	}
	return ioError("backup", path, err)
}
