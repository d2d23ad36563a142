package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/mailboxmq/mailbox/driver"
)

// Open opens the store in dir, and creates one if dir does not exist or is empty. It checks the
// seal of the MANIFEST, the list of logs and their watermarks before the engine reads them, so
// it takes at least as long as reading the logs. It checks ctx between the steps.
//
// Files are accessible to their owner only (0600), and so is dir (0700): an existing directory
// that is open to others is tightened, unless it belongs to another user.
//
// Errors name the file and say what to do. Open deletes nothing but the store's own leftovers
// of a crash. Codes: ErrInvalid (dir is not a directory, or an option is wrong), ErrConflict
// (dir is in use, or holds something else), ErrUnsupported (a newer format), ErrIntegrity (a
// file is damaged), ErrNotFound (ReadOnly, and there is no store), ErrFull, ErrUnavailable.
func Open(ctx context.Context, dir string, options *Options) (*Store, error) {
	o, err := options.withDefaults()
	if err != nil {
		return nil, err
	}
	if o.FS == localFS {
		dir = canonical(dir)
	}
	if o.ReadOnly {
		o.FS = unchangedFS{o.FS}
	}
	if _, err := prepareDir(o.FS, dir, o.ReadOnly); err != nil {
		return nil, err
	}
	lock, err := lockDir(o.FS, dir)
	if err != nil {
		return nil, err
	}
	s, err := openLocked(ctx, dir, o)
	if err != nil {
		_ = lock.Close()
		return nil, err
	}
	s.lock = lock
	s.fuse.arm()
	if !o.ReadOnly { // a refused directory is not changed
		if err := tighten(o.FS, dir); err != nil {
			return nil, errors.Join(ioError("open", dir, err), s.Close())
		}
	}
	return s, nil
}

// canonical returns one spelling for each directory, because a process can lock a file twice
// under two names.
func canonical(dir string) string {
	if absolute, err := filepath.Abs(dir); err == nil {
		dir = absolute
	}
	if resolved, err := filepath.EvalSymlinks(dir); err == nil {
		dir = resolved
	}
	return dir
}

// prepareDir creates the directory if necessary, and reports whether the store must be created.
// A directory that holds something else is not changed.
func prepareDir(files vfs.FS, dir string, readOnly bool) (fresh bool, err error) {
	info, err := files.Stat(dir)
	switch {
	case isNotExist(err) && readOnly:
		return false, fileError(driver.ErrNotFound, "open", dir, "there is no store; check the path", err)
	case isNotExist(err):
		if err := makeDir(files, dir); err != nil {
			return false, ioError("open", dir, err)
		}
		return true, nil
	case err != nil:
		return false, ioError("open", dir, err)
	case !info.IsDir():
		return false, fileError(driver.ErrInvalid, "open", dir, "is not a directory; give the path of one", nil)
	}
	names, err := files.List(dir)
	if err != nil {
		return false, ioError("open", dir, err)
	}
	if slices.Contains(names, engineDir) {
		return false, nil
	}
	if readOnly {
		return false, fileError(driver.ErrNotFound, "open", dir, "there is no store; check the path", nil)
	}
	for _, name := range names {
		switch name {
		case lockFile, creatingDir, ballastFile, "lost+found":
		default:
			return false, fileError(driver.ErrConflict, "open", dir,
				fmt.Sprintf("the directory is not empty and not a store (it holds %q); choose another one", name), nil)
		}
	}
	return true, nil
}

// makeDir creates dir and its missing parents, durably.
func makeDir(fs vfs.FS, dir string) error {
	var parents []string
	for path := dir; ; {
		parent := fs.PathDir(path)
		if parent == path {
			break
		}
		parents = append(parents, parent)
		if _, err := fs.Stat(parent); err == nil || !isNotExist(err) {
			break
		}
		path = parent
	}
	if err := fs.MkdirAll(dir, privateDir); err != nil {
		return err
	}
	for _, parent := range slices.Backward(parents) {
		if err := syncDir(fs, parent); err != nil {
			return err
		}
	}
	return nil
}

// settleNames makes the entries of dir durable, and its own entry in the parent directory. A
// process that cannot open the parent did not create dir.
func settleNames(files vfs.FS, dir string) error {
	if err := syncDir(files, dir); err != nil {
		return err
	}
	err := syncDir(files, files.PathDir(dir))
	if errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return err
}

