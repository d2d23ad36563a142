package keyring

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/durable"
	"github.com/mailboxmq/mailbox/internal/privatefile"
)

const (
	keyFile = "key file" // in errors
	// keyFileHead is the first line of a key file.
	keyFileHead = "mailbox keys 1"
	// maxKeyFileBytes is more than the size of 8 lines.
	maxKeyFileBytes = 16 << 10
)

// ReadFile reads a key ring from a file that WriteFile wrote. It refuses a
// file that users other than its owner can read. It blocks on I/O. Codes:
// ErrNotFound (no such file), ErrForbidden (its mode), ErrIntegrity (damaged),
// ErrUnavailable. Errors do not repeat the content of the file.
func ReadFile(path string) (*Ring, error) {
	text, err := privatefile.Read(path, keyFile, maxKeyFileBytes)
	if err != nil {
		return nil, err
	}
	list, ok := parseKeys(text)
	if !ok {
		return nil, privatefile.Error(driver.ErrIntegrity, keyFile, "is damaged, or is not a key file; restore it from a backup", nil)
	}
	return New(list[0], list[1:]...), nil
}

// WriteFile writes the ring to a file that only its owner can read: after a
// crash there is the old file or the new one. It blocks on I/O. Codes:
// ErrNotFound (the ring has no key), ErrUnavailable.
func (r *Ring) WriteFile(path string) error {
	list := r.Keys()
	if len(list) == 0 {
		return privatefile.Error(driver.ErrNotFound, keyFile, "not written: the key ring is empty", nil)
	}
	return privatefile.Write(path, keyFile, formatKeys(list))
}

// formatKeys writes one line for each key, the current one first: id, secret in
// hex, when it was retired in Unix milliseconds or 0, and when it was made, if that
// is known. The last line is a checksum of the lines before.
func formatKeys(list []Key) []byte {
	b := []byte(keyFileHead + "\n")
	for _, key := range list {
		retired := int64(0)
		if !key.retiredAt.IsZero() {
			retired = key.retiredAt.UnixMilli()
		}
		b = fmt.Appendf(b, "%s %x %d", key.id, key.secret.Bytes(), retired)
		if !key.madeAt.IsZero() {
			b = fmt.Appendf(b, " %d", key.madeAt.UnixMilli())
		}
		b = append(b, '\n')
	}
	return fmt.Appendf(b, "%08x\n", crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
}

// parseKeys reads exactly what formatKeys writes.
func parseKeys(text string) ([]Key, bool) {
	lines := strings.Split(text, "\n")
	if len(lines) < 4 || len(lines) > maxKeys+3 {
		return nil, false
	}
	var list []Key
	for _, line := range lines[1 : len(lines)-2] {
		key, ok := parseKey(line)
		if !ok {
			return nil, false
		}
		list = append(list, key)
	}
	return list, string(formatKeys(list)) == text
}

func parseKey(line string) (Key, bool) {
	fields := strings.Split(line, " ")
	if len(fields) != 3 && len(fields) != 4 {
		return Key{}, false
	}
	id, errID := strconv.ParseUint(fields[0], 16, 32)
	secret, errSecret := hex.DecodeString(fields[1])
	retired, errRetired := strconv.ParseInt(fields[2], 10, 64)
	if errID != nil || errSecret != nil || errRetired != nil {
		return Key{}, false
	}
	key, err := KeyFrom(capability.KeyID(id), secret)
	if len(fields) == 4 {
		made, errMade := strconv.ParseInt(fields[3], 10, 64)
		if errMade != nil {
			return Key{}, false
		}
		key.madeAt = time.UnixMilli(made).UTC()
	}
	if retired != 0 {
		key.retiredAt = time.UnixMilli(retired).UTC()
	}
	return key, err == nil
}

// Change reads the key ring from a file, calls edit with it, and writes it
// back, under a lock that excludes other processes: when two processes rotate at the
// same time, neither loses the other's key. It returns the ring as written. If edit
// fails, nothing is written and its error is returned.
//
// It blocks on I/O, and for at most ten seconds on the lock file, which is path with
// ".lock" appended; cancelling ctx ends the wait. Codes: those of
// ReadFile and WriteFile, and ErrUnavailable (another process holds the lock).
func Change(ctx context.Context, path string, edit func(*Ring) error) (*Ring, error) {
	return lockedKeys(ctx, path, func() (*Ring, error) {
		ring, err := ReadFile(path)
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
func ReadOrMake(ctx context.Context, path string) (ring *Ring, made bool, err error) {
	if ring, err = ReadFile(path); !errors.Is(err, driver.ErrNotFound) {
		return ring, false, err
	}
	ring, err = lockedKeys(ctx, path, func() (*Ring, error) {
		ring, err := ReadFile(path)
		if errors.Is(err, driver.ErrNotFound) {
			ring, made = New(NewKey()), true
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
func lockedKeys(ctx context.Context, path string, use func() (*Ring, error)) (*Ring, error) {
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
	return &driver.Error{Code: driver.ErrUnavailable, Op: "capability", Field: keyFile, Detail: detail, Err: cause}
}
