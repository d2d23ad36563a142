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

// Source makes ids. The zero value is ready for use. It is not safe for
// concurrent use.
//
// There is one for every shard of every queue, so it is small: chance comes from
// the runtime's generator, which is one for each processor and seeded by the
// operating system. It keeps the latest id as text and counts in the text: within
// a millisecond that changes one character, which is much cheaper than encoding a
// number.
type Source struct {
	ms   uint64        // of the latest id
	text [TextLen]byte // zeros before the first
}

// NewSource returns a new source.
func NewSource() *Source { return new(Source) }

// Next writes the next id, for the wall time in Unix nanoseconds, to dst, which
// has TextLen bytes.
func (s *Source) Next(wall int64, dst []byte) {
	ms := uint64(max(wall, 0)) / 1e6
	if (ms > s.ms || s.text[0] == 0) && ms <= ulid.MaxTime() {
		s.start(ms)
	} else {
		s.increment()
	}
	copy(dst, s.text[:])
}

// start makes a new id for a new millisecond.
func (s *Source) start(ms uint64) {
	var id ulid.ULID
	_ = id.SetTime(ms) // in range, checked by the caller
	binary.BigEndian.PutUint16(id[6:], uint16(rand.Uint64()))
	// The top bit starts at 0: counting within a millisecond never carries past
	// the chance bits.
	binary.BigEndian.PutUint64(id[8:], rand.Uint64()>>1)
	_ = id.MarshalTextTo(s.text[:]) // fails only for another length
	s.ms = ms
}

const alphabet = ulid.Encoding

// following maps each character to the next in the alphabet, and the last one
// to the first.
var following = func() (next [256]byte) {
	for i := range alphabet {
		next[alphabet[i]] = alphabet[(i+1)%len(alphabet)]
	}
	return next
}()

// increment counts the text up by one.
func (s *Source) increment() {
	for i := TextLen - 1; i >= 0; i-- {
		s.text[i] = following[s.text[i]]
		if s.text[i] != alphabet[0] {
			return
		}
	}
}

// Parse reads the text of an id.
func Parse(text string) (ulid.ULID, error) { return ulid.ParseStrict(text) }

// Nonce returns a random number.
func Nonce() uint64 {
	var b [8]byte
	_, _ = crand.Read(b[:]) // never fails, see crypto/rand
	return binary.LittleEndian.Uint64(b[:])
}
