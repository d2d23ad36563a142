package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"iter"
	"log/slog"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/mailboxmq/mailbox/driver"
)

// A mender restores single flipped bits in logs and MANIFESTs. A flipped bit costs nothing
// then, where the store would refuse to open although all its messages are readable but one.
//
// Such a file has two checksums: one of the whole file up to some length, in a watermark or a
// seal, and one of each chunk in it. A bit is flipped back if both match afterwards. Other
// damage, whose extent is unknown, is left alone and refused.
type mender struct {
	fs  vfs.FS
	log *slog.Logger
	// readOnly: nothing is written, and the error says that it could be.
	readOnly bool
}

// ErrOneBit is wrapped by the error of opening a store read-only whose only damage in a file is
// a flipped bit. Opening it for writing restores the bit, and nothing is lost.
var ErrOneBit = errors.New("one flipped bit")

// checkedPrefix is a file of chunks, and the checksum of its first bytes.
type checkedPrefix struct {
	path        string
	chunkHeader int // bytes
	length      uint64
	crc         uint32
}

// The headers of chunks: those of logs have the log's number and a sync offset, see logfile.go.
const (
	logChunkHeader      = chunkHeader
	manifestChunkHeader = 7
)

// mend reports whether it has restored the file: it did not match its checksum, and does now.
func (m *mender) mend(p checkedPrefix) (bool, error) {
	if p.crc == 0 {
		return false, nil
	}
	data, err := readPrefix(m.fs, p.path, p.length)
	if err != nil || uint64(len(data)) != p.length {
		return false, err
	}
	for at, bit := range candidates(data, crc32.Checksum(data, castagnoli)^p.crc) {
		data[at] ^= bit
		if chunksMatch(data, p.chunkHeader) {
			if m.readOnly {
				return false, fileError(driver.ErrIntegrity, "open", p.path,
					fmt.Sprintf("one bit of byte %d is flipped; start the daemon, or open the directory for writing, to restore it; nothing was changed", at), ErrOneBit)
			}
			if err := writeByte(m.fs, p.path, at, data[at]); err != nil {
				return false, err
			}
			m.log.Error("restored a flipped bit: check the disk", "file", p.path, "byte", at)
			return true, nil
		}
		data[at] ^= bit
	}
	return false, nil
}

// readPrefix returns the first bytes of a file, fewer if it is shorter.
func readPrefix(fs vfs.FS, path string, length uint64) ([]byte, error) {
	f, err := fs.Open(path, vfs.SequentialReadsOption)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return io.ReadAll(io.LimitReader(f, int64(length)))
}

func writeByte(fs vfs.FS, path string, at int, b byte) error {
	f, err := fs.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.WriteAt([]byte{b}, int64(at))
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// candidates yields the bits of data that change its CRC-32C by difference: which bit changes
// it how depends only on the number of bytes behind it.
func candidates(data []byte, difference uint32) iter.Seq2[int, byte] {
	return func(yield func(at int, bit byte) bool) {
		var changes [8]uint32
		for bit := range changes {
			changes[bit] = castagnoli[1<<bit]
		}
		for at := len(data) - 1; at >= 0; at-- {
			for bit, change := range changes {
				if change == difference && !yield(at, 1<<bit) {
					return
				}
				changes[bit] = castagnoli[byte(change)] ^ change>>8
			}
		}
	}
}

// chunksMatch reports whether all chunks have the right checksum.
func chunksMatch(data []byte, header int) bool {
	for at := 0; at < len(data); {
		room := min(logBlockBytes-at%logBlockBytes, len(data)-at)
		chunk := data[at : at+room]
		if room < header {
			at += room
			continue
		}
		checksum, size := binary.LittleEndian.Uint32(chunk), int(binary.LittleEndian.Uint16(chunk[chunkSizeAt:]))
		switch {
		case checksum == 0 && size == 0: // the end of a log or a block
			at += room
			continue
		case header+size > room, checksum != chunkChecksum(chunk[chunkKindAt:header+size]):
			return false
		}
		at += header + size
	}
	return true
}
