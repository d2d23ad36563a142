package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"
)

const (
	// FileName is that of the log in a data directory. The older half is beside it, with
	// olderSuffix.
	FileName    = "audit.log"
	olderSuffix = ".1"

	// DefaultLimit bounds both files together, in bytes: about 40,000 records.
	DefaultLimit = 8 << 20
	// memoryRecords bounds a log in memory.
	memoryRecords = 4096
	// sumDigits are those of the checksum that begins a line.
	sumDigits = 8
)

// A Record is one change.
type Record struct {
	At time.Time `json:"at"`
	// Operation is what was done: "configure", "purge", "revoke", …
	Operation string `json:"operation"`
	Queue     string `json:"queue,omitempty"`
	// Tenant and TokenID say who did it. Both are empty for what the daemon was told by a
	// signal.
	Tenant  string `json:"tenant,omitempty"`
	TokenID string `json:"token_id,omitempty"`
	Client  string `json:"client,omitempty"`
	CorrID  string `json:"corr_id,omitempty"`
	// Subject is the token, tenant or key that was minted, revoked or retired, or the queue
	// that messages were moved to.
	Subject string `json:"subject,omitempty"`
	// Count is how many messages it concerned.
	Count int `json:"count,omitempty"`
	// Result is "ok", or the code of the error after which something may have changed.
	Result string `json:"result"`
}

// A Log keeps records: the latest in memory, or in two files of half the limit each.
// It is safe for concurrent use.
type Log struct {
	path  string // empty: in memory
	limit int64

	mu       sync.Mutex // guards the fields below
	file     *os.File   // nil in memory, after Close, and after a failed write
	size     int64      // of file
	older    int64      // of the other file
	recent   []Record   // in memory only
	failures uint64
	closed   bool
}

// InMemory returns a log that ends with the process.
func InMemory() *Log { return &Log{limit: memoryRecords} }

// Open opens the log in a directory, and makes it if there is none. What a crash left half
// written was never confirmed, and is cut off. It blocks on I/O.
func Open(dir string, limit int64) (*Log, error) {
	l := &Log{path: filepath.Join(dir, FileName), limit: limit}
	if info, err := os.Stat(l.path + olderSuffix); err == nil {
		l.older = info.Size()
	}
	return l, l.openLocked()
}

// openLocked opens the current file for appending, without a torn last line.
func (l *Log) openLocked() error {
	file, err := os.OpenFile(l.path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	content, err := io.ReadAll(file)
	if err == nil {
		l.size = int64(bytes.LastIndexByte(content, '\n') + 1)
		if l.size < int64(len(content)) {
			err = file.Truncate(l.size)
		}
	}
	if err == nil {
		_, err = file.Seek(l.size, io.SeekStart)
	}
	if err != nil {
		return errors.Join(err, file.Close())
	}
	l.file = file
	return nil
}

// Append adds a record. In a file it is durable when Append returns nil. It blocks on I/O.
func (l *Log) Append(r Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.path == "" {
		if len(l.recent) == memoryRecords {
			l.recent = append(l.recent[:0], l.recent[memoryRecords/2:]...)
		}
		l.recent = append(l.recent, r)
		return nil
	}
	if err := l.appendLocked(&r); err != nil {
		l.failures++
		if l.file != nil {
			_ = l.file.Close() // what is in it is not known any more; the next record opens it again
			l.file = nil
		}
		return err
	}
	return nil
}

func (l *Log) appendLocked(r *Record) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if l.closed {
		return fs.ErrClosed
	}
	if l.file == nil {
		if err := l.openLocked(); err != nil {
			return err
		}
	}
	line := fmt.Appendf(nil, "%0*x %s\n", sumDigits, checksum(text), text)
	if l.size > 0 && l.size+int64(len(line)) > l.limit/2 {
		if err := l.rotateLocked(); err != nil {
			return err
		}
	}
	if _, err := l.file.Write(line); err != nil {
		return err
	}
	l.size += int64(len(line))
	return l.file.Sync()
}

// rotateLocked makes the current file the older one, and begins a new one.
func (l *Log) rotateLocked() error {
	err := l.file.Close()
	l.file = nil
	if err == nil {
		err = os.Rename(l.path, l.path+olderSuffix)
	}
	if err != nil {
		return err
	}
	l.older = l.size
	if err := l.openLocked(); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(l.path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(text []byte) uint32 { return crc32.Checksum(text, castagnoli) }

// Records returns all records, oldest first, and how many lines cannot be read. It blocks
// on I/O.
func (l *Log) Records() (records []Record, damaged int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.path == "" {
		return append(records, l.recent...), 0, nil
	}
	for _, path := range []string{l.path + olderSuffix, l.path} {
		content, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, 0, err
		}
		for line := range bytes.Lines(content) {
			if r, ok := parse(line); ok {
				records = append(records, r)
			} else {
				damaged++
			}
		}
	}
	return records, damaged, nil
}

func parse(line []byte) (r Record, ok bool) {
	text, whole := bytes.CutSuffix(line, []byte{'\n'})
	if !whole || len(text) <= sumDigits {
		return r, false
	}
	sum, text := string(text[:sumDigits]), text[sumDigits+1:]
	if sum != fmt.Sprintf("%0*x", sumDigits, checksum(text)) {
		return r, false
	}
	return r, json.Unmarshal(text, &r) == nil
}

// Stats are the fill of a log, in bytes for one in files and in records for one in memory.
type Stats struct {
	Used, Limit int64
	// Failures are records that could not be written.
	Failures uint64
}

// Stats returns the fill so far.
func (l *Log) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Stats{Used: l.size + l.older + int64(len(l.recent)), Limit: l.limit, Failures: l.failures}
}

// Close closes the file. Closing twice is fine.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.file == nil {
		return nil
	}
	err := l.file.Close()
	l.file = nil
	return err
}
