package capability

import (
	"encoding/hex"
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

// formatKeys writes one line for each key, the current one first: id, secret in
// hex, and when it was retired in Unix milliseconds, 0 for not. The last line is
// a checksum of those before.
func formatKeys(list []Key) []byte {
	b := []byte(keyFileHead + "\n")
	for _, key := range list {
		retired := int64(0)
		if !key.retiredAt.IsZero() {
			retired = key.retiredAt.UnixMilli()
		}
		b = fmt.Appendf(b, "%s %x %d\n", key.id, key.secret.bytes(), retired)
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
	if len(fields) != 3 {
		return Key{}, false
	}
	id, errID := strconv.ParseUint(fields[0], 16, 32)
	secret, errSecret := hex.DecodeString(fields[1])
	retired, errRetired := strconv.ParseInt(fields[2], 10, 64)
	if errID != nil || errSecret != nil || errRetired != nil {
		return Key{}, false
	}
	key, err := KeyFrom(KeyID(id), secret)
	if retired != 0 {
		key.retiredAt = time.UnixMilli(retired).UTC()
	}
	return key, err == nil
}
