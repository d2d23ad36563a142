package capability

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

const (
	keyFile = "key file" // in errors
	// keyFileHead is the first line of a file of keys.
	keyFileHead = "mailbox keys 1"
	// maxKeyFileBytes is more than MaxKeys lines take.
	maxKeyFileBytes = 16 << 10
)

// ReadKeyFile reads a key ring from a file that WriteFile wrote. It refuses a
// file that others than its owner can read. It blocks on I/O. Codes: ErrNotFound
// (no such file), ErrForbidden (its mode), ErrIntegrity (damaged),
// ErrUnavailable. Errors do not repeat what is in the file.
func ReadKeyFile(path string) (*KeyRing, error) {
	text, err := readPrivate(path, keyFile, maxKeyFileBytes)
	if err != nil {
		return nil, err
	}
	list, ok := parseKeys(text)
	if !ok {
		return nil, fileError(driver.ErrIntegrity, keyFile, "is damaged or no file of keys; restore it from a backup", nil)
	}
	return NewKeyRing(list[0], list[1:]...), nil
}

// WriteFile writes the ring to a file that only its owner can read: after a
// crash there is the old file or the new one. It blocks on I/O. Codes:
// ErrNotFound (the ring has no key), ErrUnavailable.
func (r *KeyRing) WriteFile(path string) error {
	list := r.Keys()
	if len(list) == 0 {
		return fileError(driver.ErrNotFound, keyFile, "is not written: the ring is empty", nil)
	}
	return writePrivate(path, keyFile, formatKeys(list))
}

// ChangeKeyFile reads the ring in a file, changes it with edit, and writes it back,
// while no other process that does so can come in between: of two that rotate at
// once neither loses the other's key. It returns the ring that is in the file then.
// If edit fails nothing is written, and its error is returned.
//
// It blocks on I/O, and on the lock of the file, path with ".lock" behind, for a few
// seconds at most; cancelling ctx ends that. Codes: those of ReadKeyFile and
// WriteFile, and ErrUnavailable (somebody else keeps the lock).
func ChangeKeyFile(ctx context.Context, path string, edit func(*KeyRing) error) (*KeyRing, error) {
	return lockedKeys(ctx, path, func() (*KeyRing, error) {
		ring, err := ReadKeyFile(path)
		if err == nil {
			err = edit(ring)
		}
		if err == nil {
			err = ring.WriteFile(path)
		}
		return ring, err
	})
}

// ReadOrMakeKeyFile reads the ring in a file; if there is no file it makes one with a
// new key, and says so. Of processes that do so at once one makes the file, and all
// have its keys. It blocks, and fails, like ChangeKeyFile.
func ReadOrMakeKeyFile(ctx context.Context, path string) (ring *KeyRing, made bool, err error) {
	if ring, err = ReadKeyFile(path); !errors.Is(err, driver.ErrNotFound) {
		return ring, false, err
	}
	ring, err = lockedKeys(ctx, path, func() (*KeyRing, error) {
		ring, err := ReadKeyFile(path)
		if errors.Is(err, driver.ErrNotFound) {
			ring, made = NewKeyRing(NewKey()), true
			err = ring.WriteFile(path)
		}
		return ring, err
	})
	return ring, made, err
}

// How long the lock of a file of keys is waited for. It is held for as long as it
// takes to write a small file; who keeps it longer has been stopped.
const (
	keyLockPatience = 10 * time.Second
	keyLockPause    = 5 * time.Millisecond
)

// lockedKeys calls use while it holds the lock of the file of keys at path.
func lockedKeys(ctx context.Context, path string, use func() (*KeyRing, error)) (*KeyRing, error) {
	patience := time.NewTimer(keyLockPatience)
	defer patience.Stop()
	unlock, err := lockFile(path + ".lock")
	for err != nil && isLocked(err) {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-patience.C:
			return nil, fileError(driver.ErrUnavailable, keyFile, "another process is changing it, and does not come to an end", err)
		case <-time.After(keyLockPause):
			unlock, err = lockFile(path + ".lock")
		}
	}
	if err != nil {
		return nil, fileError(driver.ErrUnavailable, keyFile, "", err)
	}
	ring, err := use()
	if unlocked := unlock(); err == nil && unlocked != nil {
		err = fileError(driver.ErrUnavailable, keyFile, "", unlocked)
	}
	if err != nil {
		return nil, err
	}
	return ring, nil
}

// formatKeys writes one line for each key, the current one first: id, secret in
// hex, when it was retired in Unix milliseconds, 0 for not, and when it was made,
// if that is known. The last line is a checksum of those before.
func formatKeys(list []Key) []byte {
	b := []byte(keyFileHead + "\n")
	for _, key := range list {
		retired := int64(0)
		if !key.retiredAt.IsZero() {
			retired = key.retiredAt.UnixMilli()
		}
		b = fmt.Appendf(b, "%s %x %d", key.id, key.secret.bytes(), retired)
		if !key.madeAt.IsZero() {
			b = fmt.Appendf(b, " %d", key.madeAt.UnixMilli())
		}
		b = append(b, '\n')
	}
	return fmt.Appendf(b, "%08x\n", crc32.Checksum(b, castagnoli))
}

// parseKeys reads what formatKeys wrote, and only that.
func parseKeys(text string) ([]Key, bool) {
	lines := strings.Split(text, "\n")
	if len(lines) < 4 || len(lines) > MaxKeys+3 {
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
	key, err := KeyFrom(KeyID(id), secret)
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
