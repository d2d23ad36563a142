package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/mailboxmq/mailbox/driver"
)

// A watermark is a record about a log, written into that log: its first length bytes were
// durable, and had this checksum, when the watermark was made.
//
// The engine cannot distinguish a damaged record from the torn end that a crash leaves, and
// drops a doubtful record and everything after it. The sync offsets in newer logs count only
// the bytes of blocks that were not yet full when they were synced, so for commits near or
// above 32 KiB they cover a fraction of the log. A watermark covers all of it: every durable
// commit carries one that covers the commits before it, and an idle store writes one that
// covers everything (see sealer). auditLogs compares them with the logs before the engine reads
// them.
//
// A watermark is found by searching for the store's secret id, so it does not depend on how the
// engine frames its records. One that a frame splits is not found, which does no harm: the next
// one covers more.
type watermark struct {
	log    uint64
	length uint64
	crc    uint32
}

// id, log, length, crc, checksum of these
const watermarkBytes = len(storeID{}) + 8 + 8 + 4 + 4

func (w watermark) append(dst []byte, id storeID) []byte {
	start := len(dst)
	dst = append(dst, id[:]...)
	dst = binary.BigEndian.AppendUint64(dst, w.log)
	dst = binary.BigEndian.AppendUint64(dst, w.length)
	dst = binary.BigEndian.AppendUint32(dst, w.crc)
	return binary.BigEndian.AppendUint32(dst, crc32.Checksum(dst[start:], castagnoli))
}

// parseWatermark reads what append wrote; ok is false if b is damaged.
func parseWatermark(b []byte) (w watermark, ok bool) {
	sumAt := watermarkBytes - 4
	if crc32.Checksum(b[:sumAt], castagnoli) != binary.BigEndian.Uint32(b[sumAt:]) {
		return watermark{}, false
	}
	b = b[len(storeID{}):]
	return watermark{
		log:    binary.BigEndian.Uint64(b),
		length: binary.BigEndian.Uint64(b[8:]),
		crc:    binary.BigEndian.Uint32(b[16:]),
	}, true
}

// auditLogs returns ErrIntegrity if a log in the list is missing, or does not match the list,
// or a watermark in it or in a later log. It changes nothing but what m can mend.
func auditLogs(m *mender, dir string, id storeID, list map[uint64]watermark) error {
	fs := m.fs
	names, err := fs.List(dir)
	if err != nil {
		return ioError("open", dir, err)
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		_, isLog := logNumber(name)
		return !isLog
	})
	for _, number := range slices.Sorted(maps.Keys(list)) {
		if name := logName(number); !slices.Contains(names, name) {
			return fileError(driver.ErrIntegrity, "open", fs.PathJoin(dir, name),
				"the log is missing; nothing was changed; put it back, or restore from a backup", nil)
		}
	}
	buf := make([]byte, 256<<10)
	highest := maps.Clone(list)
	for _, name := range names {
		path := fs.PathJoin(dir, name)
		if err := findWatermarks(fs, path, id, highest, buf); err != nil {
			return ioError("open", path, err)
		}
	}
	for _, name := range names {
		number, _ := logNumber(name)
		path, w := fs.PathJoin(dir, name), highest[number]
		err := verifyLog(fs, path, w, buf)
		if errors.Is(err, driver.ErrIntegrity) {
			mended, mendErr := m.mend(checkedPrefix{path, logChunkHeader, w.length, w.crc})
			if mended {
				err = verifyLog(fs, path, w, buf)
			} else if mendErr != nil {
				err = mendErr
			}
		}
		if err != nil {
			return ioError("open", path, err)
		}
	}
	return nil
}

// findWatermarks records, for each log that the watermarks in a file are about, the one that
// covers most of it. They are valid in whatever file they are: the number of a log is never
// reused, and a file that is overwritten gets a new number first.
func findWatermarks(fs vfs.FS, path string, id storeID, highest map[uint64]watermark, buf []byte) error {
	f, err := fs.Open(path, vfs.SequentialReadsOption)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	return scanWatermarks(f, id, buf, func(w watermark) {
		if w.length >= highest[w.log].length {
			highest[w.log] = w
		}
	})
}

// scanWatermarks calls found for every undamaged watermark.
func scanWatermarks(r io.Reader, id storeID, buf []byte, found func(watermark)) error {
	kept := 0 // bytes of a possible watermark that continues in the next piece
	for {
		n, err := io.ReadFull(r, buf[kept:])
		window := buf[:kept+n]
		for {
			i := bytes.Index(window, id[:])
			if i < 0 || len(window)-i < watermarkBytes {
				break
			}
			if w, ok := parseWatermark(window[i:]); ok {
				found(w)
			}
			window = window[i+1:]
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil
		}
		if err != nil {
			return err
		}
		kept = copy(buf, window[max(0, len(window)-watermarkBytes+1):])
	}
}

// verifyLog compares a log with its watermark. A watermark of length 0 covers nothing.
func verifyLog(fs vfs.FS, path string, w watermark, buf []byte) error {
	if w.length == 0 {
		return nil
	}
	f, err := fs.Open(path, vfs.SequentialReadsOption)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	sum := crc32.New(castagnoli)
	n, err := io.CopyBuffer(sum, io.LimitReader(f, int64(w.length)), buf)
	if err != nil {
		return err
	}
	if uint64(n) != w.length || sum.Sum32() != w.crc {
		return fileError(driver.ErrIntegrity, "open", path,
			fmt.Sprintf("the log is not what was written: its first %d bytes do not match their watermark; nothing was changed; restore from a backup", w.length), nil)
	}
	return nil
}