// unchangedFS is the file system of a read-only store.
type unchangedFS struct{ vfs.FS }

func (fs unchangedFS) Unwrap() vfs.FS { return fs.FS }

// Lock locks an existing file. If it does not exist, no process has the store open, as after a
// restore, and a file created here could belong to another user than the daemon's. On a
// read-only volume no process can change the store.
func (fs unchangedFS) Lock(name string) (io.Closer, error) {
	if _, err := fs.Stat(name); isNotExist(err) {
		return io.NopCloser(nil), nil
	}
	lock, err := fs.FS.Lock(name)
	if errors.Is(err, syscall.EROFS) {
		return io.NopCloser(nil), nil
	}
	return lock, err
}

func lockDir(files vfs.FS, dir string) (io.Closer, error) {
	path := files.PathJoin(dir, lockFile)
	lock, err := files.Lock(path)
	if err == nil {
		return lock, nil
	}
	// An error with a path concerns the file; one without concerns the lock.
	if _, aboutFile := errors.AsType[*fs.PathError](err); aboutFile {
		return nil, ioError("open", path, err)
	}
	return nil, fileError(driver.ErrConflict, "open", dir, "the store is in use by another process, or opened twice by this one; close it there first", err)
}

// openLocked is Open under the lock.
func openLocked(ctx context.Context, dir string, o Options) (*Store, error) {
	path := o.FS.PathJoin(dir, engineDir)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	// Checked again, because it may have changed before the lock was taken.
	fresh, err := prepareDir(o.FS, dir, o.ReadOnly)
	if err != nil {
		return nil, err
	}
	o.fitVolume(dir)
	if fresh {
		if err := create(dir, o); err != nil {
			return nil, err
		}
	}
	if !o.ReadOnly {
		if err := settle(o.FS, dir); err != nil {
			return nil, err
		}
	}
	id, version, err := readFormat(o.FS, path)
	if err != nil {
		return nil, err
	}
	m := &mender{fs: o.FS, log: o.Logger, readOnly: o.ReadOnly}
	if !o.forgetSeals {
		if err := verifySeal(m, path); err != nil {
			return nil, err
		}
	}
	logs, err := readLogList(o.FS, path)
	if err == nil {
		err = auditLogs(m, path, id, logs)
	}
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s := newStore(dir, path, o, id)
	s.logs = newLogList(s.guard, path, logs)
	if !o.ReadOnly {
		err = s.tidy(path)
	}
	if err == nil {
		err = s.openEngine(path)
	}
	if err == nil && version < formatVersion && !o.ReadOnly {
		if err = ioError("open", path, writeFormat(s.guard, path, id)); err != nil {
			_ = s.db.Close()
		}
	}
	if err != nil {
		s.watch.stop()
		return nil, err
	}
	return s, nil
}

// settle removes the remains of an unfinished creation or archive, and makes the names above
// the engine's files durable. This is needed not only after creating: a process that was killed
// may have left a name that is visible but not durable.
func settle(files vfs.FS, dir string) error {
	for _, name := range []string{creatingDir, archiveDir} {
		if err := files.RemoveAll(files.PathJoin(dir, name)); err != nil {
			return ioError("open", files.PathJoin(dir, name), err)
		}
	}
	return ioError("open", dir, settleNames(files, dir))
}

// newStore returns a store without its engine.
func newStore(dir, path string, o Options, id storeID) *Store {
	s := &Store{
		dir: dir, options: o, id: id,
		gate:    newGate(),
		fuse:    &fuse{log: o.Logger, onFail: o.OnFail},
		damage:  &damage{onCorruption: o.OnCorruption},
		misuse:  &misuse{log: o.Logger},
		tracker: &logTracker{lazy: o.Sync.mode != syncEach},
	}
	s.watch = newDiskWatch(o.SlowDisk, s.slowDisk)
	watched := &watchFS{FS: o.FS, watch: s.watch}
	s.space = &space{fs: watched, dir: dir, log: o.Logger, reserve: o.reserve, ballast: o.BallastBytes}
	s.guard = newGuardFS(watched, path, s.fuse, s.space.diskFull)
	s.sealer = &sealer{
		policy: o.Sync, after: o.SealAfter,
		sync: s.inBackground(s.syncLog), seal: s.inBackground(s.sealIdle), note: s.inBackground(s.noteLog),
	}
	return s
}

