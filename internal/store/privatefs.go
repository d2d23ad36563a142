package store

import (
	"io"
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// The modes of what the store makes: messages are for the owner alone, whatever the
// umask is.
const (
	privateFile = 0o600
	privateDir  = 0o700
)

// localFS is the file system of the machine.
var localFS vfs.FS = privateFS{vfs.Default}

// privateFS makes files and directories for their owner alone. The engine makes them
// for everybody whom the umask does not keep out.
type privateFS struct{ vfs.FS }

// Unwrap returns the file system within.
func (p privateFS) Unwrap() vfs.FS { return p.FS }

// Create creates a file for its owner.
func (p privateFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return private(name, true, func() (vfs.File, error) { return p.FS.Create(name, category) })
}

// OpenReadWrite opens a file, and creates it for its owner.
func (p privateFS) OpenReadWrite(name string, category vfs.DiskWriteCategory, options ...vfs.OpenOption) (vfs.File, error) {
	return private(name, isMissing(name), func() (vfs.File, error) { return p.FS.OpenReadWrite(name, category, options...) })
}

// Lock locks a file, and creates it for its owner.
func (p privateFS) Lock(name string) (io.Closer, error) {
	return private(name, isMissing(name), func() (io.Closer, error) { return p.FS.Lock(name) })
}

func isMissing(name string) bool {
	_, err := os.Lstat(name)
	return os.IsNotExist(err)
}

// MkdirAll creates directories for their owner.
func (p privateFS) MkdirAll(dir string, _ os.FileMode) error { return p.FS.MkdirAll(dir, privateDir) }

// private opens a file, and makes it its owner's alone if it is new. It closes a file
// with which that fails.
func private[F io.Closer](name string, isNew bool, open func() (F, error)) (F, error) {
	file, err := open()
	if err != nil || !isNew {
		return file, err
	}
	if err := os.Chmod(name, privateFile); err != nil && !os.IsPermission(err) {
		var none F
		_ = file.Close()
		return none, err
	}
	return file, nil
}

// tighten makes a directory that was there before its owner's alone, which keeps others
// from all files in it. A directory of another owner, as volumes of containers often
// are, is left as it is: who may reach it is that owner's decision.
func tighten(files vfs.FS, dir string) error {
	if files != localFS {
		return nil
	}
	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm()&^privateDir == 0 {
		return err
	}
	if err := os.Chmod(dir, info.Mode().Perm()&privateDir); err != nil && !os.IsPermission(err) {
		return err
	}
	return nil
}
