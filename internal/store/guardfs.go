package store

import (
	"os"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// guardFS detects a failing disk. The engine reacts to a failed write with Logger.Fatalf or
// with a panic, on any goroutine, some of them holding locks; if the process then continues,
// callers hang. So no failed write reaches the engine. guardFS blows the fuse, and from then on
// the engine is cut off: its writes go to memory, its syncs and removals do nothing, and the
// files on disk stay as they were. The engine's goroutines finish their work, and every call of
// this package returns the failure (Store.Commit checks the fuse after the engine has
// returned).
//
// Tables are the exception. A table that cannot be written because the disk is full is a failed
// flush or compaction, which loses nothing, and the engine retries it.
//
// Files outside of dir belong to a backup; their errors go to its caller.
type guardFS struct {
	vfs.FS
	plain  vfs.FS // the same without vfs.OnDiskFull, for files outside of dir
	dir    string // the engine's directory
	fuse   *fuse
	limbo  *vfs.MemFS
	backup atomic.Pointer[backupRun]
}

// retryPause keeps the engine, which retries a failed flush at once, from spinning while the
// disk is full.
const retryPause = 100 * time.Millisecond

// newGuardFS guards dir. onFull is called when a write there finds the disk full; the write is
// then retried.
func newGuardFS(inner vfs.FS, dir string, f *fuse, onFull func()) *guardFS {
	return &guardFS{FS: vfs.OnDiskFull(inner, onFull), plain: inner, dir: dir, fuse: f, limbo: vfs.NewMem()}
}

func (g *guardFS) Unwrap() vfs.FS { return g.FS }

// owns reports whether path is in the engine's directory.
func (g *guardFS) owns(path string) bool {
	return path == g.dir || g.PathDir(path) == g.dir
}

// through returns the file system for changes to path.
func (g *guardFS) through(path string) vfs.FS {
	if g.owns(path) {
		return g.FS
	}
	return g.plain
}

func (g *guardFS) frozen() bool { return g.fuse.state.Load() != nil }

// admit is called before a change outside of the directory.
func (g *guardFS) admit() error {
	if err := g.fuse.blown(); err != nil {
		return err
	}
	if run := g.backup.Load(); run != nil {
		return run.problem()
	}
	return nil
}

// judge decides about a failed operation. It returns the error if the engine may see it, and
// nil if it blew the fuse.
func (g *guardFS) judge(path, what string, err error) error {
	switch {
	case err == nil, isNotExist(err):
		return err
	case classOf(g.PathBase(path)) == classTable && passing(err):
		time.Sleep(retryPause)
		return err
	}
	g.fuse.blow(path, what, err)
	return nil
}

func (g *guardFS) limboFile(path string) (vfs.File, error) {
	f, err := g.limbo.Create(g.PathBase(path), vfs.WriteCategoryUnspecified)
	return &guardFile{File: f, guard: g, path: path, limbo: true}, err
}

// Create and the other methods that change files are those of vfs.FS.
func (g *guardFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return g.openForWrite(name, "create", func() (vfs.File, error) { return g.through(name).Create(name, category) })
}

func (g *guardFS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return g.openForWrite(newname, "reuse", func() (vfs.File, error) { return g.through(newname).ReuseForWrite(oldname, newname, category) })
}

func (g *guardFS) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return g.openForWrite(name, "open", func() (vfs.File, error) { return g.through(name).OpenReadWrite(name, category, opts...) })
}

func (g *guardFS) openForWrite(name, what string, open func() (vfs.File, error)) (vfs.File, error) {
	if !g.owns(name) {
		if err := g.admit(); err != nil {
			return nil, err
		}
		f, err := open()
		if err != nil {
			return nil, err
		}
		return &outsideFile{File: f, guard: g}, nil
	}
	if g.frozen() {
		return g.limboFile(name)
	}
	f, err := open()
	if err == nil {
		return &guardFile{File: f, guard: g, path: name}, nil
	}
	if err := g.judge(name, what, err); err != nil {
		return nil, err
	}
	return g.limboFile(name)
}

func (g *guardFS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	if g.frozen() && g.owns(name) {
		if f, err := g.limbo.Open(g.PathBase(name)); err == nil {
			return f, nil
		}
	}
	return g.FS.Open(name, opts...)
}

