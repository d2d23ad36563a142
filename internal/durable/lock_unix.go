//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package durable

import (
	"errors"
	"os"
	"syscall"
)

// Lock locks path against other processes, and against a second call in this
// process, until unlock is called. The kernel releases the lock when the process
// ends, even if it is killed.
func Lock(path string) (unlock func() error, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, ownerOnly)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f.Close, nil
}

// IsLocked reports whether Lock failed because the lock is already held.
func IsLocked(err error) bool { return errors.Is(err, syscall.EWOULDBLOCK) }
