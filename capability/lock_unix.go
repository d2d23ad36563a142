//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package capability

import (
	"errors"
	"os"
	"syscall"
)

// lockFile locks path against other processes, and against another use in this
// one, until unlock is called. The system unlocks it when the process ends,
// however it ends.
func lockFile(path string) (unlock func() error, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, ownerOnly)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f.Close, nil
}

// isLocked reports whether lockFile failed because somebody else has the lock.
func isLocked(err error) bool { return errors.Is(err, syscall.EWOULDBLOCK) }
