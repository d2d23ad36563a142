// Package durable writes small files so that they survive a crash, and locks them against other
// processes.
package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// A Disk is a directory with files. Tests implement it with one that loses power.
type Disk interface {
	ReadFile(name string) ([]byte, error)
	// Create makes an empty file, replacing an existing one.
	Create(name string) (File, error)
	// AppendTo opens a file for appending.
	AppendTo(name string) (File, error)
	// Truncate shortens a file, and makes that durable.
	Truncate(name string, size int64) error
	Rename(from, to string) error
	Remove(name string) error
	// Sync makes the names in the directory durable.
	Sync() error
}

// A File is a file of a Disk that is open for writing.
type File interface {
	Write(b []byte) (int, error)
	Sync() error
	Close() error
}

// Replace writes a file atomically: after a crash the directory has either
// the old content or the new one, and after success the new one.
func Replace(d Disk, name string, content []byte) error {
	temporary := name + TemporarySuffix
	f, err := d.Create(temporary)
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
		err = d.Rename(temporary, name)
	}
	if err != nil {
		return errors.Join(err, IgnoreMissing(d.Remove(temporary)))
	}
	return d.Sync()
}

// TemporarySuffix is the end of the name of a file that Replace has not finished.
const TemporarySuffix = ".new"

// IgnoreMissing returns err, or nil if it says that a file does not exist.
func IgnoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// A Directory is a Disk in the file system. Only their owner can read its files.
type Directory string

const ownerOnly = 0o600

func (d Directory) path(name string) string { return filepath.Join(string(d), name) }

// ReadFile returns the content of a file.
func (d Directory) ReadFile(name string) ([]byte, error) { return os.ReadFile(d.path(name)) }

// Create makes an empty file that only its owner can read.
func (d Directory) Create(name string) (File, error) {
	return os.OpenFile(d.path(name), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, ownerOnly)
}

// AppendTo opens a file for appending.
func (d Directory) AppendTo(name string) (File, error) {
	return os.OpenFile(d.path(name), os.O_WRONLY|os.O_APPEND, ownerOnly)
}

// Truncate shortens a file, and syncs it.
func (d Directory) Truncate(name string, size int64) error {
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

// Rename renames a file.
func (d Directory) Rename(from, to string) error { return os.Rename(d.path(from), d.path(to)) }

// Remove removes a file.
func (d Directory) Remove(name string) error { return os.Remove(d.path(name)) }

// Sync makes the names in the directory durable.
func (d Directory) Sync() error {
	if runtime.GOOS == "windows" {
		return nil // Windows cannot sync a directory, and does not need it
	}
	f, err := os.Open(string(d))
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