// inBackground makes a call of the engine safe for a timer: it does not run when the store is
// closed, and the fuse reports its error.
func (s *Store) inBackground(do func() error) func() {
	return func() {
		if s.enter() == nil {
			_ = do()
			s.leave()
		}
	}
}

func (s *Store) slowDisk(op SlowOperation) {
	s.options.Logger.Warn("slow disk", "file", op.Path, "operation", op.Operation, "duration", op.Duration)
	if s.options.OnSlowDisk != nil {
		s.options.OnSlowDisk(op)
	}
}

// tidy removes the leftovers of a crash and restores the ballast.
func (s *Store) tidy(path string) error {
	if err := removeStaleSeals(s.options.FS, path); err != nil {
		return ioError("open", path, err)
	}
	if err := s.space.ensureBallast(); err != nil {
		s.options.Logger.Warn("no ballast", "dir", s.dir, "error", err)
	}
	s.space.begin(time.Now())
	return nil
}

// openEngine opens existing engine files and checks their format.
func (s *Store) openEngine(path string) error {
	fs := &sealFS{FS: s.guard, dir: path, tracker: s.tracker, logs: s.logs, forgetful: s.options.forgetSeals}
	options := s.options.engineOptions(fs, s.fuse, &pebble.EventListener{
		BackgroundError:   func(err error) { s.options.Logger.Warn("engine in the background", "error", err) },
		DataCorruption:    s.damage.add,
		PossibleAPIMisuse: s.misuse.add,
		WriteStallBegin: func(info pebble.WriteStallBeginInfo) {
			s.options.Logger.Warn("writes wait for the disk", "reason", info.Reason)
		},
	})
	options.ErrorIfNotExists = true
	db, err := pebble.Open(path, options)
	if failure := s.fuse.blownAtOpen("open"); failure != nil {
		if db != nil {
			_ = db.Close()
		}
		return failure
	}
	if err != nil {
		return engineOpenError(path, err)
	}
	s.db = db
	if err := s.checkEngine(path); err != nil {
		_ = db.Close()
		return err
	}
	return nil
}

func (s *Store) checkEngine(path string) error {
	if have := s.db.FormatMajorVersion(); have != pebble.FormatNewest && !s.options.ReadOnly {
		return fileError(driver.ErrUnavailable, "open", path, fmt.Sprintf("the engine opened with format %d instead of %d", have, pebble.FormatNewest), nil)
	}
	boot, err := s.Get(bootKey, nil)
	switch {
	case errors.Is(err, driver.ErrIntegrity):
		return nil // one damaged block; reads of its other keys return the error
	case errors.Is(err, driver.ErrNotFound):
		return fileError(driver.ErrIntegrity, "open", path, "the store's first record is missing; restore from a backup", nil)
	case err != nil:
		return err
	case string(boot) != string(s.id[:]):
		return fileError(driver.ErrIntegrity, "open", path, "the files come from two different stores; restore from a backup", nil)
	}
	return nil
}

// engineOpenError returns the code for an error of pebble.Open. The engine marks only some of
// its corruption errors as such.
func engineOpenError(path string, err error) error {
	classified := ioError("open", path, err)
	e, _ := errors.AsType[*driver.Error](classified)
	if e.Code != driver.ErrUnavailable || e.Detail != "" {
		return classified
	}
	if _, aboutFile := errors.AsType[*fs.PathError](err); aboutFile && !isNotExist(err) {
		return classified
	}
	return fileError(driver.ErrIntegrity, "open", path, "the engine cannot read its files; restore from a backup", err)
}

// misuse counts suspected misuse of the engine. There should be none; tests check it.
type misuse struct {
	log   *slog.Logger
	mu    sync.Mutex
	found []string
}

const maxMisuses = 8

func (m *misuse) add(info pebble.PossibleAPIMisuseInfo) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.found) == maxMisuses {
		return // the first ones are enough
	}
	m.found = append(m.found, info.String())
	m.log.Error("engine used in a wrong way", "details", info.String())
}
