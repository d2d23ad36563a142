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
	return private(p.FS.Create(name, category))(name)
}

// OpenReadWrite opens a file, and creates it for its owner.
func (p privateFS) OpenReadWrite(name string, category vfs.DiskWriteCategory, options ...vfs.OpenOption) (vfs.File, error) {
	return private(p.FS.OpenReadWrite(name, category, options...))(name)
}

// Lock locks a file, and creates it for its owner.
func (p privateFS) Lock(name string) (io.Closer, error) {
	return private(p.FS.Lock(name))(name)
}

// MkdirAll creates directories for their owner.
func (p privateFS) MkdirAll(dir string, _ os.FileMode) error { return p.FS.MkdirAll(dir, privateDir) }

// private takes the result of opening a file, and closes the file if it cannot be made
// its owner's alone. A file of somebody else is left as it is: the directory guards it.
func private[F io.Closer](file F, err error) func(name string) (F, error) {
	return func(name string) (F, error) {
		if err != nil {
			return file, err
		}
		if err := os.Chmod(name, privateFile); err != nil && !os.IsPermission(err) {
			var none F
			_ = file.Close()
			return none, err
		}
		return file, nil
	}
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
