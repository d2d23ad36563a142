package store

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/mailboxmq/mailbox/driver"
)

// A logList says which logs there are, in a file beside them: each with its length
// and checksum, if it is complete.
//
// The engine reads the logs that it finds, and does not miss those that it does
// not find. A log that is gone takes everything with it that is not in a table
// yet, the watermarks that speak of it included. So does the last log, if it is cut
// short: nothing comes after it that would know better.
//
// Every log in the list is there, at all times, whatever crashes: a log is added
// when its name is durable, and taken out before it is removed or written over.
// One that is there and not in the list holds nothing yet, or nothing any more.
type logList struct {
	fs  vfs.FS
	dir string
	// turn is held by the goroutine that changes the list. It is a channel because that
	// takes I/O: who waits for a lock holds up virtual time in tests.
	turn chan struct{}
	logs map[uint64]watermark // with a length of 0: not complete
}

// newLogList goes on with the logs that there are.
func newLogList(fs vfs.FS, dir string, logs map[uint64]watermark) *logList {
	return &logList{fs: fs, dir: dir, turn: make(chan struct{}, 1), logs: maps.Clone(logs)}
}

// add adds a log that was just made. last is what the one before it, if there is
// one, was in the end.
func (l *logList) add(number uint64, last watermark) error {
	l.turn <- struct{}{}
	defer func() { <-l.turn }()
	if err := syncDir(l.fs, l.dir); err != nil {
		return err
	}
	l.complete(last)
	l.logs[number] = watermark{log: number}
	return l.write()
}

// remove takes out a log that is about to be removed.
func (l *logList) remove(number uint64) error {
	l.turn <- struct{}{}
	defer func() { <-l.turn }()
	if _, listed := l.logs[number]; !listed {
		return nil
	}
	delete(l.logs, number)
	return l.write()
}

// end notes what the last log was in the end.
func (l *logList) end(last watermark) error {
	l.turn <- struct{}{}
	defer func() { <-l.turn }()
	if !l.complete(last) {
		return nil
	}
	return l.write()
}

// complete notes what a log is that was written to its end. It reports whether
// that is news.
func (l *logList) complete(w watermark) bool {
	before, listed := l.logs[w.log]
	if !listed || w == before {
		return false
	}
	l.logs[w.log] = w
	return true
}

func (l *logList) write() error { return writeLogList(l.fs, l.dir, l.logs) }

// writeLogList writes a line for each log: its name, length and checksum.
func writeLogList(fs vfs.FS, dir string, logs map[uint64]watermark) error {
	var body strings.Builder
	for _, number := range slices.Sorted(maps.Keys(logs)) {
		fmt.Fprintf(&body, "%s %d %08x\n", logName(number), logs[number].length, logs[number].crc)
	}
	return writeChecked(fs, fs.PathJoin(dir, logListFile), body.String())
}

// readLogList returns the logs in the list. It is ErrIntegrity if the list is
// missing or damaged.
func readLogList(fs vfs.FS, dir string) (map[uint64]watermark, error) {
	path := fs.PathJoin(dir, logListFile)
	body, err := readChecked(fs, path)
	switch {
	case errors.Is(err, errDamaged):
		return nil, fileError(driver.ErrIntegrity, "open", path, "the list of logs is damaged; nothing was changed; restore from a backup", err)
	case isNotExist(err):
		return nil, fileError(driver.ErrIntegrity, "open", path, "the list of logs is missing; nothing was changed; restore from a backup", err)
	case err != nil:
		return nil, ioError("open", path, err)
	}
	logs := make(map[uint64]watermark)
	for name, value := range fields(body) {
		w := watermark{}
		number, isLog := logNumber(name)
		if _, err := fmt.Sscanf(value, "%d %x", &w.length, &w.crc); err != nil || !isLog {
			return nil, fileError(driver.ErrIntegrity, "open", path, "the list of logs makes no sense; nothing was changed; restore from a backup", err)
		}
		w.log = number
		logs[number] = w
	}
	return logs, nil
}

// listLogs makes the list for a directory that a backup has filled. No process writes
// to its logs any more.
func listLogs(fs vfs.FS, dir string) error {
	names, err := fs.List(dir)
	if err != nil {
		return err
	}
	logs := make(map[uint64]watermark)
	for _, name := range names {
		number, isLog := logNumber(name)
		if !isLog {
			continue
		}
		w, err := measureLog(fs, fs.PathJoin(dir, name))
		if err != nil {
			return err
		}
		w.log = number
		logs[number] = w
	}
	return writeLogList(fs, dir, logs)
}

// measureLog returns the length and the checksum of a log.
func measureLog(fs vfs.FS, path string) (w watermark, err error) {
	f, err := fs.Open(path, vfs.SequentialReadsOption)
	if err != nil {
		return w, err
	}
	defer func() { _ = f.Close() }()
	sum := crc32.New(castagnoli)
	n, err := io.Copy(sum, f)
	return watermark{length: uint64(n), crc: sum.Sum32()}, err
}
