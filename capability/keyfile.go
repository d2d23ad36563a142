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
	// keyFileHead is the first line of a key file.
	keyFileHead = "mailbox keys 1"
	// maxKeyFileBytes is more than the size of 8 lines.
	maxKeyFileBytes = 16 << 10
)

// ReadKeyFile reads a key ring from a file that WriteFile wrote. It refuses a
// file that users other than its owner can read. It blocks on I/O. Codes:
// ErrNotFound (no such file), ErrForbidden (its mode), ErrIntegrity (damaged),
// ErrUnavailable. Errors do not repeat the content of the file.
func ReadKeyFile(path string) (*KeyRing, error) {
	text, err := readPrivate(path, keyFile, maxKeyFileBytes)
	if err != nil {
		return nil, err
	}
	list, ok := parseKeys(text)
	if !ok {
		return nil, fileError(driver.ErrIntegrity, keyFile, "is damaged, or is not a key file; restore it from a backup", nil)
	}
	return NewKeyRing(list[0], list[1:]...), nil
}

// WriteFile writes the ring to a file that only its owner can read: after a
// crash there is the old file or the new one. It blocks on I/O. Codes:
// ErrNotFound (the ring has no key), ErrUnavailable.
func (r *KeyRing) WriteFile(path string) error {
	list := r.Keys()
	if len(list) == 0 {
		return fileError(driver.ErrNotFound, keyFile, "not written: the key ring is empty", nil)
	}
	return writePrivate(path, keyFile, formatKeys(list))
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