func (g *guardFS) Stat(name string) (vfs.FileInfo, error) {
	if g.frozen() && g.owns(name) {
		if info, err := g.limbo.Stat(g.PathBase(name)); err == nil {
			return info, nil
		}
	}
	return g.FS.Stat(name)
}

func (g *guardFS) OpenDir(name string) (vfs.File, error) {
	f, err := g.through(name).OpenDir(name)
	if err != nil {
		return nil, err
	}
	if !g.owns(name) {
		return &outsideDir{File: f, guard: g}, nil
	}
	return &guardFile{File: f, guard: g, path: name}, nil
}

func (g *guardFS) Rename(oldname, newname string) error {
	return g.change(oldname, "rename", func() error { return g.through(oldname).Rename(oldname, newname) })
}

func (g *guardFS) MkdirAll(dir string, perm os.FileMode) error {
	return g.change(dir, "create directory", func() error { return g.through(dir).MkdirAll(dir, perm) })
}

// Link is only used for backups: from inside to outside.
func (g *guardFS) Link(oldname, newname string) error {
	return g.change(newname, "link", func() error { return g.through(newname).Link(oldname, newname) })
}

func (g *guardFS) change(name, what string, do func() error) error {
	if !g.owns(name) {
		if err := g.admit(); err != nil {
			return err
		}
		return do()
	}
	if g.frozen() {
		return nil
	}
	return g.judge(name, what, do())
}

// Remove never blows the fuse: a file that cannot be removed only takes space.
func (g *guardFS) Remove(name string) error {
	if g.frozen() && g.owns(name) {
		return nil
	}
	return g.through(name).Remove(name)
}

func (g *guardFS) RemoveAll(name string) error {
	if g.frozen() && g.owns(name) {
		return nil
	}
	return g.through(name).RemoveAll(name)
}

// guardFile is a file, or the directory, that is open for writing.
type guardFile struct {
	vfs.File
	guard *guardFS
	path  string
	limbo bool // the file is in memory and needs no guard
}

// idle reports whether operations must no longer reach the disk.
func (f *guardFile) idle() bool { return !f.limbo && f.guard.frozen() }

func (f *guardFile) Write(p []byte) (int, error) {
	if f.idle() {
		return len(p), nil
	}
	n, err := f.File.Write(p)
	if err != nil {
		if err := f.guard.judge(f.path, "write", err); err != nil {
			return n, err
		}
	}
	return len(p), nil
}

func (f *guardFile) WriteAt(p []byte, offset int64) (int, error) {
	if f.idle() {
		return len(p), nil
	}
	n, err := f.File.WriteAt(p, offset)
	if err != nil {
		if err := f.guard.judge(f.path, "write", err); err != nil {
			return n, err
		}
	}
	return len(p), nil
}

func (f *guardFile) Sync() error     { return f.sync(f.File.Sync) }
func (f *guardFile) SyncData() error { return f.sync(f.File.SyncData) }

func (f *guardFile) sync(do func() error) error {
	if f.idle() {
		return nil
	}
	return f.guard.judge(f.path, "sync", do())
}

func (f *guardFile) SyncTo(length int64) (bool, error) {
	if f.idle() {
		return false, nil
	}
	full, err := f.File.SyncTo(length)
	return full, f.guard.judge(f.path, "sync", err)
}

// Close reports no error: all data that must be durable was synced before.
func (f *guardFile) Close() error {
	if err := f.File.Close(); err != nil && !f.idle() {
		f.guard.fuse.blow(f.path, "close", err)
	}
	return nil
}

// outsideFile is a file of a backup; writing it stops when the backup is cancelled.
type outsideFile struct {
	vfs.File
	guard *guardFS
}

func (f *outsideFile) Write(p []byte) (int, error) {
	if err := f.guard.admit(); err != nil {
		return 0, err
	}
	return f.File.Write(p)
}

// outsideDir is the directory of a backup. The engine panics when it cannot be synced, so
// another operation returns the error.
type outsideDir struct {
	vfs.File
	guard *guardFS
}

func (d *outsideDir) Sync() error {
	err := d.File.Sync()
	if run := d.guard.backup.Load(); err != nil && run != nil {
		run.fail(err)
		return nil
	}
	return err
}
