package capability

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"github.com/mailboxmq/mailbox/driver"
)

// A disk has the operations on a directory that this package needs. Tests
// implement it with one that loses power.
type disk interface {
	readFile(name string) ([]byte, error)
	// create makes an empty file, replacing an existing one.
	create(name string) (diskFile, error)
	// appendTo opens a file for appending.
	appendTo(name string) (diskFile, error)
	truncate(name string, size int64) error
	rename(from, to string) error
	remove(name string) error
	// sync makes the names in the directory durable.
	sync() error
}

type diskFile interface {
	Write(b []byte) (int, error)
	Sync() error
	Close() error
}

// writeWhole replaces the file atomically: after a crash the directory has either
// the old content or the new one, and after success the new one.
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

// A directory is a disk in the file system. Only their owner can read its files.
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
		return nil // Windows cannot sync a directory, and does not need it
	}
	f, err := os.Open(string(d))
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// readPrivate reads a file, and refuses it if users other than its owner can read
// it. kind names the file in errors, which never contain its content.
func readPrivate(path, kind string, maxBytes int64) (string, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fileError(driver.ErrNotFound, kind, "", err)
	case err != nil:
		return "", fileError(driver.ErrUnavailable, kind, "", err)
	case runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0:
		return "", fileError(driver.ErrForbidden, kind, fmt.Sprintf("can be read by others (mode %04o); chmod 600", info.Mode().Perm()), nil)
	case info.Size() > maxBytes:
		return "", fileError(driver.ErrIntegrity, kind, fmt.Sprintf("has %d bytes, at most %d are allowed", info.Size(), maxBytes), nil)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fileError(driver.ErrUnavailable, kind, "", err)
	}
	return string(text), nil
}

func writePrivate(path, kind string, content []byte) error {
	if err := writeWhole(directory(filepath.Dir(path)), filepath.Base(path), content); err != nil {
		return fileError(driver.ErrUnavailable, kind, "", err)
	}
	return nil
}

func fileError(code driver.Code, kind, detail string, cause error) error {
	return &driver.Error{Code: code, Op: "capability", Field: kind, Detail: detail, Err: cause}
}
