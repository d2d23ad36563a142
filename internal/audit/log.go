package audit

import (
	"bytes"
	"context"
	"errors"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"
)

const (
	// FileName is that of the log in a data directory.
	FileName = "audit.log"
	// olderSuffix is that of the older half, which earlier versions kept beside the log.
	olderSuffix = ".1"
	// newSuffix is that of a log that is being written, and takes the place of the log.
	newSuffix = ".new"

	// DefaultLimit bounds the file, in bytes: about 40,000 records.
	DefaultLimit = 8 << 20
	// memoryRecords bounds a log in memory.
	memoryRecords = 4096
	// sumDigits are those of the checksum that begins a line.
	sumDigits = 8
)

// A Record is one change, in the log, on the wire and in the output of mailbox audit.
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
	// Daemon is the daemon that recorded it, and ID the record's own. Both are set where
	// several daemons share a backend.
	Daemon string `json:"daemon,omitempty"`
	ID     string `json:"id,omitempty"`
	// Subject is the token, tenant or key that was minted, revoked or retired, or the queue
	// that messages were moved to.
	Subject string `json:"subject,omitempty"`
	// Count is how many messages it concerned.
	Count int `json:"count,omitempty"`
	// Result is "ok", or the code of the error after which something may have changed.
	Result string `json:"result"`
}

// A Log keeps records in memory or in a file. A full log is cut to half, by owner: see trim.
// It is safe for concurrent use.
type Log struct {
	path  string // empty: in memory
	limit int64

	mu       sync.Mutex // guards the fields below
	file     *os.File   // nil in memory, after Close, and after a failed write
	size     int64      // of file
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
	older := l.path + olderSuffix
	if _, err := os.Stat(older); err == nil {
		lines, err := readLines(dir)
		if err == nil {
			err = replace(l.path, lines)
		}
		if err == nil {
			err = os.Remove(older)
		}
		if err != nil {
			return nil, err
		}
	}
	return l, l.openLocked()
}

// openLocked opens the file for appending, without a torn last line.
func (l *Log) openLocked() error {
	file, err := os.OpenFile(l.path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	content, err := io.ReadAll(file)
	if err == nil {
		l.size = int64(len(whole(content)))
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
			l.recent = trim(l.recent, memoryRecords/2, func(Record) int64 { return 1 }, ownerOf)
		}
		l.recent = append(l.recent, r)
		return nil
	}
	if err := l.appendLocked(&r); err != nil {
		l.failures++
		if l.file != nil {
			_ = l.file.Close() // its content is unknown now; the next record opens it again
			l.file = nil
		}
		return err
	}
	return nil
}

func (l *Log) appendLocked(r *Record) error {
	added, err := encode(r)
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
	if l.size > 0 && l.size+int64(len(added)) > l.limit {
		if err := l.trimLocked(); err != nil {
			return err
		}
	}
	if _, err := l.file.Write(added); err != nil {
		return err
	}
	l.size += int64(len(added))
	return l.file.Sync()
}

// trimLocked drops the older half of the file. The new file takes the place of the old one
// with one rename.
func (l *Log) trimLocked() error {
	lines, err := readLines(filepath.Dir(l.path))
	if err != nil {
		return err
	}
	lines = trim(lines, l.limit/2, line.size, line.owner)
	err = l.file.Close()
	l.file = nil
	if err == nil {
		err = replace(l.path, lines)
	}
	if err != nil {
		return err
	}
	return l.openLocked()
}

// replace writes a log under another name and gives it its own, durably.
func replace(path string, lines []line) error {
	var content bytes.Buffer
	for _, l := range lines {
		content.Write(l.text)
	}
	file, err := os.OpenFile(path+newSuffix, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(content.Bytes())
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	if err := os.Rename(path+newSuffix, path); err != nil {
		return err
	}
	if runtime.GOOS == "windows" {
		return nil // a directory cannot be synced there
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(text []byte) uint32 { return crc32.Checksum(text, castagnoli) }

// Records returns all records, oldest first, and how many lines cannot be read. It blocks
// on I/O, and does not check the context.
func (l *Log) Records(context.Context) (records []Record, damaged int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.path == "" {
		return append(records, l.recent...), 0, nil
	}
	return Read(filepath.Dir(l.path))
}

// Content returns the file as it is, for a backup. It is empty for a log in memory. It
// blocks on I/O.
func (l *Log) Content() ([]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.path == "" {
		return nil, nil
	}
	content, err := os.ReadFile(l.path)
	return whole(content), err
}

// Stats are the fill of a log, in bytes for one in a file and in records for one in memory.
type Stats struct {
	Used, Limit int64
	// Failures are records that could not be written.
	Failures uint64
}

// Stats returns the fill so far.
func (l *Log) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Stats{Used: l.size + int64(len(l.recent)), Limit: l.limit, Failures: l.failures}
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
