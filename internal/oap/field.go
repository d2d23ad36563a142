package oap

import (
	"encoding/binary"
	"slices"
	"time"
)

// The fields that payloads are made of.
//
//	number    unsigned, 7 bits to a byte, lowest first, the top bit set in all
//	          bytes but the last, in as few bytes as possible
//	signed    zigzag, then as number
//	duration  signed, nanoseconds
//	time      signed, nanoseconds since 1970 in UTC; 0 means none
//	text      number of bytes, then the bytes
//	flag      one byte, 0 or 1

func appendNumber(dst []byte, n uint64) []byte { return binary.AppendUvarint(dst, n) }

func appendSigned(dst []byte, n int64) []byte { return binary.AppendVarint(dst, n) }

func appendDuration(dst []byte, d time.Duration) []byte { return appendSigned(dst, int64(d)) }

func appendTime(dst []byte, t time.Time) []byte {
	if t.IsZero() {
		return append(dst, 0)
	}
	return appendSigned(dst, t.UnixNano())
}

func appendText[T string | []byte](dst []byte, text T) []byte {
	dst = appendNumber(dst, uint64(len(text)))
	return append(dst, text...)
}

func appendFlag(dst []byte, flag bool) []byte {
	if flag {
		return append(dst, 1)
	}
	return append(dst, 0)
}

// appendAttributes writes attributes in the order of their keys, so that the
// same message is always the same bytes.
func appendAttributes(dst []byte, attributes map[string]string) []byte {
	dst = appendNumber(dst, uint64(len(attributes)))
	if len(attributes) == 0 {
		return dst
	}
	var few [8]string
	keys := few[:0]
	for key := range attributes {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		dst = appendText(dst, key)
		dst = appendText(dst, attributes[key])
	}
	return dst
}

// A PayloadError says why a payload cannot be parsed. Its frame is
// valid, and the next one can be read.
type PayloadError string

// Error returns the reason.
func (e PayloadError) Error() string { return "oap: payload: " + string(e) }

// reader reads fields. It keeps the first error and returns
// zeros from then on, so that a parser checks once, at its end.
type reader struct {
	rest []byte
	err  error
}

func (r *reader) fail(why string) {
	if r.err == nil {
		r.err = PayloadError(why)
	}
	r.rest = nil
}

// end returns the first error, or an error about trailing bytes.
func (r *reader) end() error {
	if r.err == nil && len(r.rest) > 0 {
		r.fail("there are bytes after its end")
	}
	return r.err
}

func (r *reader) number() uint64 {
	if len(r.rest) > 0 && r.rest[0] < 0x80 { // as nearly always
		n := uint64(r.rest[0])
		r.rest = r.rest[1:]
		return n
	}
	n, length := binary.Uvarint(r.rest)
	switch {
	case length <= 0:
		r.fail("a number is cut off or too large")
		return 0
	case r.rest[length-1] == 0:
		r.fail("a number has more bytes than it needs")
		return 0
	}
	r.rest = r.rest[length:]
	return n
}

func (r *reader) signed() int64 {
	n := r.number()
	return int64(n>>1) ^ -int64(n&1)
}

// int reads a signed number that is an int on every machine.
func (r *reader) int() int { return int(r.signed()) }

func (r *reader) duration() time.Duration { return time.Duration(r.signed()) }

func (r *reader) time() time.Time {
	n := r.signed()
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}

// count reads how many elements follow, of which each has at least the given
// number of bytes: a count that cannot be true must not cost memory.
func (r *reader) count(atLeast int) int {
	n := r.number()
	if n > uint64(len(r.rest)/atLeast) {
		r.fail("a count is larger than what follows")
		return 0
	}
	return int(n)
}

func (r *reader) bytes() []byte {
	n := r.count(1)
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) fixed(n int) []byte {
	if len(r.rest) < n {
		r.fail("it is cut off")
		return nil
	}
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) text() string { return string(r.bytes()) }

func (r *reader) byte() byte {
	if len(r.rest) == 0 {
		r.fail("it is cut off")
		return 0
	}
	b := r.rest[0]
	r.rest = r.rest[1:]
	return b
}

func (r *reader) flag() bool {
	b := r.byte()
	if b > 1 {
		r.fail("a flag is neither 0 nor 1")
	}
	return b == 1
}

func (r *reader) attributes() map[string]string {
	n := r.count(2)
	if n == 0 {
		return nil
	}
	attributes := make(map[string]string, n)
	last := ""
	for i := range n {
		key, value := r.text(), r.text()
		if i > 0 && key <= last {
			r.fail("attributes are not in the order of their keys, each once")
		}
		if r.err != nil {
			return nil
		}
		attributes[key] = value
		last = key
	}
	return attributes
}
