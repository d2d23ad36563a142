package storetest

import (
	"path"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// IgnoreSyncs returns a file system on which syncs of matching files and directories do nothing
// and succeed. With all logs it is a store that acknowledges before it syncs; with all
// directories, one that does not sync names.
func IgnoreSyncs(fs vfs.FS, match func(path string, isDir bool) bool) vfs.FS {
	return &lyingFS{FS: fs, match: match}
}

// Logs matches the write-ahead logs.
func Logs(name string, isDir bool) bool { return !isDir && strings.HasSuffix(name, ".log") }

// Directories matches directories.
func Directories(_ string, isDir bool) bool { return isDir }

type lyingFS struct {
	vfs.FS
	match func(path string, isDir bool) bool
}

func (fs *lyingFS) Unwrap() vfs.FS { return fs.FS }

func (fs *lyingFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.Create(name, category)
	return fs.wrap(name, f, err, false)
}

func (fs *lyingFS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.ReuseForWrite(oldname, newname, category)
	return fs.wrap(newname, f, err, false)
}

func (fs *lyingFS) OpenDir(name string) (vfs.File, error) {
	f, err := fs.FS.OpenDir(name)
	return fs.wrap(name, f, err, true)
}

func (fs *lyingFS) wrap(name string, f vfs.File, err error, isDir bool) (vfs.File, error) {
	if err != nil || !fs.match(name, isDir) {
		return f, err
	}
	return &lyingFile{File: f}, nil
}

type lyingFile struct{ vfs.File }

func (f *lyingFile) Sync() error     { return nil }
func (f *lyingFile) SyncData() error { return nil }

// LoseSeals returns a file system on which the seal of a MANIFEST never appears, as if the
// store did not write it.
func LoseSeals(fs vfs.FS) vfs.FS { return &sealLosingFS{FS: fs} }

type sealLosingFS struct{ vfs.FS }

func (fs *sealLosingFS) Unwrap() vfs.FS { return fs.FS }

func (fs *sealLosingFS) Rename(oldname, newname string) error {
	if strings.HasPrefix(path.Base(newname), "seal-") {
		return fs.FS.Remove(oldname)
	}
	return fs.FS.Rename(oldname, newname)
}
