// Package keyfile changes key files under a lock that excludes other processes.
package keyfile

import (
	"context"
	"errors"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/durable"
)

// Change reads the key ring from a file, calls edit with it, and writes it
// back, under a lock that excludes other processes: when two processes rotate at the
// same time, neither loses the other's key. It returns the ring as written. If edit
// fails, nothing is written and its error is returned.
//
// It blocks on I/O, and for at most ten seconds on the lock file, which is path with
// ".lock" appended; cancelling ctx ends the wait. Codes: those of
// capability.ReadKeyFile and WriteFile, and ErrUnavailable (another process holds the lock).
func Change(ctx context.Context, path string, edit func(*capability.KeyRing) error) (*capability.KeyRing, error) {
	return lockedKeys(ctx, path, func() (*capability.KeyRing, error) {
		ring, err := capability.ReadKeyFile(path)
		if err == nil {
			err = edit(ring)
		}
		if err == nil {
			err = ring.WriteFile(path)
		}
		return ring, err
	})
}

// ReadOrMake reads the key ring from a file; if the file does not exist, it
// writes one with a new key and reports made. If several processes call it at the
// same time, one of them makes the file and all get its keys. It blocks and fails
// like Change.
func ReadOrMake(ctx context.Context, path string) (ring *capability.KeyRing, made bool, err error) {
	if ring, err = capability.ReadKeyFile(path); !errors.Is(err, driver.ErrNotFound) {
		return ring, false, err
	}
	ring, err = lockedKeys(ctx, path, func() (*capability.KeyRing, error) {
		ring, err := capability.ReadKeyFile(path)
		if errors.Is(err, driver.ErrNotFound) {
			ring, made = capability.NewKeyRing(capability.NewKey()), true
			err = ring.WriteFile(path)
		}
		return ring, err
	})
	return ring, made, err
}

// How long to wait for the lock of a key file, and how often to try. A process
// holds the lock while it writes a small file; one that holds it longer hangs.
const (
	keyLockPatience = 10 * time.Second
	keyLockPause    = 5 * time.Millisecond
)

// lockedKeys calls use while it holds the lock of the key file at path.
func lockedKeys(ctx context.Context, path string, use func() (*capability.KeyRing, error)) (*capability.KeyRing, error) {
	patience := time.NewTimer(keyLockPatience)
	defer patience.Stop()
	unlock, err := durable.Lock(path + ".lock")
	for err != nil && durable.IsLocked(err) {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-patience.C:
			return nil, unavailable("another process holds its lock; gave up after "+keyLockPatience.String(), err)
		case <-time.After(keyLockPause):
			unlock, err = durable.Lock(path + ".lock")
		}
	}
	if err != nil {
		return nil, unavailable("", err)
	}
	ring, err := use()
	if unlocked := unlock(); err == nil && unlocked != nil {
		err = unavailable("", unlocked)
	}
	if err != nil {
		return nil, err
	}
	return ring, nil
}

func unavailable(detail string, cause error) error {
	return &driver.Error{Code: driver.ErrUnavailable, Op: "capability", Field: "key file", Detail: detail, Err: cause}
}
