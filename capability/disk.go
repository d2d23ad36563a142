package capability

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// A disk is what this package asks of a directory. Tests have one that loses
// power.
type disk interface {
	readFile(name string) ([]byte, error)
	// create makes an empty file, in place of another.
	create(name string) (diskFile, error)
	// appendTo opens a file to write at its end.
	appendTo(name string) (diskFile, error)
	truncate(name string, size int64) error
	rename(from, to string) error
	remove(name string) error
	// sync makes names durable.
	sync() error
}

type diskFile interface {
	Write(b []byte) (int, error)
	Sync() error
	Close() error
}

// writeWhole makes name a file with this content: after a crash there is the old
// file or the new one, and after success there is the new one.
func writeWhole(d disk, name string, content []byte) error {
	temporary := name + temporarySuffix
	f, err := d.create(temporary)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = d.rename(temporary, name)
	}
	if err != nil {
		return errors.Join(err, ignoreMissing(d.remove(temporary)))
	}
	return d.sync()
}

const temporarySuffix = ".new"

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// A directory is the disk that there is. Its files are for their owner only.
type directory string

const ownerOnly = 0o600

func (d directory) path(name string) string { return filepath.Join(string(d), name) }

func (d directory) readFile(name string) ([]byte, error) { return os.ReadFile(d.path(name)) }

func (d directory) create(name string) (diskFile, error) {
	return os.OpenFile(d.path(name), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, ownerOnly)
}

func (d directory) appendTo(name string) (diskFile, error) {
	return os.OpenFile(d.path(name), os.O_WRONLY|os.O_APPEND, ownerOnly)
}

func (d directory) truncate(name string, size int64) error {
	f, err := os.OpenFile(d.path(name), os.O_WRONLY, ownerOnly)
	if err != nil {
		return err
	}
	err = f.Truncate(size)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

func (d directory) rename(from, to string) error { return os.Rename(d.path(from), d.path(to)) }

func (d directory) remove(name string) error { return os.Remove(d.path(name)) }

func (d directory) sync() error {
	if runtime.GOOS == "windows" {
		return nil // there a directory cannot be synced, and need not be
	}
	f, err := os.Open(string(d))
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
