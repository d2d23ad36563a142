package store

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/cockroachdb/pebble/v2"

	"github.com/mailboxmq/mailbox/driver"
)

// ErrFailed is wrapped by the error of every call after a write or a sync of the store has
// failed. The code of that error is driver.ErrUnavailable: the outcome of the calls in flight
// is unknown until the store is opened again, which is the only remedy.
var ErrFailed = errors.New("the store stopped at a failed write")

// fileError returns an *driver.Error about a file. It prints as
// "mailbox: op: code: file: detail: cause".
func fileError(code driver.Code, op, file, detail string, cause error) error {
	return &driver.Error{Code: code, Op: op, Field: file, Detail: detail, Err: cause}
}

// ioError wraps an error of the file system or of the engine, with the matching code and
// advice.
func ioError(op, file string, err error) error {
	switch {
	case err == nil:
		return nil
	case isDriverError(err):
		return err
	case pebble.IsCorruptionError(err):
		return fileError(driver.ErrIntegrity, op, file, "stored bytes are damaged; restore from a backup", err)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fileError(driver.ErrFull, op, file, "the disk is full; free some space", err)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return fileError(driver.ErrUnavailable, op, file, "no permission; the directory and its files must belong to the user of this process", err)
	case errors.Is(err, syscall.ENOTDIR):
		return fileError(driver.ErrInvalid, op, file, "is not a directory; give the path of one", err)
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return fileError(driver.ErrUnavailable, op, file, "too many open files; raise the limit (ulimit -n)", err)
	}
	return fileError(driver.ErrUnavailable, op, file, "", err)
}

func isDriverError(err error) bool {
	_, ok := errors.AsType[*driver.Error](err)
	return ok
}

func isNotExist(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// passing reports whether err is temporary, or can be fixed by an operator, so that a retry
// with a new file can succeed.
func passing(err error) bool {
	for _, errno := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

// failedError returns the error of a store whose fuse has blown.
func failedError(file, what string, cause error) error {
	return &driver.Error{
		Code: driver.ErrUnavailable, Op: "store", Field: file,
		Detail: what + " failed; nothing is confirmed any more; start again to recover what was",
		Err:    fmt.Errorf("%w: %w", ErrFailed, cause),
	}
}
