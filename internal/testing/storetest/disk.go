package storetest

import (
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// An Operation is an operation that is about to change a disk.
type Operation struct {
	Kind Kind
	Path string
}

// A Kind is a kind of operation.
type Kind string

// The kinds of operations that change a disk.
const (
	Create  Kind = "create"
	Reuse   Kind = "reuse"
	Rename  Kind = "rename"
	Remove  Kind = "remove"
	Link    Kind = "link"
	Mkdir   Kind = "mkdir"
	Write   Kind = "write"
	Sync    Kind = "sync"
	SyncDir Kind = "sync directory"
)

// Durability reports whether the operation affects what survives a power cut. A crash image
// before each of these covers all different states.
func (k Kind) Durability() bool { return k != Write }

// A Disk is a file system in memory that can lose its power.
type Disk struct {
	mem  *vfs.MemFS
	hook atomic.Pointer[func(Operation) error]
	// moment is held by every operation, and exclusively while an image is taken, so that an
	// image shows one moment.
	moment sync.RWMutex
}

// NewDisk returns an empty disk.
func NewDisk() *Disk { return DiskFrom(vfs.NewCrashableMem()) }

// DiskFrom returns a disk that starts as an image of another one.
func DiskFrom(image *vfs.MemFS) *Disk { return &Disk{mem: image} }

// FS returns the disk as a file system.
func (d *Disk) FS() vfs.FS { return &diskFS{FS: d.mem, disk: d} }

// Mem returns the file system without the hook. It must not be changed while others change it.
func (d *Disk) Mem() *vfs.MemFS { return d.mem }

// Before sets a hook that is called before each operation. If it returns an error, the
// operation fails with it and is not done. The hook runs in the goroutine of the operation, so
// it may take an Image, and blocks the operation.
func (d *Disk) Before(hook func(Operation) error) { d.hook.Store(&hook) }

// Image returns a possible state of the disk if the power were cut now: all synced data, and a
// random part of the rest.
func (d *Disk) Image(rng *rand.Rand) *vfs.MemFS {
	d.moment.Lock()
	defer d.moment.Unlock()
	if rng.IntN(3) == 0 {
		if synced := d.mem.CrashClone(vfs.CrashCloneCfg{}); sameDirs(synced, d.mem, "/") {
			return mixImages(synced, d.mem, rng)
		}
	}
	return d.mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rng})
}

func (d *Disk) do(kind Kind, path string, operation func() error) error {
	if hook := d.hook.Load(); hook != nil {
		if err := (*hook)(Operation{Kind: kind, Path: path}); err != nil {
			return err
		}
	}
	d.moment.RLock()
	defer d.moment.RUnlock()
	return operation()
}

type diskFS struct {
	vfs.FS
	disk *Disk
}

func (fs *diskFS) Unwrap() vfs.FS { return fs.FS }

func (fs *diskFS) Create(name string, category vfs.DiskWriteCategory) (f vfs.File, err error) {
	err = fs.disk.do(Create, name, func() error {
		f, err = fs.FS.Create(name, category)
		return err
	})
	return fs.wrap(name, f, err, Sync)
}

func (fs *diskFS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (f vfs.File, err error) {
	err = fs.disk.do(Reuse, newname, func() error {
		f, err = fs.FS.ReuseForWrite(oldname, newname, category)
		return err
	})
	return fs.wrap(newname, f, err, Sync)
}

func (fs *diskFS) OpenDir(name string) (vfs.File, error) {
	f, err := fs.FS.OpenDir(name)
	return fs.wrap(name, f, err, SyncDir)
}

func (fs *diskFS) wrap(name string, f vfs.File, err error, sync Kind) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &diskFile{File: f, disk: fs.disk, path: name, syncKind: sync}, nil
}

func (fs *diskFS) Rename(oldname, newname string) error {
	return fs.disk.do(Rename, newname, func() error { return fs.FS.Rename(oldname, newname) })
}

func (fs *diskFS) Remove(name string) error {
	return fs.disk.do(Remove, name, func() error { return fs.FS.Remove(name) })
}

func (fs *diskFS) RemoveAll(name string) error {
	return fs.disk.do(Remove, name, func() error { return fs.FS.RemoveAll(name) })
}

func (fs *diskFS) Link(oldname, newname string) error {
	return fs.disk.do(Link, newname, func() error { return fs.FS.Link(oldname, newname) })
}

func (fs *diskFS) MkdirAll(dir string, perm os.FileMode) error {
	return fs.disk.do(Mkdir, dir, func() error { return fs.FS.MkdirAll(dir, perm) })
}

type diskFile struct {
	vfs.File
	disk     *Disk
	path     string
	syncKind Kind
}

func (f *diskFile) Write(p []byte) (n int, err error) {
	err = f.disk.do(Write, f.path, func() error {
		n, err = f.File.Write(p)
		return err
	})
	return n, err
}

func (f *diskFile) Sync() error     { return f.disk.do(f.syncKind, f.path, f.File.Sync) }
func (f *diskFile) SyncData() error { return f.disk.do(f.syncKind, f.path, f.File.SyncData) }
