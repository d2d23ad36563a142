package store

import (
	"io"
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// The modes of files and directories: messages are accessible to the owner only, whatever the
// umask is.
const (
	privateFile = 0o600
	privateDir  = 0o700
)

// localFS is the file system of the machine.
var localFS vfs.FS = privateFS{vfs.Default}

// privateFS creates files and directories that only their owner can access. The engine leaves
// that to the umask.
type privateFS struct{ vfs.FS }

// Unwrap returns the wrapped file system.
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

// private opens a file, and restricts it to its owner if it is new. If that fails, it closes
// the file.
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

// tighten restricts an existing directory to its owner, which protects all files in it. A
// directory of another owner, as volumes of containers often are, is not changed: its owner
// decides about access.
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
