package store

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// The small files of this package (the format file, the seals) are readable text. They hold the
// same text twice, each copy with its checksum, so that a flipped bit is detected and loses
// nothing.

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var errDamaged = errors.New("both copies of its text are damaged")

func encodeChecked(body string) []byte {
	half := fmt.Sprintf("%scheck %08x\n", body, crc32.Checksum([]byte(body), castagnoli))
	return []byte(half + half)
}

// decodeChecked returns the text of the first undamaged copy.
func decodeChecked(data []byte) (body string, ok bool) {
	const checkBytes = len("check 01234567\n")
	half := len(data) / 2
	if half < checkBytes || len(data)%2 != 0 {
		return "", false
	}
	for _, text := range []string{string(data[:half]), string(data[half:])} {
		body := text[:half-checkBytes]
		if string(encodeChecked(body)[:half]) == text {
			return body, true
		}
	}
	return "", false
}

// writeChecked replaces the file at path atomically: after a crash the file has either its old
// or its new text. When writeChecked has returned nil, the new text is durable.
func writeChecked(fs vfs.FS, path, body string) error {
	temp := path + tempSuffix
	f, err := fs.Create(temp, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write(encodeChecked(body))
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = fs.Rename(temp, path)
	}
	if err == nil {
		err = syncDir(fs, fs.PathDir(path))
	}
	return err
}

// readChecked returns the text of a file that writeChecked wrote, or errDamaged if both copies
// are damaged.
func readChecked(fs vfs.FS, path string) (string, error) {
	f, err := fs.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	const limit = 64 << 10 // far above any size written here
	data, err := io.ReadAll(io.LimitReader(f, limit))
	if err != nil {
		return "", err
	}
	body, ok := decodeChecked(data)
	if !ok {
		return "", errDamaged
	}
	return body, nil
}

// fields parses the "name value" lines of a checked text.
func fields(body string) map[string]string {
	values := make(map[string]string)
	for line := range strings.Lines(body) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		values[name] = value
	}
	return values
}
