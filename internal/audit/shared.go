package audit

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/oklog/ulid/v2"
)

// Encode returns records as texts of about so many bytes each, in the format of a file.
func Encode(records []Record, bytes int) (texts [][]byte, err error) {
	for i := range records {
		text, err := encode(&records[i])
		if err != nil {
			return nil, err
		}
		if last := len(texts) - 1; last >= 0 && len(texts[last])+len(text) <= bytes {
			texts[last] = append(texts[last], text...)
		} else {
			texts = append(texts, text)
		}
	}
	return texts, nil
}

// Decode returns the records of a text that Encode made, and how many lines of it cannot
// be read.
func Decode(text []byte) (records []Record, damaged int) { return recordsOf(linesOf(text)) }

// Identify names the daemon in the records of its log that name none, and gives them ids.
// An id is made of the record, and of how many equal ones are before it, so it is the same
// each time.
func Identify(records []Record, daemon string) {
	equal := make(map[string]uint64)
	for i := range records {
		r := &records[i]
		if r.ID == "" {
			text, _ := encode(r) // a record that was read
			sum := sha256.Sum256(binary.BigEndian.AppendUint64(text, equal[string(text)]))
			equal[string(text)]++
			var id ulid.ULID
			copy(id[6:], sum[:])
			_ = id.SetTime(uint64(max(r.At.UnixMilli(), 0))) // a time beyond that of ids leaves it zero
			r.ID = id.String()
		}
		if r.Daemon == "" {
			r.Daemon = daemon
		}
	}
}

// Union returns the records of several logs in the order of their times, each id once.
func Union(logs ...[]Record) []Record {
	all := slices.Concat(logs...)
	slices.SortStableFunc(all, func(a, b Record) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.ID, b.ID))
	})
	return slices.CompactFunc(all, func(a, b Record) bool { return a.ID == b.ID })
}

// Bound returns the records that stay in a log of so many bytes, as in a file that is cut.
func Bound(records []Record, bytes int64) []Record {
	return trim(records, bytes, func(r Record) int64 {
		text, _ := encode(&r) // a record that was read
		return int64(len(text))
	}, ownerOf)
}
