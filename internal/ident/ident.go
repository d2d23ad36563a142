// Package ident makes message ids.
//
// An id is a ULID: 48 bits of milliseconds and 80 bits of chance, 26 characters
// that sort by time. Ids of one [Source] grow strictly, also when the clock
// stands still or goes back, so that the order of ids is the order of sends.
package ident

import (
	crand "crypto/rand"
	"encoding/binary"
	"math/rand/v2"

	"github.com/oklog/ulid/v2"
)

// TextLen is the length of an id as text.
const TextLen = ulid.EncodedSize

// Source makes ids. It is not safe for concurrent use.
type Source struct {
	random *rand.ChaCha8
	last   ulid.ULID
}

// NewSource returns a source seeded from the operating system.
func NewSource() *Source {
	var seed [32]byte
	_, _ = crand.Read(seed[:]) // never fails, see crypto/rand
	return &Source{random: rand.NewChaCha8(seed)}
}

// Next returns the next id for the wall time in Unix nanoseconds.
func (s *Source) Next(wall int64) ulid.ULID {
	ms := uint64(max(wall, 0)) / 1e6
	if ms > s.last.Time() && ms <= ulid.MaxTime() {
		var id ulid.ULID
		_ = id.SetTime(ms) // in range, checked above
		binary.BigEndian.PutUint16(id[6:], uint16(s.random.Uint64()))
		// The top bit starts at 0: increments within a millisecond never
		// carry past the chance bits.
		binary.BigEndian.PutUint64(id[8:], s.random.Uint64()>>1)
		s.last = id
		return id
	}
	low := binary.BigEndian.Uint64(s.last[8:]) + 1
	binary.BigEndian.PutUint64(s.last[8:], low)
	return s.last
}

// Encode writes the text of id into dst, which has TextLen bytes.
func Encode(id ulid.ULID, dst []byte) {
	_ = id.MarshalTextTo(dst) // fails only for a dst of another length
}

// Parse reads the text of an id.
func Parse(text string) (ulid.ULID, error) { return ulid.ParseStrict(text) }

// Nonce returns a random number.
func Nonce() uint64 {
	var b [8]byte
	_, _ = crand.Read(b[:]) // never fails, see crypto/rand
	return binary.LittleEndian.Uint64(b[:])
}
