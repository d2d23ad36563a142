// Package privatefile reads and writes files of secrets that only their owner can read.
package privatefile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/durable"
)

// Read reads a file, and refuses it if users other than its owner can read it; the group may
// read one of root's, as Kubernetes mounts secrets. kind names the file in errors, which never
// contain its content.
func Read(path, kind string, maxBytes int64) (string, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", Error(driver.ErrNotFound, kind, "", err)
	case err != nil:
		return "", Error(driver.ErrUnavailable, kind, "", err)
	case runtime.GOOS != "windows" && info.Mode().Perm()&forbidden(owner(info), os.Geteuid()) != 0:
		return "", Error(driver.ErrForbidden, kind, fmt.Sprintf("can be read by others (mode %04o); chmod 600", info.Mode().Perm()), nil)
	case info.Size() > maxBytes:
		return "", Error(driver.ErrIntegrity, kind, fmt.Sprintf("has %d bytes, at most %d are allowed", info.Size(), maxBytes), nil)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", Error(driver.ErrUnavailable, kind, "", err)
	}
	return string(text), nil
}

// forbidden returns the permissions that a file of secrets must not have. The group of a reader
// may read a file of root's, which the reader could not have made itself.
func forbidden(owner, reader int) fs.FileMode {
	if owner == 0 && reader != 0 {
		return 0o037
	}
	return 0o077
}

// Write writes a file for its owner only: after a crash there is the old file or the new one.
func Write(path, kind string, content []byte) error {
	if err := durable.Replace(durable.Directory(filepath.Dir(path)), filepath.Base(path), content); err != nil {
		return Error(driver.ErrUnavailable, kind, "", err)
	}
	return nil
}

// Error returns an error about such a file.
func Error(code driver.Code, kind, detail string, cause error) error {
	return &driver.Error{Code: code, Op: "capability", Field: kind, Detail: detail, Err: cause}
}
