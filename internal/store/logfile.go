package store

import (
	"encoding/binary"
	"hash/crc32"
	"io"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// logTracker tracks how far the current log is durable.
type logTracker struct {
	// lazy logs are synced when they are closed and when a caller forces it; the engine's other
	// syncs only write to the operating system.
	lazy   bool
	forced atomic.Int32

	mu      sync.Mutex
	current uint64 // the number of the current log
	durable watermark
	carried watermark // the last watermark that a commit carried
}

// start records that a new log is being written.
func (t *logTracker) start(log uint64) {
	t.mu.Lock()
	t.current = log
	t.mu.Unlock()
}

// stable returns how many bytes of a log will not change any more; partly is false if that is
// the whole log.
func (t *logTracker) stable(log uint64) (length int64, partly bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case log != t.current:
		return 0, false
	case log != t.durable.log:
		return 0, true
	}
	return int64(t.durable.length), true
}

func (t *logTracker) set(w watermark) {
	t.mu.Lock()
	t.durable = w
	t.mu.Unlock()
}

// get returns the latest watermark; its length is 0 if nothing is durable yet.
func (t *logTracker) get() watermark {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.durable
}

// fresh returns the latest watermark, and whether no commit has carried it yet: one of the
// commits that share a sync is enough.
func (t *logTracker) fresh() (w watermark, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.carried == t.durable {
		return watermark{}, false
	}
	t.carried = t.durable
	return t.durable, true
}

// logFile is a log that is being written, from its beginning, by one goroutine at a time.
type logFile struct {
	vfs.File
	tracker *logTracker
	at      watermark // of all written bytes, durable or not
	scratch []byte
	// reserved is how long the file is, with bytes that are not part of the log.
	reserved uint64
	zeros    []byte
}

func (f *logFile) Write(p []byte) (int, error) {
	if f.tracker.lazy {
		f.scratch = append(f.scratch[:0], p...)
		p = f.scratch
		withdrawPromises(p, f.at.length)
	}
	if err := f.reserve(uint64(len(p))); err != nil {
		return 0, err
	}
	f.at.crc = crc32.Update(f.at.crc, castagnoli, p) // before the file: vfs.File.Write may change p
	f.at.length += uint64(len(p))
	return f.File.Write(p)
}

// Each piece of zeros is as long as the log, within these bounds.
const (
	minReserve = 64 << 10
	maxReserve = 4 << 20
)

// reserve writes zeros behind the next n bytes of the log when it reaches the end of the
// file. A sync of bytes that replace others takes about half the time of one that makes the
// file longer, for which the file system writes more than the bytes. Readers of a log stop at
// zeros, as they do at the remains of a log whose file is used again.
func (f *logFile) reserve(n uint64) error {
	end := f.at.length + n
	if end <= f.reserved || f.tracker.lazy {
		return nil
	}
	if f.zeros == nil {
		f.zeros = make([]byte, minReserve)
	}
	f.reserved = end + min(max(end, minReserve), maxReserve)/minReserve*minReserve
	for at := end; at < f.reserved; at += minReserve {
		if _, err := f.File.WriteAt(f.zeros, int64(at)); err != nil {
			return err
		}
	}
	return nil
}

func (f *logFile) Sync() error     { return f.sync(f.File.Sync) }
func (f *logFile) SyncData() error { return f.sync(f.File.SyncData) }

func (f *logFile) sync(do func() error) error {
	if f.tracker.lazy && f.tracker.forced.Load() == 0 {
		return nil
	}
	err := do()
	if err == nil {
		f.tracker.set(f.at)
	}
	return err
}

// Close syncs what was written since the last sync: the engine relies on all logs but the last
// one being complete, and so does the list of logs.
func (f *logFile) Close() error {
	var err error
	if f.tracker.get() != f.at {
		if err = f.File.SyncData(); err == nil {
			f.tracker.set(f.at)
		}
	}
	if closeErr := f.File.Close(); err == nil {
		err = closeErr
	}
	return err
}

// stableLog is the part of a log that will not change any more, for reading. A backup copies
// logs while they are written; without this, it could copy the old beginning and the new end of
// a file.
type stableLog struct {
	vfs.File
	left io.Reader
}

func newStableLog(f vfs.File, length int64) *stableLog {
	return &stableLog{File: f, left: io.LimitReader(f, length)}
}

func (f *stableLog) Read(p []byte) (int, error) { return f.left.Read(p) }

// The frames of the engine's log, as its package record documents them: blocks of 32 KiB that
// hold chunks; the header of a chunk is checksum (4 bytes), size (2), kind (1), log number (4),
// sync offset (8), in little endian.
const (
	logBlockBytes  = 32 << 10
	chunkHeader    = 19
	chunkKindFull  = 9
	chunkKindLast  = 12
	chunkSizeAt    = 4
	chunkKindAt    = 6
	chunkPromiseAt = 11
)

// withdrawPromises rewrites a piece of a log that starts at the given offset. Every chunk
// records how far the log was synced when it was written, and the engine treats a gap before
// that point as damage. In a lazy log those syncs did not happen, so after a crash of the
// machine a legitimate gap would keep the store from opening. With an offset of 0 a chunk
// promises nothing.
func withdrawPromises(p []byte, offset uint64) {
	for len(p) > 0 {
		room := logBlockBytes - int(offset%logBlockBytes)
		if room < chunkHeader {
			skip := min(room, len(p))
			p, offset = p[skip:], offset+uint64(skip)
			continue
		}
		if len(p) < chunkHeader || p[chunkKindAt] < chunkKindFull || p[chunkKindAt] > chunkKindLast {
			return // the end of the log
		}
		size := chunkHeader + int(binary.LittleEndian.Uint16(p[chunkSizeAt:]))
		if size > len(p) {
			return
		}
		binary.LittleEndian.PutUint64(p[chunkPromiseAt:], 0)
		binary.LittleEndian.PutUint32(p, chunkChecksum(p[chunkKindAt:size]))
		p, offset = p[size:], offset+uint64(size)
	}
}

// chunkChecksum is the engine's variant of CRC-32C.
func chunkChecksum(b []byte) uint32 {
	c := crc32.Checksum(b, castagnoli)
	return (c>>15 | c<<17) + 0xa282ead8
}
