package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// A line is a record as it is in a file: its checksum, its JSON and a line feed.
type line struct {
	text    []byte
	record  Record
	damaged bool // record is empty
}

func (l line) size() int64  { return int64(len(l.text)) }
func (l line) owner() owner { return ownerOf(l.record) }

// whole returns content without a torn last line.
func whole(content []byte) []byte { return content[:bytes.LastIndexByte(content, '\n')+1] }

// Read returns the records of the log in a directory, oldest first, and how many lines
// cannot be read. A directory without a log has none. It blocks on I/O.
func Read(dir string) (records []Record, damaged int, err error) {
	lines, err := readLines(dir)
	records, damaged = recordsOf(lines)
	return records, damaged, err
}

func recordsOf(lines []line) (records []Record, damaged int) {
	for _, l := range lines {
		if l.damaged {
			damaged++
		} else {
			records = append(records, l.record)
		}
	}
	return records, damaged
}

// readLines reads the log in a directory, with the older half that earlier versions kept
// beside it. Lines that are in both are there once: a crash may have come between adding
// the older half to the log and removing it.
func readLines(dir string) ([]line, error) {
	path := filepath.Join(dir, FileName)
	older, err := readFile(path + olderSuffix)
	if err != nil {
		return nil, err
	}
	current, err := readFile(path)
	return merge(older, current), err
}

func readFile(path string) ([]line, error) {
	content, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return linesOf(whole(content)), nil
}

func linesOf(content []byte) (lines []line) {
	for text := range bytes.Lines(content) {
		l := line{text: text}
		l.damaged = !l.parse()
		lines = append(lines, l)
	}
	return lines
}

// encode returns the line of a record.
func encode(r *Record) ([]byte, error) {
	text, err := json.Marshal(r)
	return fmt.Appendf(nil, "%0*x %s\n", sumDigits, checksum(text), text), err
}

// parse reads the record of a line, and reports whether it is undamaged.
func (l *line) parse() bool {
	text := bytes.TrimSuffix(l.text, []byte{'\n'})
	if len(text) <= sumDigits {
		return false
	}
	sum, text := string(text[:sumDigits]), text[sumDigits+1:]
	if sum != fmt.Sprintf("%0*x", sumDigits, checksum(text)) {
		return false
	}
	if err := json.Unmarshal(text, &l.record); err != nil {
		l.record = Record{}
		return false
	}
	return true
}

// Merge adds the records of the log in another directory to the log in dir, which no
// process has open. Records that are in both stay once, and each log keeps its order. If
// the result exceeds limit, the oldest records that only dir has are dropped: all records
// of the other log are kept. It blocks on I/O.
func Merge(dir, other string, limit int64) error {
	own, err := readLines(dir)
	if err != nil {
		return err
	}
	later, err := readLines(other)
	if err != nil || len(later) == 0 {
		return err
	}
	merged := merge(own, later)
	if over := sizeOf(merged) - limit; over > 0 {
		merged = merge(own[cut(own, later, over):], later)
	}
	return replace(filepath.Join(dir, FileName), merged)
}

// merge returns the lines of both logs. An equal line in both is the same record. What
// only earlier has stays before the line that followed it, where later has that line too,
// and goes where its time belongs otherwise.
func merge(earlier, later []line) []line {
	if len(earlier) == 0 {
		return later
	}
	shared := sharedLines(earlier, later)
	merged := make([]line, 0, len(earlier)+len(later))
	at := 0
	// addUntil adds what only earlier has, up to a line for which stop is true.
	addUntil := func(stop func(line) bool) {
		for ; at < len(earlier) && !stop(earlier[at]); at++ {
			if !shared[at] {
				merged = append(merged, earlier[at])
			}
		}
	}
	rest := make(map[string]int) // shared lines of earlier that are still to come in later
	for i, l := range earlier {
		if shared[i] {
			rest[string(l.text)]++
		}
	}
	for _, l := range later {
		if rest[string(l.text)] > 0 {
			rest[string(l.text)]--
			addUntil(func(e line) bool { return bytes.Equal(e.text, l.text) })
			if at < len(earlier) && shared[at] {
				at++
			}
		} else {
			addUntil(func(e line) bool { return rest[string(e.text)] > 0 || !e.record.At.Before(l.record.At) })
		}
		merged = append(merged, l)
	}
	addUntil(func(line) bool { return false })
	return merged
}

// sharedLines says which lines of one log are in another too. A line that is in a log
// twice is two records.
func sharedLines(of, in []line) []bool {
	left := make(map[string]int)
	for _, l := range in {
		left[string(l.text)]++
	}
	shared := make([]bool, len(of))
	for i, l := range of {
		if left[string(l.text)] > 0 {
			left[string(l.text)]--
			shared[i] = true
		}
	}
	return shared
}

// cut returns how many lines at the beginning of one log have to go, so that those that
// are not in the other make up the given number of bytes.
func cut(of, in []line, bytes int64) int {
	for i, shared := range sharedLines(of, in) {
		if bytes <= 0 {
			return i
		}
		if !shared {
			bytes -= of[i].size()
		}
	}
	return len(of)
}

func sizeOf(lines []line) (n int64) {
	for _, l := range lines {
		n += l.size()
	}
	return n
}
