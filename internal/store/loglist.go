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

// A logList lists the existing logs in a file beside them, each with how much of it is known to
// be durable: all of a complete log, and of the current one what was durable at most a second
// after it was written (see sealer).
//
// The engine reads the logs that it finds, and does not detect that one is missing. A missing
// log loses all operations that are not in a table yet, together with the watermarks about it.
// So does the last log if it is truncated, unless the list covers what is missing: the
// watermarks about it are in the log itself.
//
// Every log in the list exists at all times, whatever crashes: a log is added when its name is
// durable, and removed from the list before it is removed or overwritten. A log that is not in
// the list holds no live data.
type logList struct {
	fs  vfs.FS
	dir string
	// turn is held by the goroutine that changes the list. It is a channel because that takes
	// I/O: a goroutine that waits for a mutex stops virtual time in tests.
	turn chan struct{}
	logs map[uint64]watermark // with a length of 0: nothing is known
	// completed has the lengths of the logs that this process has completed. The files may be
	// longer.
	completed map[uint64]int64
}

// newLogList returns a list that starts with the existing logs.
func newLogList(fs vfs.FS, dir string, logs map[uint64]watermark) *logList {
	return &logList{fs: fs, dir: dir, turn: make(chan struct{}, 1), logs: maps.Clone(logs), completed: make(map[uint64]int64)}
}

// add adds a new log. last is the final state of the log before it, if there is one.
func (l *logList) add(number uint64, last watermark) error {
	l.turn <- struct{}{}
	defer func() { <-l.turn }()
	if err := syncDir(l.fs, l.dir); err != nil {
		return err
	}
	l.extend(last)
	if _, listed := l.logs[last.log]; listed {
		l.completed[last.log] = int64(last.length)
	}
	l.logs[number] = watermark{log: number}
	return l.write()
}

// remove takes a log that is about to be removed out of the list.
func (l *logList) remove(number uint64) error {
	l.turn <- struct{}{}
	defer func() { <-l.turn }()
	if _, listed := l.logs[number]; !listed {
		return nil
	}
	delete(l.logs, number)
	delete(l.completed, number)
	return l.write()
}

// note records how far a log is durable.
func (l *logList) note(durable watermark) error {
	l.turn <- struct{}{}
	defer func() { <-l.turn }()
	if !l.extend(durable) {
		return nil
	}
	return l.write()
}

// length returns the length of a log that this process has completed, and 0 for others.
func (l *logList) length(number uint64) int64 {
	l.turn <- struct{}{}
	defer func() { <-l.turn }()
	return l.completed[number]
}

// extend records how far a log is durable, and reports whether that is news.
func (l *logList) extend(w watermark) bool {
	before, listed := l.logs[w.log]
	if !listed || w.length <= before.length {
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

// readLogList returns the logs in the list, or ErrIntegrity if the list is missing or damaged.
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

// listLogs writes the list for the directory of a backup, whose logs do not change any more.
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
